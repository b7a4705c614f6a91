/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests: what the parts of a multipart object don't say of it. See manifest.c.
 */
#ifndef TARN_OBJECT_MANIFEST_H
#define TARN_OBJECT_MANIFEST_H

#include "private.h"

#define OBJ_MANIFEST_BYTES_MAX (8u << 20)

typedef struct obj_manifest_part {
    uint32_t number;
    uint64_t size;
    int64_t mtime_ms;
    tarn_str etag, attrs;
    uint64_t blob_id;
    tarn_str bytes; /* p == NULL: they are in a record of their own */
} obj_manifest_part;

typedef struct obj_manifest {
    uint64_t data_id, order, upload_nonce, bucket_id, seq, nonce, size;
    int64_t mtime_ms;
    bool null_version;
    uint8_t bucket_flags;
    tarn_str bucket, key, etag, attrs, tags;
    uint32_t tags_n;
    tarn_retention retention;
    int64_t retain_until_ms;
    bool legal_hold;
    obj_manifest_part *parts;
    size_t parts_n;
} obj_manifest;

/* Slices point into p. FORMAT. */
tarn_err obj_manifest_parse(tarn_str p, const uint8_t deployment[16], tarn_arena *a, obj_manifest *out);
/* Makes and writes the manifest of a multipart version, from its rows, to all drives of its set that take it. */
tarn_err obj_manifest_save(tarn_store *s, const tarn_version_row *row);
/* How many drives of the version's set should have it and don't, or have a wrong one. */
tarn_err obj_manifest_check(tarn_store *s, const tarn_version_row *row, uint32_t *missing, uint32_t *corrupt);
/* Away with it, on all drives. */
void obj_manifest_drop(tarn_store *s, uint64_t data_id);
bool obj_manifest_folder(const obj_drive *d, unsigned folder, char out[TARN_PATH_BYTES_MAX]); /* 0 … 63 */
/* The file's bytes. NOT_FOUND: there is none; CORRUPT: it is empty or too long; else it can't be read. */
tarn_err obj_manifest_read(tarn_store *s, const obj_drive *d, uint64_t data_id, tarn_arena *a, tarn_str *out);
bool obj_path_manifest(const obj_drive *d, uint64_t data_id, char out[TARN_PATH_BYTES_MAX]);
/* Manifests of uploads that nobody knows, older than that. */
tarn_err obj_manifest_sweep(tarn_store *s, int64_t age_ms);

#endif
