/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crypto: digests, HMAC, checksums of S3 and of shard blocks, the erasure code. OpenSSL 3 and isa-l underneath.
 * Nothing here keeps state between calls but the objects it hands out; those belong to one thread at a time.
 */
#ifndef TARN_CRYPTO_H
#define TARN_CRYPTO_H

#include "tarn/base.h"

/* ------------------------------------------------------------------ digests */
#define TARN_MD5_BYTES 16
#define TARN_SHA1_BYTES 20
#define TARN_SHA256_BYTES 32
#define TARN_DIGEST_BYTES_MAX 32

/* One-shot. */
void tarn_sha256(const void *p, size_t n, uint8_t out[TARN_SHA256_BYTES]);
void tarn_sha256_hex(const void *p, size_t n, char out[65]); /* lower case, NUL-terminated */
void tarn_md5(const void *p, size_t n, uint8_t out[TARN_MD5_BYTES]);
void tarn_hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, uint8_t out[TARN_SHA256_BYTES]);
bool tarn_equal_ct(const void *a, const void *b, size_t n); /* constant time */

/* Every algorithm that S3 knows for x-amz-checksum-*, and MD5 for the ETag. Names and header suffixes: tarn_sum_name(). */
typedef enum tarn_sum_kind {
    TARN_SUM_NONE,
    TARN_SUM_CRC32,     /* zlib's; big-endian 4 bytes in base64 */
    TARN_SUM_CRC32C,    /* Castagnoli */
    TARN_SUM_CRC64NVME, /* reflected 0x9A6C9329AC4BC9B5; big-endian 8 bytes in base64 */
    TARN_SUM_SHA1,
    TARN_SUM_SHA256,
    TARN_SUM_MD5,
    TARN_SUM_KIND_COUNT
} tarn_sum_kind;
size_t tarn_sum_bytes(tarn_sum_kind k);        /* 4, 4, 8, 20, 32, 16 */
const char *tarn_sum_name(tarn_sum_kind k);    /* "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "MD5" */
const char *tarn_sum_header(tarn_sum_kind k);  /* "x-amz-checksum-crc32", …; NULL for MD5 and NONE */
tarn_sum_kind tarn_sum_by_name(tarn_str name); /* ASCII case folded; NONE when unknown */
tarn_sum_kind tarn_sum_by_header(tarn_str header_name);

typedef struct tarn_sha256_state {
    uint32_t h[8];
    uint64_t total_bytes;
    uint8_t tail[64];
    size_t tail_n;
} tarn_sha256_state;

/* A running sum: one struct for all kinds, freed with tarn_sum_end (which also wipes). */
typedef struct tarn_sum {
    tarn_sum_kind kind;
    uint64_t crc;
    void *ctx; /* EVP_MD_CTX; NULL where the next is in use */
    tarn_sha256_state sha256;
} tarn_sum;
tarn_err tarn_sum_begin(tarn_sum *s, tarn_sum_kind kind);
void tarn_sum_update(tarn_sum *s, const void *p, size_t n);
/* Writes tarn_sum_bytes(kind) bytes; the state stays usable (digests are finished on a copy). */
void tarn_sum_peek(const tarn_sum *s, uint8_t out[TARN_DIGEST_BYTES_MAX]);
void tarn_sum_end(tarn_sum *s);
/* CRC of a‖b from crc(a), crc(b) and b's length: FULL_OBJECT checksums of multipart uploads (CRC kinds only).
 * Values are the big-endian bytes as tarn_sum_peek writes them. */
void tarn_sum_combine(tarn_sum_kind k, const uint8_t *a, const uint8_t *b, uint64_t b_len_bytes, uint8_t *out);

uint32_t tarn_crc32c(uint32_t seed, const void *p, size_t n);
/* Shard-block checksum: CRC-64 (ECMA, reflected), continued from `seed` (0 to start). */
uint64_t tarn_crc64(uint64_t seed, const void *p, size_t n);
/* SipHash-2-4, for placement and hash tables that a client can aim at. */
uint64_t tarn_siphash(const uint8_t key[16], const void *p, size_t n);

/* ------------------------------------------------------------------ many streams at once */
/*
 * MD5 and SHA-256 are the slowest steps of a PUT (0.86 and 1.6 to 2.1 GB/s a core, one stream). n independent streams are hashed
 * together: MD5 in up to 16 lanes (AVX-512, AVX2), or, where SHA-256 of the same bytes is due and the processor has SHA-NI, both
 * woven into each other. Works everywhere; falls back to one after the other.
 */
typedef struct tarn_md5_state {
    uint32_t h[4];
    uint64_t total_bytes;
    uint8_t tail[64];
    size_t tail_n;
} tarn_md5_state;
typedef struct tarn_hash_job {
    tarn_md5_state *md5;
    tarn_sum *sha256; /* of kind SHA256, over the same bytes from its begin on; NULL: MD5 alone */
    const uint8_t *p;
    size_t n;
} tarn_hash_job;
#define TARN_MD5_LANES_MAX 16
void tarn_md5_init(tarn_md5_state *s);
void tarn_md5_update(tarn_md5_state *s, const void *p, size_t n);
void tarn_md5_final(const tarn_md5_state *s, uint8_t out[TARN_MD5_BYTES]);
size_t tarn_md5_lanes(void); /* 16, 8 or 1: how many streams this machine hashes at once */
/* Any n; different states. A job is used up: afterwards its n is 0. Two streams together are faster already than one by one. */
void tarn_hash_many(tarn_hash_job *jobs, size_t n);

/* ------------------------------------------------------------------ erasure code */
#define TARN_EC_SHARDS_MAX 16
/* k data and m parity shards, Cauchy matrix. m may be 0 (then encode does nothing). 1 ≤ k, k + m ≤ 16. Thread-safe after
 * creation. */
typedef struct tarn_ec tarn_ec;
tarn_err tarn_ec_new(unsigned k, unsigned m, tarn_ec **out);
void tarn_ec_free(tarn_ec *ec);
/* data: k pointers of n bytes, parity: m pointers of n bytes. */
void tarn_ec_encode(const tarn_ec *ec, size_t n, uint8_t *const *data, uint8_t *const *parity);
/*
 * shards: k+m pointers of n bytes each; have[i] says that shard i holds good bytes. Rebuilds every shard i with !have[i]
 * and want[i]. CORRUPT when fewer than k are there.
 */
tarn_err tarn_ec_rebuild(const tarn_ec *ec, size_t n, uint8_t *const *shards, const bool *have, const bool *want);
/* The parity of the design: drives 1 → 0, 2–3 → 1, 4–5 → 2, 6–7 → 3, 8 and more → 4. */
unsigned tarn_ec_parity_for(unsigned drives);

/* ------------------------------------------------------------------ gzip (RFC 1952) */
bool tarn_is_gzip(tarn_str bytes); /* begins with its magic number */
/* The whole text in the arena: INVALID when it is no gzip, LIMIT past max_bytes. */
tarn_err tarn_gunzip(tarn_str bytes, size_t max_bytes, tarn_arena *a, tarn_str *out);
tarn_err tarn_gzip(tarn_str bytes, tarn_sb *out); /* appends */

#endif
