/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: made from a seed, written to and read from regression files.
 *
 * A regression file is text: "drives N", "canary NAME" (optional), then one operation a line: name, a, b, c, together (0 or 1),
 * seed. Lines that begin with '#' are remarks.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[OP_COUNT] = {
#define SIM_OP_NAME(name, weight) #name,
    SIM_OP_LIST(SIM_OP_NAME)
#undef SIM_OP_NAME
};
static const unsigned op_weights[OP_COUNT] = {
#define SIM_OP_WEIGHT(name, weight) weight,
    SIM_OP_LIST(SIM_OP_WEIGHT)
#undef SIM_OP_WEIGHT
};
const char *const canary_names[CANARY_COUNT] = {"none", "data-sync", "meta-sync", "dir-sync", "checksum", "mirror", "heal"};

uint64_t rnd(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t rnd_below(uint64_t *state, uint64_t n)
{
    return rnd(state) % n;
}

static op_kind any_kind(uint64_t *rng, const unsigned *weights)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < OP_COUNT; i++)
        sum += weights[i];
    uint64_t at = rnd_below(rng, sum);
    for (size_t i = 0; i < OP_COUNT; i++) {
        if (at < weights[i])
            return (op_kind)i;
        at -= weights[i];
    }
    return OP_GET;
}

void plan_make(plan *p, uint64_t seed, size_t ops_n, size_t drives_n)
{
    static const size_t drive_counts[] = {1, 2, 3, 4, 4, 5, 6, 6, 6, 8};
    unsigned weights[OP_COUNT];
    uint64_t rng = seed;
    *p = (plan){.drives_n = drives_n ? drives_n : drive_counts[rnd_below(&rng, TARN_ARRAY_LEN(drive_counts))], .n = ops_n};
    p->ops = calloc(ops_n, sizeof *p->ops);
    TARN_ASSERT(p->ops != NULL);
    for (size_t i = 0; i < OP_COUNT; i++) { /* each run has its own mixture: some kinds often, some never */
        uint64_t mood = rnd_below(&rng, 8);
        weights[i] = op_weights[i] * (mood == 0 ? 0 : mood == 1 ? 4 : 1);
    }
    weights[OP_PUT] = op_weights[OP_PUT];
    unsigned together = (unsigned)rnd_below(&rng, 3) * 250;
    for (size_t i = 0; i < ops_n; i++) {
        p->ops[i] = (sim_op){.kind = any_kind(&rng, weights),
                             .a = (uint32_t)rnd(&rng),
                             .b = (uint32_t)rnd(&rng),
                             .c = (uint32_t)rnd(&rng),
                             .together = rnd_below(&rng, 1000) < together,
                             .seed = rnd(&rng)};
    }
}

void plan_free(plan *p)
{
    free(p->ops);
    *p = (plan){0};
}

static bool same_name(tarn_str s, const char *const *names, size_t n, size_t *out)
{
    for (*out = 0; *out < n; ++*out) {
        if (tarn_str_eqc(s, names[*out]))
            return true;
    }
    return false;
}

static bool next_number(tarn_str *rest, uint64_t *out)
{
    tarn_str word;
    (void)tarn_str_split(*rest, ' ', &word, rest);
    return tarn_str_to_u64(word, out);
}

static bool read_line(plan *p, tarn_str line)
{
    tarn_str word, rest;
    size_t i;
    uint64_t v[5];
    if (line.n == 0 || line.p[0] == '#')
        return true;
    (void)tarn_str_split(line, ' ', &word, &rest);
    if (tarn_str_eqc(word, "drives")) {
        bool ok = tarn_str_to_u64(rest, &v[0]) && v[0] >= 1 && v[0] <= TARN_SIM_DRIVES_MAX;
        p->drives_n = ok ? (size_t)v[0] : 0;
        return ok;
    }
    if (tarn_str_eqc(word, "canary")) {
        bool ok = same_name(rest, canary_names, CANARY_COUNT, &i);
        p->canary = (canary)i;
        return ok;
    }
    if (!same_name(word, op_names, OP_COUNT, &i) || p->n == SIM_OPS_MAX)
        return false;
    for (size_t k = 0; k < 5; k++) {
        if (!next_number(&rest, &v[k]))
            return false;
    }
    p->ops[p->n++] = (sim_op){(op_kind)i, (uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], v[3] != 0, v[4]};
    return true;
}

bool plan_read(plan *p, const char *path)
{
    char line[256];
    FILE *f = fopen(path, "re");
    bool ok = f != NULL;
    *p = (plan){.ops = calloc(SIM_OPS_MAX, sizeof *p->ops)};
    TARN_ASSERT(p->ops != NULL);
    while (ok && fgets(line, sizeof line, f)) {
        tarn_str s = tarn_str_of(line);
        if (tarn_str_ends(s, "\n"))
            s.n--;
        ok = read_line(p, s);
    }
    if (f)
        (void)fclose(f);
    return ok && p->drives_n > 0;
}

static void print_op(FILE *f, const sim_op *op)
{
    (void)fprintf(f, "%s %u %u %u %d %llu\n", op_names[op->kind], op->a, op->b, op->c, op->together ? 1 : 0, (unsigned long long)op->seed);
}

bool plan_write(const plan *p, const char *path, const char *remark)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return false;
    (void)fprintf(f, "# %s\ndrives %zu\n", remark, p->drives_n);
    if (p->canary != CANARY_NONE)
        (void)fprintf(f, "canary %s\n", canary_names[p->canary]);
    for (size_t i = 0; i < p->n; i++)
        print_op(f, &p->ops[i]);
    return fclose(f) == 0;
}

void plan_print_op(const sim_op *op, size_t i)
{
    (void)printf("%4zu ", i);
    print_op(stdout, op);
    (void)fflush(stdout);
}
