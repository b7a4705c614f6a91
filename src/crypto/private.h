/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of crypto share with each other and nobody else. */
#ifndef TARN_CRYPTO_PRIVATE_H
#define TARN_CRYPTO_PRIVATE_H

#include "tarn/crypto.h"

#include <openssl/evp.h>

/* ---- digest.c */
typedef enum digest_algorithm { DIGEST_SHA1, DIGEST_SHA256, DIGEST_ALGORITHM_COUNT } digest_algorithm;
/* Fetched once for the process; never NULL. */
const EVP_MD *digest_md(digest_algorithm a);
/* A context of this thread, for use within one call; never NULL. */
EVP_MD_CTX *digest_scratch(void);

/* ---- crc64.c: continued from `crc` (0 to start), like zlib's crc32 */
uint64_t crc64nvme(uint64_t crc, const void *p, size_t n);
/* The table path alone, so that a test can hold the two against each other. */
uint64_t crc64nvme_by_table(uint64_t crc, const void *p, size_t n);
/* Tests: without the 256-bit way. */
void crc64_choose_narrow(bool narrow);

/* ---- sha256.c: SHA-256 by the processor's instructions; only where sha256_own() */
#define SHA256_BLOCK_BYTES 64
bool sha256_own(void); /* the processor has them, and no test has chosen otherwise */
void sha256_init(tarn_sha256_state *s);
void sha256_update(tarn_sha256_state *s, const void *p, size_t n);
void sha256_final(const tarn_sha256_state *s, uint8_t out[TARN_SHA256_BYTES]); /* on a copy: the state can go on */

/* ---- lanes of MD5 and of MD5 with SHA-256 */
#define MD5_BLOCK_BYTES 64
#define MD5_SHA256_LANES_MAX 4
/*
 * One group of lanes. Word w of lane i's state is h[w][i], its SHA-256 (where that is hashed too) sha[i]; block[i] is where lane i
 * reads. Every lane must have blocks to read, a lane without work is pointed at another lane's blocks.
 */
typedef struct md5_lanes {
    _Alignas(64) uint32_t h[4][TARN_MD5_LANES_MAX];
    uint32_t sha[MD5_SHA256_LANES_MAX][8];
    const uint8_t *block[TARN_MD5_LANES_MAX];
} md5_lanes;
/* Takes `blocks` blocks of each lane (≥ 1) and moves block[] behind them. */
typedef void md5_lanes_fn(md5_lanes *l, size_t blocks);
md5_lanes_fn md5_lanes_two; /* 2 lanes, any processor */
#if defined(__x86_64__)
md5_lanes_fn md5_lanes_avx512;   /* 16 lanes */
md5_lanes_fn md5_lanes_avx512vl; /* 8 lanes */
md5_lanes_fn md5_lanes_avx2;     /* 8 lanes */
/* ---- sha256_ni.c; only where sha256_ni_there() */
md5_lanes_fn md5_sha256_one;  /* 1 lane, with SHA-256 */
md5_lanes_fn md5_sha256_two;  /* 2 lanes, with SHA-256 */
md5_lanes_fn md5_sha256_four; /* 4 lanes, with SHA-256 */
void sha256_ni_blocks(uint32_t h[8], const uint8_t *p, size_t blocks);
#endif
bool sha256_ni_there(void);
/* One stream, `blocks` blocks. */
void md5_blocks(uint32_t h[4], const uint8_t *p, size_t blocks);
/* Tests: which instructions to use, where the processor has them. Sums that have begun go on in their way. */
typedef enum hash_way { HASH_WAY_BEST, HASH_WAY_AVX2, HASH_WAY_PLAIN } hash_way; /* AVX2: no AVX-512; PLAIN: neither, and no SHA-NI */
void hash_choose_way(hash_way way);

#endif
