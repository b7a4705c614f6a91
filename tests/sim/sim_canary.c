/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canaries: guarantees that a run switches off, to see that the simulation notices. Syncs are switched off in the simulated
 * file system; the others here, by the linker: it sends calls of these functions to the __wrap_ ones (CMakeLists.txt).
 */
#include "sim.h"

static canary now;

void canary_set(canary c)
{
    now = c;
}

uint64_t __real_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n);
uint64_t __wrap_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n);
tarn_err __real_tarn_meta_open(const tarn_meta_options *opt, tarn_meta **out);
tarn_err __wrap_tarn_meta_open(const tarn_meta_options *opt, tarn_meta **out);
tarn_err __real_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open);
tarn_err __wrap_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open);

/* The same for all bytes: nothing is verified. */
uint64_t __wrap_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n)
{
    return now == CANARY_CHECKSUM ? 0 : __real_obj_shard_sum(blob_id, block, shard, p, n);
}

/* One copy of the metadata, on the first drive there is. */
tarn_err __wrap_tarn_meta_open(const tarn_meta_options *opt, tarn_meta **out)
{
    tarn_meta_options one = *opt;
    if (now == CANARY_MIRROR)
        one.dirs_n = one.write_quorum = 1;
    return __real_tarn_meta_open(&one, out);
}

/* Says that all is whole. */
tarn_err __wrap_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open)
{
    *open = 0;
    return now == CANARY_HEAL ? TARN_OK : __real_obj_repair_version(s, row, open);
}
