/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters and gauges of metrics.def, and their Prometheus text.
 *
 * Invariant 1: one cache line a metric, so that two threads counting different things don't fight for one line.
 * Memory: static. Threads: any; relaxed, so a reader may see two metrics at slightly different moments.
 */
#include "tarn/base.h"

#include <stdatomic.h>

#define CACHE_LINE_BYTES 64

typedef struct metric_cell {
    _Alignas(CACHE_LINE_BYTES) _Atomic int64_t value;
} metric_cell;

static metric_cell cells[TARN_METRIC_COUNT];

typedef struct metric_row {
    const char *name;
    const char *kind;
    const char *help;
} metric_row;

static const metric_row rows[TARN_METRIC_COUNT] = {
#define TARN_METRIC(id, kind, name, help) [TARN_M_##id] = {name, #kind, help},
#include "tarn/metrics.def"
#undef TARN_METRIC
};

void tarn_metric_add(tarn_metric m, int64_t delta)
{
    TARN_ASSERT((unsigned)m < TARN_METRIC_COUNT);
    atomic_fetch_add_explicit(&cells[m].value, delta, memory_order_relaxed);
}

void tarn_metric_set(tarn_metric m, int64_t value)
{
    TARN_ASSERT((unsigned)m < TARN_METRIC_COUNT);
    atomic_store_explicit(&cells[m].value, value, memory_order_relaxed);
}

int64_t tarn_metric_get(tarn_metric m)
{
    TARN_ASSERT((unsigned)m < TARN_METRIC_COUNT);
    return atomic_load_explicit(&cells[m].value, memory_order_relaxed);
}

void tarn_metrics_render(tarn_sb *b)
{
    for (unsigned i = 0; i < TARN_METRIC_COUNT; i++) {
        const metric_row *r = &rows[i];
        tarn_sb_fmt(b, "# HELP %s %s\n# TYPE %s %s\n%s ", r->name, r->help, r->name, r->kind, r->name);
        tarn_sb_i64(b, tarn_metric_get((tarn_metric)i));
        tarn_sb_char(b, '\n');
    }
}
