/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, the entries of a table's long lists (snapshots, snapshot-log, metadata-log), kept as text.
 *
 * A table of a hundred snapshots has some three hundred of them, and a commit adds two or three and looks at next to none. As
 * trees they are most of what a metadata file costs to read and eight times as large as their text; so they are kept as
 * their text, which is copied into the next file as it is, and a field of one is looked for where it is needed.
 *
 * Invariant: the text is what ice_json_write gives for the tree that it stands for. From files only such text is taken over
 * (no blanks, no escapes, ASCII, integers of 64 bits, each key once); an entry that is written in another way is a tree.
 * An entry as text is a json_t string of the text behind a byte that begins no UTF-8: no string of a document looks like it.
 */
#ifndef TARN_ICEBERG_ENTRY_H
#define TARN_ICEBERG_ENTRY_H

#include "common.h"

#define ICE_ENTRY_KEYS_MAX 128      /* of all objects that are open at a place of an entry; one with more is a tree */
#define ICE_ENTRY_DEPTH_MAX 8       /* of nested objects and lists; a deeper one is a tree */
#define ICE_ENTRY_OVERHEAD_BYTES 80 /* memory of an entry besides its text */

bool ice_entry_is_text(const json_t *v);
tarn_str ice_entry_text(const json_t *v); /* of an entry that is text */
json_t *ice_entry_new(tarn_str text);     /* copies; NULL when out of memory */

/* The length of the entry that begins at p and is written as ice_json_write writes it; 0: it is none. */
size_t ice_entry_plain(const char *p, size_t n);

/* Reading, of text and trees alike. */
bool ice_entry_value(tarn_str entry, const char *key, tarn_str *value); /* the text of a field's value; null counts as absent */
bool ice_entry_int(tarn_str value, int64_t *out);                       /* false: no integer */
/* The text in a field, as a new reference; NULL where there is none. NO_MEMORY. */
tarn_err ice_entry_string(const json_t *entry, const char *key, json_t **out);

/* Appends an entry, as text; takes over `tree`, which may be NULL (out of memory). */
tarn_err ice_entry_push(json_t *list, json_t *tree);

/* A table's metadata file, its long lists' entries as text where they can be. As ice_json_parse_object in everything else. */
tarn_err ice_entries_parse(tarn_str text, json_t **out, ice_error *e);

#endif
