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

/* ---- crc64nvme.c: continued from `crc` (0 to start), like zlib's crc32 */
uint64_t crc64nvme(uint64_t crc, const void *p, size_t n);
/* The table path alone, so that a test can hold the two against each other. */
uint64_t crc64nvme_by_table(uint64_t crc, const void *p, size_t n);

/* ---- md5_lanes_*.c */
#define MD5_BLOCK_BYTES 64
/*
 * One group of lanes. Word w of lane i's state is h[w][i]; block[i] is where lane i reads. Every lane must have blocks to
 * read, a lane without work is pointed at another lane's blocks.
 */
typedef struct md5_lanes {
    _Alignas(64) uint32_t h[4][TARN_MD5_LANES_MAX];
    const uint8_t *block[TARN_MD5_LANES_MAX];
} md5_lanes;
/* Takes `blocks` blocks of each lane (≥ 1) and moves block[] behind them. */
typedef void md5_lanes_fn(md5_lanes *l, size_t blocks);
#if defined(__x86_64__)
md5_lanes_fn md5_lanes_avx512;   /* 16 lanes */
md5_lanes_fn md5_lanes_avx512vl; /* 8 lanes */
md5_lanes_fn md5_lanes_avx2;     /* 8 lanes */
#endif
/* One stream, `blocks` blocks. */
void md5_blocks(uint32_t h[4], const uint8_t *p, size_t blocks);
/* Tests: which instructions to use, where the processor has them. */
typedef enum md5_way { MD5_WAY_BEST, MD5_WAY_AVX2, MD5_WAY_SCALAR } md5_way;
void md5_choose_way(md5_way way);

#endif
