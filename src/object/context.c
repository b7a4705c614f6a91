/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: what one thread keeps for itself, that is block buffers and open files.
 *
 * A block buffer is [headroom][data: k shards][tailroom][parity: m shards]; headroom and tailroom let the header and
 * trailer of a record lie beside its data, so that it reaches the drive in one write. Data and parity begin on a page; where
 * the header is no whole number of pages, the data may be moved so that the header does (obj_block_follow).
 *
 * Invariants:
 *  1. A buffer is freed by the thread that made it, when its last reference goes.
 *  2. At most OBJ_FDS_MAX files stay open; the one used longest ago goes first.
 * Memory: contexts belong to the store and live until it is closed. Threads: a context's own; the list has the store's lock.
 */
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static _Thread_local obj_ctx *cached_ctx;
static _Thread_local uint64_t cached_serial;

static obj_ctx *ctx_new(tarn_store *s)
{
    obj_ctx *c = tarn_calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    c->store = s;
    c->thread = pthread_self();
    tarn_list_init(&c->free_big);
    tarn_list_init(&c->free_small);
    tarn_list_init(&c->fd_lru);
    tarn_list_init(&c->md5_jobs);
    tarn_list_init(&c->md5_small);
    for (size_t i = 0; i < TARN_SETS_MAX; i++) {
        tarn_fiber_lock_init(&c->seg_locks[i]);
    }
    return c;
}

obj_ctx *obj_ctx_get(tarn_store *s)
{
    if (cached_ctx && cached_serial == s->serial) {
        return cached_ctx;
    }
    obj_ctx *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (tarn_link *l = s->contexts.next; l != &s->contexts && !found; l = l->next) {
        obj_ctx *c = TARN_CONTAINER_OF(l, obj_ctx, link);
        found = pthread_equal(c->thread, pthread_self()) ? c : NULL;
    }
    if (!found) {
        found = ctx_new(s);
        if (found) {
            tarn_list_push(&s->contexts, &found->link);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (found) {
        cached_ctx = found;
        cached_serial = s->serial;
    }
    return found;
}

/* ------------------------------------------------------------------ block buffers */
static void block_free(obj_block *b)
{
    tarn_free(b->mem);
    tarn_free(b);
}

static size_t parity_offset(const tarn_store *s, size_t shard_max)
{
    size_t tail_off = OBJ_HEADROOM_BYTES + s->k * shard_max;
    return (tail_off + OBJ_TAILROOM_BYTES + OBJ_PAGE_BYTES - 1) / OBJ_PAGE_BYTES * OBJ_PAGE_BYTES;
}

static size_t block_bytes(const tarn_store *s, size_t shard_max)
{
    return parity_offset(s, shard_max) + s->m * shard_max;
}

static obj_block *block_make(obj_ctx *c, bool small)
{
    tarn_store *s = c->store;
    obj_block *b = tarn_calloc(1, sizeof *b);
    if (!b) {
        return NULL;
    }
    b->ctx = c;
    b->small = small;
    b->cap = small ? OBJ_SMALL_BLOCK_BYTES : TARN_BLOCK_BYTES;
    b->shard_max = obj_shard_len(b->cap, s->k);
    b->mem = tarn_aligned_alloc(OBJ_PAGE_BYTES, block_bytes(s, b->shard_max));
    if (!b->mem) {
        tarn_free(b);
        return NULL;
    }
    b->parity = b->mem + parity_offset(s, b->shard_max);
    return b;
}

obj_block *obj_block_new(obj_ctx *c, size_t data_bytes)
{
    bool small = data_bytes <= OBJ_SMALL_BLOCK_BYTES;
    tarn_link *l = tarn_list_pop(small ? &c->free_small : &c->free_big);
    obj_block *b = NULL;
    if (l) {
        b = TARN_CONTAINER_OF(l, obj_block, link);
        *(small ? &c->free_small_n : &c->free_big_n) -= 1;
    } else {
        b = block_make(c, small);
    }
    if (b) {
        tarn_list_init(&b->link);
        b->data = b->mem + OBJ_HEADROOM_BYTES;
        b->n = 0;
        b->refs = 1;
    }
    return b;
}

void obj_block_follow(obj_block *b, size_t head_bytes)
{
    TARN_ASSERT(b->n == 0);
    size_t rest = head_bytes % OBJ_PAGE_BYTES;
    if (rest > 0 && head_bytes <= OBJ_HEADROOM_BYTES) {
        b->data = b->mem + OBJ_HEADROOM_BYTES - (OBJ_PAGE_BYTES - rest);
    }
}

void obj_block_unref(obj_block *b)
{
    if (!b) {
        return;
    }
    TARN_ASSERT(b->refs > 0);
    if (--b->refs > 0) {
        return;
    }
    obj_ctx *c = b->ctx;
    size_t *n = b->small ? &c->free_small_n : &c->free_big_n;
    size_t max = b->small ? OBJ_SMALL_BLOCKS_FREE_MAX : OBJ_BLOCKS_FREE_BYTES_MAX / block_bytes(c->store, b->shard_max);
    if (*n >= max) {
        block_free(b);
        return;
    }
    /* At the front: what was used last is taken first, it is in the processor's cache. */
    tarn_link *list = b->small ? &c->free_small : &c->free_big;
    tarn_list_push(list->next, &b->link);
    ++*n;
}

/* ------------------------------------------------------------------ open files */
/* A drive that was replaced is another one: what was open of the old one is not found any more, and goes with time. */
static uint32_t drive_key(const tarn_store *s, const obj_drive *d)
{
    return (uint32_t)(d - s->drives) | (uint32_t)(atomic_load_explicit(&d->joined, memory_order_relaxed) << 8);
}

static obj_fd **fd_bucket(obj_ctx *c, uint32_t drive, uint64_t id)
{
    return &c->fd_buckets[(id * 0x9E3779B97F4A7C15ull + drive) >> 7 & (OBJ_FD_BUCKETS - 1)];
}

static void fd_remove(obj_ctx *c, obj_fd *fd)
{
    obj_fd **at = fd_bucket(c, fd->drive, fd->id);
    while (*at != fd) {
        at = &(*at)->chain;
    }
    *at = fd->chain;
    tarn_list_remove(&fd->lru);
    tarn_file_unref(fd->file);
    tarn_free(fd);
    c->fds_n--;
}

static obj_fd *fd_find(obj_ctx *c, uint32_t drive, uint64_t id)
{
    for (obj_fd *fd = *fd_bucket(c, drive, id); fd; fd = fd->chain) {
        if (fd->drive == drive && fd->id == id) {
            return fd;
        }
    }
    return NULL;
}

static uint64_t fd_id(const obj_blob *b)
{
    return b->cls == OBJ_CLASS_SEGMENT ? b->segment : b->blob_id;
}

void obj_fd_forget(obj_ctx *c, const obj_blob *b, unsigned position)
{
    obj_fd *fd = fd_find(c, drive_key(c->store, obj_drive_at(c->store, b->set, position)), fd_id(b));
    if (fd) {
        fd_remove(c, fd);
    }
}

/* Takes over the reference; a failed allocation only means that the file is opened again the next time. */
static void fd_insert(obj_ctx *c, uint32_t drive, uint64_t id, tarn_file *f)
{
    if (fd_find(c, drive, id)) { /* another fiber was quicker */
        return;
    }
    obj_fd *fd = tarn_calloc(1, sizeof *fd);
    if (!fd) {
        return;
    }
    if (c->fds_n >= OBJ_FDS_MAX) {
        fd_remove(c, TARN_CONTAINER_OF(c->fd_lru.next, obj_fd, lru));
    }
    obj_fd **at = fd_bucket(c, drive, id);
    *fd = (obj_fd){.file = tarn_file_ref(f), .drive = drive, .id = id, .chain = *at};
    *at = fd;
    tarn_list_push(&c->fd_lru, &fd->lru);
    c->fds_n++;
}

int obj_fd_get(obj_ctx *c, const obj_blob *b, unsigned position, tarn_file **out)
{
    tarn_store *s = c->store;
    obj_drive *d = obj_drive_at(s, b->set, position);
    uint32_t drive = drive_key(s, d);
    uint64_t id = fd_id(b);
    char path[TARN_PATH_BYTES_MAX];
    tarn_file *f = NULL;
    obj_fd *fd = fd_find(c, drive, id);
    if (fd) {
        tarn_list_remove(&fd->lru);
        tarn_list_push(&c->fd_lru, &fd->lru);
        *out = tarn_file_ref(fd->file);
        return 0;
    }
    if (!obj_path_blob(d, b, path)) {
        return -ENAMETOOLONG;
    }
    int rc = tarn_file_open(s->fs, path, O_RDONLY | O_CLOEXEC, 0, &f);
    if (rc < 0) {
        return rc;
    }
    fd_insert(c, drive, id, f);
    *out = f;
    return 0;
}

/* ------------------------------------------------------------------ the end */
static void ctx_free(obj_ctx *c)
{
    for (size_t i = 0; i < TARN_SETS_MAX; i++) {
        if (c->segs[i]) {
            obj_seg_unref(c->segs[i]);
        }
    }
    while (!tarn_list_empty(&c->fd_lru)) {
        fd_remove(c, TARN_CONTAINER_OF(c->fd_lru.next, obj_fd, lru));
    }
    tarn_link *l;
    while ((l = tarn_list_pop(&c->free_big)) != NULL || (l = tarn_list_pop(&c->free_small)) != NULL) {
        block_free(TARN_CONTAINER_OF(l, obj_block, link));
    }
    tarn_free(c);
}

void obj_ctx_free_all(tarn_store *s)
{
    for (tarn_link *l; (l = tarn_list_pop(&s->contexts)) != NULL;) {
        ctx_free(TARN_CONTAINER_OF(l, obj_ctx, link));
    }
    cached_ctx = NULL;
    cached_serial = 0;
}
