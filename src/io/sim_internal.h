/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated file system, private: sim_disk.c keeps files' bytes and what a power cut leaves of them, sim_names.c the
 * folders, sim.c the drives, their faults and the calls of tarn_fs.
 *
 * Memory: an inode is counted: by the names that point to it (now, durable, and in changes that are not synced), and by open
 * handles. Allocation: spared from the failures that tests ask for, so that only the code under test sees them.
 * Threads: everything under tarn_sim.lock.
 */
#ifndef TARN_SIM_INTERNAL_H
#define TARN_SIM_INTERNAL_H

#include <pthread.h>

#include "tarn/io.h"

#define SIM_PAGE_BYTES 4096
#define SIM_SECTOR_BYTES 512
#define SIM_FILE_BYTES_MAX (1ull << 40)
#define SIM_CALL_NS 20000 /* what a call takes */

void *sim_alloc(size_t n); /* zeroed, never NULL */
void *sim_grow(void *p, size_t n);
char *sim_text(const char *s, size_t n);

/* ------------------------------------------------------------------ chance (splitmix64) */
typedef struct sim_rng {
    uint64_t state;
} sim_rng;
uint64_t sim_next(sim_rng *r);
uint64_t sim_below(sim_rng *r, uint64_t n); /* n > 0 */
static inline bool sim_chance(sim_rng *r, unsigned per_mille)
{
    return per_mille > 0 && sim_below(r, 1000) < per_mille;
}

/* ------------------------------------------------------------------ bytes (sim_disk.c) */
typedef struct sim_image {
    uint8_t **pages; /* NULL: zeroes */
    size_t pages_cap, pages_used;
    uint64_t size;
} sim_image;
void sim_image_write(sim_image *m, uint64_t off, const void *p, size_t n);
void sim_image_zero(sim_image *m, uint64_t off, uint64_t n); /* keeps the size; whole pages are given back */
size_t sim_image_read(const sim_image *m, uint64_t off, void *p, size_t n);
void sim_image_resize(sim_image *m, uint64_t size);
void sim_image_free(sim_image *m);

typedef enum sim_change_kind { SIM_WRITE, SIM_TRUNCATE, SIM_EXTEND, SIM_PUNCH } sim_change_kind;
typedef struct sim_change { /* of a file, not synced */
    struct sim_change *next;
    sim_change_kind kind;
    uint64_t off, n;
    uint8_t bytes[];
} sim_change;

struct sim_dir;
typedef struct sim_inode {
    unsigned refs;
    unsigned names; /* under which it is found now */
    size_t drive;
    char *path; /* as it was created */
    bool locked, lies;
    struct sim_dir *dir; /* NULL: a file */
    sim_image now, durable;
    sim_change *first, **end;
    bool differs; /* now is not what is durable, or may not be */
    int64_t mtime_ms;
} sim_inode;
sim_inode *sim_inode_new(size_t drive, const char *path);
void sim_inode_unref(sim_inode *f);
/* Appends a change that has been made to `now`. */
void sim_note(sim_inode *f, sim_change_kind kind, uint64_t off, uint64_t n, const void *bytes);
void sim_settle(sim_inode *f);                  /* all changes are durable: a sync */
void sim_settle_some(sim_inode *f, sim_rng *r); /* a power cut, or a sync that failed: what chance leaves becomes durable */
void sim_forget_cache(sim_inode *f);            /* now becomes what is durable */

/* ------------------------------------------------------------------ folders (sim_names.c) */
typedef struct sim_entry {
    char *name;
    sim_inode *inode;
} sim_entry;
typedef struct sim_names {
    sim_entry *e;
    size_t n, cap;
    bool found; /* these are the names that a program finds now, not those a power cut would leave */
} sim_names;
typedef struct sim_name_change {
    struct sim_name_change *next;
    char *add, *remove; /* NULL: none */
    sim_inode *inode;   /* of add */
} sim_name_change;
typedef struct sim_dir {
    sim_names now, durable;
    sim_name_change *first, **end;
} sim_dir;
sim_dir *sim_dir_new(void);
void sim_dir_free(sim_dir *d);
sim_inode *sim_find(const sim_dir *d, const char *name, size_t n);
/* Puts a name in (the dir takes a reference of its own), takes one out, or both at once. */
void sim_dir_change(sim_dir *d, const char *add, size_t add_n, sim_inode *inode, const char *remove, size_t remove_n);
void sim_dir_sync(sim_dir *d);
void sim_dir_power_cut(sim_dir *d, sim_rng *r); /* what is left, everywhere below */
/* Every file of the tree, in the order of creation. */
void sim_walk(const sim_dir *d, void (*fn)(void *ctx, sim_inode *f), void *ctx);

#endif
