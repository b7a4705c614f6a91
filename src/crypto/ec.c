/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The erasure code: k data shards and m parity shards over GF(2^8), any k of which give back all. isa-l does the work.
 *
 * The matrix is (k+m) × k: the unit matrix above a Cauchy matrix, of which every square part can be inverted. Rebuilding
 * inverts the k rows of shards that are there; that costs under 5 µs, so nothing is cached.
 *
 * Invariant 1: 1 ≤ k, k + m ≤ TARN_EC_SHARDS_MAX.
 * Invariant 2: nothing in a tarn_ec changes after creation. The multiplication tables are never stored: their layout is
 * isa-l's own and differs between its versions.
 * Memory: a tarn_ec belongs to its creator. Threads: any number at once.
 */
#include "tarn/crypto.h"

#include <isa-l/erasure_code.h>
#include <limits.h>
#include <string.h>

#define TABLE_BYTES 32 /* for one coefficient */
/* Rows × columns of what is encoded or rebuilt at once: k·m with k + m ≤ 16 is at most 8·8. */
#define COEFFICIENTS_MAX (TARN_EC_SHARDS_MAX / 2 * TARN_EC_SHARDS_MAX / 2)
#define STEP_BYTES_MAX ((size_t)1 << 30) /* isa-l takes lengths as int */

struct tarn_ec {
    unsigned k;
    unsigned m;
    uint8_t matrix[TARN_EC_SHARDS_MAX * TARN_EC_SHARDS_MAX];
    uint8_t tables[COEFFICIENTS_MAX * TABLE_BYTES];
};

_Static_assert(STEP_BYTES_MAX <= INT_MAX, "a step fits isa-l's int");

tarn_err tarn_ec_new(unsigned k, unsigned m, tarn_ec **out)
{
    if (k < 1 || k > TARN_EC_SHARDS_MAX || m > TARN_EC_SHARDS_MAX - k) {
        return TARN_E_LIMIT;
    }
    tarn_ec *ec = tarn_calloc(1, sizeof *ec);
    if (!ec) {
        return TARN_E_NO_MEMORY;
    }
    ec->k = k;
    ec->m = m;
    gf_gen_cauchy1_matrix(ec->matrix, (int)(k + m), (int)k);
    if (m > 0) {
        ec_init_tables((int)k, (int)m, ec->matrix + k * k, ec->tables);
    }
    *out = ec;
    return TARN_OK;
}

void tarn_ec_free(tarn_ec *ec)
{
    tarn_free(ec);
}

/* out[r] = Σ coefficient[r][c] · in[c] over n bytes. isa-l moves no pointers, so the arrays are copied for its sake. */
static void apply(unsigned columns, unsigned rows, const uint8_t *tables, size_t n, uint8_t *const *in, uint8_t *const *out)
{
    uint8_t *from[TARN_EC_SHARDS_MAX];
    uint8_t *to[TARN_EC_SHARDS_MAX];
    for (size_t done = 0; done < n;) {
        size_t step = n - done < STEP_BYTES_MAX ? n - done : STEP_BYTES_MAX;
        for (unsigned c = 0; c < columns; c++) {
            from[c] = in[c] + done;
        }
        for (unsigned r = 0; r < rows; r++) {
            to[r] = out[r] + done;
        }
        /* The tables are only read; the parameter lacks its const. */
        ec_encode_data((int)step, (int)columns, (int)rows, (uint8_t *)(uintptr_t)tables, from, to);
        done += step;
    }
}

void tarn_ec_encode(const tarn_ec *ec, size_t n, uint8_t *const *data, uint8_t *const *parity)
{
    if (ec->m > 0) {
        apply(ec->k, ec->m, ec->tables, n, data, parity);
    }
}

/* The coefficients that make shard `lost` from the chosen shards: its row of the matrix times the inverse. */
static void row_for(const tarn_ec *ec, const uint8_t *inverse, unsigned lost, uint8_t *row)
{
    unsigned k = ec->k;
    for (unsigned c = 0; c < k; c++) {
        uint8_t v = 0;
        for (unsigned j = 0; j < k; j++) {
            v ^= gf_mul(ec->matrix[lost * k + j], inverse[j * k + c]);
        }
        row[c] = v;
    }
}

/* Picks k shards that are there, and inverts their rows. False when there are too few. */
static bool choose_survivors(const tarn_ec *ec, uint8_t *const *shards, const bool *have, uint8_t **chosen, uint8_t *inverse)
{
    uint8_t square[TARN_EC_SHARDS_MAX * TARN_EC_SHARDS_MAX];
    unsigned k = ec->k;
    unsigned count = 0;
    for (unsigned i = 0; i < k + ec->m && count < k; i++) {
        if (have[i]) {
            memcpy(square + count * k, ec->matrix + i * k, k);
            chosen[count++] = shards[i];
        }
    }
    if (count < k) {
        return false;
    }
    TARN_ASSERT(gf_invert_matrix(square, inverse, (int)k) == 0); /* every k rows of a Cauchy code are independent */
    return true;
}

tarn_err tarn_ec_rebuild(const tarn_ec *ec, size_t n, uint8_t *const *shards, const bool *have, const bool *want)
{
    uint8_t *chosen[TARN_EC_SHARDS_MAX];
    uint8_t *rebuilt[TARN_EC_SHARDS_MAX];
    uint8_t inverse[TARN_EC_SHARDS_MAX * TARN_EC_SHARDS_MAX];
    uint8_t rows[COEFFICIENTS_MAX];
    uint8_t tables[COEFFICIENTS_MAX * TABLE_BYTES];
    if (!choose_survivors(ec, shards, have, chosen, inverse)) {
        return TARN_E_CORRUPT;
    }
    unsigned count = 0;
    for (unsigned i = 0; i < ec->k + ec->m; i++) {
        if (!have[i] && want[i]) {
            TARN_ASSERT(count < ec->m); /* k are there, so at most m are not */
            row_for(ec, inverse, i, rows + count * ec->k);
            rebuilt[count++] = shards[i];
        }
    }
    if (count > 0) {
        ec_init_tables((int)ec->k, (int)count, rows, tables);
        apply(ec->k, count, tables, n, chosen, rebuilt);
    }
    return TARN_OK;
}

unsigned tarn_ec_parity_for(unsigned drives)
{
    return drives >= 8 ? 4 : drives / 2;
}
