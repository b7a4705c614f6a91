/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceberg, common: the catalog's error with its message, and JSON at the edge: bounded reading, exact writing, typed fields.
 *
 * JSON numbers: integers are 64 bits and exact (json_int_t); a number with a fraction or an exponent is written back as one
 * ("1.0" never becomes "1"). A field that is null counts as absent wherever a field is read.
 * Ownership: functions that give out a json_t through `out` hand over a reference; getters borrow.
 * Threads: a json_t is never changed once another fiber can see it; the references are counted atomically by jansson.
 */
#ifndef TARN_ICEBERG_COMMON_H
#define TARN_ICEBERG_COMMON_H

#include <jansson.h>

#include "tarn/base.h"

#define ICE_JSON_DEPTH_MAX 128                     /* nested arrays and objects in what clients send */
#define ICE_METADATA_BYTES_MAX (64u * 1024 * 1024) /* one metadata file */
#define ICE_ERROR_BYTES_MAX 2048                   /* an error's message; longer ones are cut */
#define ICE_STRING_BYTES_MAX 65536                 /* names, locations and other single texts in metadata */

/* ------------------------------------------------------------------ errors */
typedef struct ice_error {
    tarn_err code;
    tarn_sb text;
    char memory[ICE_ERROR_BYTES_MAX];
} ice_error;
void ice_error_init(ice_error *e);
/* Sets code and message, and returns code: `return ice_fail(e, TARN_E_…, "…", …);`. A message that is too long is cut. */
tarn_err ice_fail(ice_error *e, tarn_err code, const char *fmt, ...) TARN_PRINTF(3, 4);
/* For errors of lower layers: the table's own message. */
tarn_err ice_fail_plain(ice_error *e, tarn_err code);
/* The end of what makes a document: hands `made` over, or lets go of it and gives err its message where memory ran out. */
tarn_err ice_hand_over(json_t *made, tarn_err err, json_t **out, ice_error *e);
tarn_str ice_error_message(const ice_error *e);

/* ------------------------------------------------------------------ reading */
/*
 * One JSON document and nothing behind it. Refused: nesting past depth_max, keys given twice, NUL in texts, invalid UTF-8,
 * numbers that do not fit. BAD_REQUEST with the place in the message.
 */
tarn_err ice_json_parse(tarn_str text, unsigned depth_max, json_t **out, ice_error *e);
/* As above, and the document must be an object. */
tarn_err ice_json_parse_object(tarn_str text, json_t **out, ice_error *e);

/* ------------------------------------------------------------------ writing */
/* Compact, keys in their order, UTF-8 as it is, numbers exact. The builder's own failure tells when it was too long. */
void ice_json_write(tarn_sb *b, const json_t *value);
void ice_json_write_string(tarn_sb *b, tarn_str s);

/* ------------------------------------------------------------------ fields */
/* NULL when absent or null. */
json_t *ice_get(const json_t *object, const char *key);
/* `what` names the thing in messages: "snapshot". All of them: ICE_BAD_REQUEST when the field has another type. */
tarn_err ice_get_int(const json_t *object, const char *what, const char *key, int64_t *out, ice_error *e);
tarn_err ice_get_int32(const json_t *object, const char *what, const char *key, int64_t *out, ice_error *e);
tarn_err ice_get_string(const json_t *object, const char *what, const char *key, tarn_str *out, ice_error *e);
tarn_err ice_get_object(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e);
tarn_err ice_get_array(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e);
/* Optional: *has tells; OK when absent. */
tarn_err ice_opt_int(const json_t *object, const char *what, const char *key, bool *has, int64_t *out, ice_error *e);
tarn_err ice_opt_int32(const json_t *object, const char *what, const char *key, bool *has, int64_t *out, ice_error *e);
tarn_err ice_opt_string(const json_t *object, const char *what, const char *key, tarn_str *out, ice_error *e); /* p NULL: absent */
tarn_err ice_opt_bool(const json_t *object, const char *what, const char *key, bool fallback, bool *out, ice_error *e);
tarn_err ice_opt_object(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e); /* NULL: absent */
tarn_err ice_opt_array(const json_t *object, const char *what, const char *key, json_t **out, ice_error *e);
/* An object whose values are all texts. */
tarn_err ice_check_string_map(const json_t *map, const char *what, ice_error *e);

/* The integers of an object, here and above, also of an entry that is kept as text (entry.h). */
bool ice_int_at(const json_t *object, const char *key, int64_t *out); /* false: absent, null or no integer */
/* Never fails on well-formed metadata: the integer, or `fallback` when absent, null or no integer. */
int64_t ice_int_or(const json_t *object, const char *key, int64_t fallback);
tarn_str ice_string_or_empty(const json_t *object, const char *key);
tarn_str ice_str(const json_t *string); /* {NULL,0} for anything that is no text */

/* Sets a field of an object that is the caller's own; takes over `value`; NO_MEMORY. */
tarn_err ice_set(json_t *object, const char *key, json_t *value);
tarn_err ice_set_int(json_t *object, const char *key, int64_t value);
tarn_err ice_set_str(json_t *object, const char *key, tarn_str value);
tarn_err ice_push(json_t *array, json_t *value);
json_t *ice_json_str(tarn_str s); /* NULL when out of memory or no UTF-8 */

#define ICE_TRY(call)                                                                                                                      \
    do {                                                                                                                                   \
        tarn_err ice_try_err = (call);                                                                                                     \
        if (ice_try_err != TARN_OK)                                                                                                        \
            return ice_try_err;                                                                                                            \
    } while (0)

#endif
