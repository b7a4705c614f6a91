/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canaries: guarantees that a run switches off, to see that the simulation notices. Syncs are switched off in the simulated
 * file system; the others here, by the linker: it sends calls of these functions to the __wrap_ ones (CMakeLists.txt).
 */
#include "sim.h"

#include "vfs.h"

static canary now;

void canary_set(canary c)
{
    now = c;
}

uint64_t __real_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n);
uint64_t __wrap_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n);
int __real_meta_mirror_run(meta_mirror *v, const meta_job *job);
int __wrap_meta_mirror_run(meta_mirror *v, const meta_job *job);
tarn_err __real_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open);
tarn_err __wrap_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open);

/* The same for all bytes: nothing is verified. */
uint64_t __wrap_obj_shard_sum(uint64_t blob_id, uint64_t block, unsigned shard, const void *p, size_t n)
{
    return now == CANARY_CHECKSUM ? 0 : __real_obj_shard_sum(blob_id, block, shard, p, n);
}

/* What is committed goes to the log of the first good copy only, and passes for written on all. */
int __wrap_meta_mirror_run(meta_mirror *v, const meta_job *job)
{
    bool spared[TARN_META_DRIVES_MAX] = {false}, first = true;
    for (size_t i = 0; i < v->n && now == CANARY_MIRROR && job->which == META_WAL && !job->truncate; i++) {
        spared[i] = atomic_load(&v->copies[i].good) && !first;
        first = first && !atomic_load(&v->copies[i].good);
        if (spared[i])
            atomic_store(&v->copies[i].good, false);
    }
    int e = __real_meta_mirror_run(v, job);
    for (size_t i = 0; i < v->n; i++) {
        if (spared[i])
            atomic_store(&v->copies[i].good, true);
    }
    return e;
}

/* Says that all is whole. */
tarn_err __wrap_obj_repair_version(tarn_store *s, const tarn_version_row *row, unsigned *open)
{
    *open = 0;
    return now == CANARY_HEAL ? TARN_OK : __real_obj_repair_version(s, row, open);
}
