/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What put.c (the caller's side, digests, transactions) and put_drives.c (everything that touches drives) share: the upload.
 * States and invariants are told in put.c.
 */
#ifndef TARN_OBJECT_PUT_H
#define TARN_OBJECT_PUT_H

#include "private.h"

struct tarn_put {
    tarn_store *s;
    obj_ctx *ctx;
    tarn_arena *arena;
    tarn_put_spec spec;
    obj_blob blob;
    uint64_t record_bytes; /* SEGMENT */
    tarn_sb header;
    tarn_sb sums;
    obj_block *cur;
    tarn_batch *flight[TARN_PUT_BLOCKS_MAX];
    size_t flight_n;
    uint64_t bytes;
    uint64_t blocks;
    obj_digest digest;
    bool digest_on;
    tarn_sum_kind sum_kind, upload_kind; /* the one asked for; the upload's */
    tarn_sum_type upload_type;
    uint64_t upload_nonce;
    bool has_expected_sum, has_expected_sha;
    uint8_t expected_sum[TARN_DIGEST_BYTES_MAX], expected_sha[TARN_SHA256_BYTES];
    tarn_file *files[TARN_SET_DRIVES_MAX]; /* FILE, by shard */
    obj_seg *seg;                          /* SEGMENT */
    uint16_t lost;
    int lost_errno;
    bool pinned, prepared, applied;
    int64_t created_ms;
    uint64_t epoch; /* of the store at the begin: a drive that joined later has not got what was written */
    tarn_err err;
    /* after prepare */
    tarn_str etag, attrs, layout;
    tarn_checksum checksum;
    obj_part_attrs part;
    uint8_t md5[TARN_MD5_BYTES];
    uint8_t sha256[TARN_SHA256_BYTES];
};

/* How many shards a block has. */
unsigned obj_put_shards(const tarn_put *p);
/* The shard will be missing; too many of those end the upload (p->err). errno 0: the drive is out already. */
void obj_put_lose_shard(tarn_put *p, unsigned shard, const char *what, int errno_value);
void obj_put_take_segment(tarn_put *p);   /* loses the shards that the segment has no file for */
tarn_err obj_put_open_files(tarn_put *p); /* one per shard */
/* Encodes and sums the current block and sends it off. `last`: no more will come. */
tarn_err obj_put_flush(tarn_put *p, bool last);
/* The size was not known, and the data ended with a full block that is on its way already. */
tarn_err obj_put_trailers(tarn_put *p);
void obj_put_reap(tarn_put *p); /* waits for the oldest block in flight */
/* Starts the syncs of a file per shard and of the folders they were created in. *b is NULL where there is nothing to do. */
tarn_err obj_put_sync_start(tarn_put *p, tarn_batch **b);
void obj_put_sync_end(tarn_put *p, tarn_batch *b);
/* Shards that were written to a drive that is out by now, or is not the one it was. */
void obj_put_check_drives(tarn_put *p);
void obj_put_unlink(tarn_put *p); /* what was written goes again */
void obj_put_punch(tarn_put *p);

#endif
