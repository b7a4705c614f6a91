/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io: event loops, fibers, sockets, and files on drives.
 *
 * The model. A worker is one thread with one loop. Everything that waits (a connection, a background job) is a fiber of
 * that loop: straight code on a stack of its own that parks while it waits and is resumed by the loop. Fibers of a loop
 * never run at the same time, so what belongs to a loop needs no lock. What crosses threads goes through
 * tarn_loop_post() or tarn_fiber_wake_remote().
 *
 * Back ends of a loop: `uring` (one ring: SINGLE_ISSUER, DEFER_TASKRUN; the sockets' epoll descriptor is armed one-shot
 * on the ring, so that the thread waits in one place for network and disk), `threads` (epoll + a pool of threads that
 * does the disk operations; an eventfd brings them back). Files reach the disk through a tarn_fs, of which there is
 * the real one (POSIX) and, for tests, the simulated one: a loop runs operations on a simulated file itself.
 */
#ifndef TARN_IO_H
#define TARN_IO_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tarn/base.h"

/* ------------------------------------------------------------------ limits */
#define TARN_FIBER_STACK_BYTES (256 * 1024) /* usable; a guard page lies below */
#define TARN_PATH_BYTES_MAX 1024
#define TARN_LOOP_RING_ENTRIES 1024
#define TARN_IO_NO_TIMEOUT UINT64_MAX

typedef enum tarn_io_backend { TARN_IO_AUTO, TARN_IO_URING, TARN_IO_THREADS } tarn_io_backend;

/* ------------------------------------------------------------------ loop */
typedef struct tarn_loop tarn_loop;
typedef struct tarn_loop_options {
    tarn_io_backend backend; /* AUTO: uring where the probe (set-up, op probe, one real read) succeeds, else threads */
    unsigned threads;        /* pool size of the threads back end; 0 = 8 */
    const char *name;        /* for logs and the thread's name */
    unsigned grace_ms;       /* how long fibers may live on after the stop; 0 = 10,000 */
} tarn_loop_options;

/* Creates a loop; run it on the thread that is to own it. With URING and a refused ring: TARN_E_UNSUPPORTED. */
tarn_err tarn_loop_create(const tarn_loop_options *opt, tarn_loop **out);
/* Runs until tarn_loop_stop() and until no fiber is left, or until the grace time after the stop has passed. */
void tarn_loop_run(tarn_loop *loop);
/* Any thread, and safe in a signal handler: asks the loop to end; fibers see tarn_loop_stopping(). */
void tarn_loop_stop(tarn_loop *loop);
bool tarn_loop_stopping(const tarn_loop *loop);
void tarn_loop_destroy(tarn_loop *loop);
tarn_loop *tarn_loop_current(void); /* the loop whose thread this is, or NULL */
tarn_io_backend tarn_loop_backend(const tarn_loop *loop);
/* Why the ring was refused, for the one log line ("io_uring_setup: Operation not permitted"); "" when it was not. */
const char *tarn_io_uring_refusal(void);

/* A piece of work for the loop's thread; the node belongs to the caller until fn runs. Any thread may post. */
typedef struct tarn_post {
    struct tarn_post *next;
    void (*fn)(struct tarn_post *self);
} tarn_post;
void tarn_loop_post(tarn_loop *loop, tarn_post *post);

/* ------------------------------------------------------------------ fibers */
typedef struct tarn_fiber tarn_fiber;
/* On the loop's own thread (or before the loop runs). The fiber starts in the loop's next turn. */
tarn_err tarn_fiber_spawn(tarn_loop *loop, void (*fn)(void *arg), void *arg, const char *name);
/* From any thread. */
tarn_err tarn_fiber_spawn_remote(tarn_loop *loop, void (*fn)(void *arg), void *arg, const char *name);
tarn_fiber *tarn_fiber_current(void); /* NULL outside a fiber */
tarn_loop *tarn_fiber_loop(const tarn_fiber *f);
/* Gives the thread back until somebody wakes the fiber. A wake that came first makes the next park return at once (one
 * wake is remembered). Always park in a loop that checks the condition. */
void tarn_fiber_park(void);
/* As above, but at most until deadline_ns (tarn_mono_ns scale); true when it was the deadline that ended it. */
bool tarn_fiber_park_until(uint64_t deadline_ns);
void tarn_fiber_wake(tarn_fiber *f);        /* on the loop's thread */
void tarn_fiber_wake_remote(tarn_fiber *f); /* any thread; the fiber must outlive the call's effect */
void tarn_fiber_yield(void);                /* lets the others run */
/* Parks; in a plain thread without a loop it sleeps. */
void tarn_sleep_ms(uint64_t ms);
/* Runs fn(arg) on the loop's helper threads and parks meanwhile: for what would block the loop (DNS, long hashing). */
void tarn_fiber_offload(void (*fn)(void *arg), void *arg);

/* A lock for fibers of one loop that is held across parks; first come, first served. */
typedef struct tarn_fiber_lock {
    tarn_fiber *owner;
    tarn_link waiters;
} tarn_fiber_lock;
void tarn_fiber_lock_init(tarn_fiber_lock *l);
void tarn_fiber_lock_acquire(tarn_fiber_lock *l);
void tarn_fiber_lock_release(tarn_fiber_lock *l);

/* ------------------------------------------------------------------ file systems: the seam to the drives */
/*
 * Every function returns 0 or a byte count, or a negative errno. All are synchronous; the loop makes them asynchronous
 * for the real file system. `handle` is the back end's own (a descriptor for the real one).
 */
typedef struct tarn_fs tarn_fs;
struct tarn_op;
typedef struct tarn_fs_stat {
    uint64_t size_bytes;
    uint64_t allocated_bytes;
    int64_t mtime_ms;
    bool is_dir;
    bool nameless; /* an open file that was deleted: what is written to it goes with its last handle */
} tarn_fs_stat;
typedef struct tarn_fs_space {
    uint64_t total_bytes;
    uint64_t free_bytes; /* to a normal user */
} tarn_fs_space;
struct tarn_fs {
    const char *name;
    bool real;                                                                        /* handles are descriptors that io_uring can use */
    int (*open)(tarn_fs *fs, const char *path, int flags, int mode, int64_t *handle); /* flags of open(2) */
    int (*close)(tarn_fs *fs, int64_t handle);
    int64_t (*pread)(tarn_fs *fs, int64_t handle, void *buf, size_t n, uint64_t off);
    int64_t (*pwrite)(tarn_fs *fs, int64_t handle, const void *buf, size_t n, uint64_t off);
    int (*sync)(tarn_fs *fs, int64_t handle, bool data_only);
    int (*truncate)(tarn_fs *fs, int64_t handle, uint64_t size_bytes);
    int (*allocate)(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n); /* extends the file */
    int (*punch)(tarn_fs *fs, int64_t handle, uint64_t off, uint64_t n);    /* keeps the size */
    int (*fstat)(tarn_fs *fs, int64_t handle, tarn_fs_stat *out);
    int (*stat)(tarn_fs *fs, const char *path, tarn_fs_stat *out);
    int (*unlink)(tarn_fs *fs, const char *path);
    int (*rename)(tarn_fs *fs, const char *from, const char *to);
    int (*mkdir)(tarn_fs *fs, const char *path, int mode);
    int (*sync_dir)(tarn_fs *fs, const char *path);
    /* Calls back for every name but "." and ".."; stops when fn returns false. */
    int (*list)(tarn_fs *fs, const char *path, bool (*fn)(void *ctx, const char *name, bool is_dir), void *ctx);
    int (*space)(tarn_fs *fs, const char *path, tarn_fs_space *out);
    int (*lock)(tarn_fs *fs, int64_t handle); /* exclusive, not waiting: -EWOULDBLOCK when taken */
    /* Simulated ones may say which of the n operations that wait in a loop (linked by next) runs now; n: none in this turn.
     * NULL: in the order in which they were submitted. */
    size_t (*pick)(tarn_fs *fs, const struct tarn_op *first, size_t n);
};
tarn_fs *tarn_fs_posix(void); /* the real one; one for the process */

/* ------------------------------------------------------------------ files */
/* A file in use. Counted: tarn_file_ref/unref; the last unref closes (on any thread). */
typedef struct tarn_file tarn_file;
/* Synchronous: for start-up, the SQLite VFS, and rare operations. Returns negative errno or 0. */
int tarn_file_open_sync(tarn_fs *fs, const char *path, int flags, int mode, tarn_file **out);
tarn_file *tarn_file_ref(tarn_file *f);
void tarn_file_unref(tarn_file *f); /* NULL is fine */
tarn_fs *tarn_file_fs(const tarn_file *f);
int64_t tarn_file_handle(const tarn_file *f);
/* Whole transfers (short ones are continued); negative errno or the count, which is < n only at the end of the file. */
int64_t tarn_file_pread_sync(tarn_file *f, void *buf, size_t n, uint64_t off);
int64_t tarn_file_pwrite_sync(tarn_file *f, const void *buf, size_t n, uint64_t off);

/* ------------------------------------------------------------------ asynchronous operations */
typedef enum tarn_opcode {
    TARN_OP_READ,
    TARN_OP_WRITE,
    TARN_OP_SYNC,     /* fdatasync */
    TARN_OP_OPEN,     /* path, flags, mode → *file_out */
    TARN_OP_UNLINK,   /* path */
    TARN_OP_ALLOCATE, /* off, len */
    TARN_OP_PUNCH,    /* off, len */
    TARN_OP_SYNC_DIR, /* path */
    TARN_OP_MKDIR     /* path, mode */
} tarn_opcode;

/*
 * One operation. The caller owns it and every buffer it names until `done` has been called (always on the loop's
 * thread). Short transfers are continued by the loop. result: bytes or 0, or a negative errno; a READ may come back
 * short only at the end of the file.
 */
typedef struct tarn_op {
    tarn_opcode code;
    tarn_fs *fs; /* for operations by path */
    tarn_file *file;
    const char *path;
    int flags, mode;
    void *buf;
    size_t len;
    uint64_t off;
    tarn_file **file_out;
    void (*done)(struct tarn_op *op);
    void *ctx;
    /* out */
    int64_t result;
    bool finished;
    /* the loop's own */
    struct tarn_op *next;
    size_t moved;
    void *loop_private;
    tarn_loop *loop;
} tarn_op;

/* Queues n operations on the current loop; they start together, in no order. */
void tarn_op_submit(tarn_op *ops, size_t n);

/*
 * For fibers: a batch of operations on the heap or in a longer-lived struct that can be waited for in part. The batch
 * stays alive until every operation has finished (tarn_batch_release waits for nobody: it hands the batch to the loop).
 */
typedef struct tarn_batch tarn_batch;
tarn_batch *tarn_batch_new(size_t ops_max); /* NULL when out of memory */
tarn_op *tarn_batch_add(tarn_batch *b);     /* zeroed; NULL when full. Fill it in before submit. */
/* Called when the last operation of the batch has finished and the caller has released it, right before the batch is freed:
 * to free buffers. Optional. On the loop's thread; from within tarn_batch_release when nothing is in flight. */
void tarn_batch_on_end(tarn_batch *b, void (*fn)(void *ctx), void *ctx);
void tarn_batch_submit(tarn_batch *b);
/*
 * Parks until at least `need` operations have succeeded (result >= 0), or all have finished, or the deadline passed.
 * Returns the number that have succeeded so far. May be called again with a larger need.
 */
size_t tarn_batch_wait(tarn_batch *b, size_t need, uint64_t deadline_ns);
size_t tarn_batch_count(const tarn_batch *b);
const tarn_op *tarn_batch_op(const tarn_batch *b, size_t i);
void tarn_batch_release(tarn_batch *b); /* the caller's reference; NULL is fine */

/*
 * What the page cache has of a file, at once and without waiting: true when all n bytes were read. Never true for a file
 * that isn't of the real file system, or that was opened with O_DIRECT.
 */
bool tarn_file_read_cached(tarn_file *f, void *buf, size_t n, uint64_t off);
/* One operation at a time, parking the fiber (in a plain thread they run synchronously). Negative errno or count. */
int64_t tarn_file_read(tarn_file *f, void *buf, size_t n, uint64_t off);
int64_t tarn_file_write(tarn_file *f, const void *buf, size_t n, uint64_t off);
int tarn_file_sync(tarn_file *f);
int tarn_file_open(tarn_fs *fs, const char *path, int flags, int mode, tarn_file **out);
int tarn_fs_unlink(tarn_fs *fs, const char *path);

/* ------------------------------------------------------------------ sockets (TCP, non-blocking, fibers only) */
typedef struct tarn_sock tarn_sock;
typedef struct tarn_addr {
    struct sockaddr_storage ss;
    socklen_t len;
} tarn_addr;
/* "host:port", ":port", "[v6]:port"; host may be a name of this machine. ":9000" is every address (v6 and v4). */
tarn_err tarn_addr_parse(tarn_str text, tarn_addr *out);
void tarn_addr_format(const tarn_addr *a, tarn_sb *out);
bool tarn_addr_is_loopback(const tarn_addr *a);

/* Makes a listening descriptor (SO_REUSEADDR, SO_REUSEPORT when reuse_port, non-blocking, backlog). */
tarn_err tarn_listen(const tarn_addr *addr, bool reuse_port, int backlog, int *fd_out, int *errno_out);
/* The loop accepts on fd (which it then owns) and calls on_accept on its thread for each connection, which owns sock. */
typedef struct tarn_acceptor tarn_acceptor;
tarn_err tarn_accept_start(tarn_loop *loop, int fd, void (*on_accept)(void *ctx, tarn_sock *sock, const tarn_addr *peer), void *ctx,
                           tarn_acceptor **out);
void tarn_accept_pause(tarn_acceptor *a, bool paused); /* back-pressure: too many connections */
void tarn_accept_stop(tarn_acceptor *a);               /* closes the listening descriptor */

/* Wraps a connected descriptor for the current loop. */
tarn_err tarn_sock_attach(tarn_loop *loop, int fd, tarn_sock **out);
/* At least one byte unless the peer closed (*got = 0). TIMED_OUT past the deadline, CLOSED on a reset. */
tarn_err tarn_sock_recv(tarn_sock *s, void *buf, size_t n, uint64_t deadline_ns, size_t *got);
/* As recv, but returns at once with *got = 0 and TARN_E_CONFLICT when nothing is there. */
tarn_err tarn_sock_recv_now(tarn_sock *s, void *buf, size_t n, size_t *got);
/* All of it, or an error. `more`: a further send follows at once (MSG_MORE). iov is changed. */
tarn_err tarn_sock_sendv(tarn_sock *s, struct iovec *iov, size_t iov_n, bool more, uint64_t deadline_ns);
tarn_err tarn_sock_send(tarn_sock *s, const void *buf, size_t n, bool more, uint64_t deadline_ns);
bool tarn_sock_peer_gone(tarn_sock *s); /* a close or reset of the peer has been seen; never parks */
/* A fiber that is parked on the socket is woken with CLOSED: for the drain at shutdown. On the loop's thread. */
void tarn_sock_interrupt(tarn_sock *s);
void tarn_sock_close(tarn_sock *s); /* NULL is fine */
int tarn_sock_fd(const tarn_sock *s);

/* ------------------------------------------------------------------ the simulated file system (tests) */
/*
 * Drives in memory, "/d0", "/d1", …; a machine that loses power; faults that come from one seed. Calls move the fake clock.
 *
 * What is durable, and nothing more than that: bytes and size of a file after a sync of it that succeeded; a name that was
 * made or removed after a sync_dir of its folder. A power cut leaves of the rest a subset: of every unsynced write each
 * 512-byte sector came through or did not; of truncations, allocations and holes of a file a first part of them in their
 * order (and no write beyond a truncation that did not); of each folder's changes a first part. After a sync that failed
 * what was written before is what chance left of it: it counts as clean, a later sync brings none of it back.
 */
typedef struct tarn_sim tarn_sim;
typedef struct tarn_sim_options {
    uint64_t seed;
    size_t drives_n; /* 1 … TARN_SIM_DRIVES_MAX */
    uint64_t drive_bytes;
    const char *lie_sync; /* canaries: syncs of files whose path has this text do nothing and succeed; NULL: none */
    bool lie_sync_dir;
    bool trace; /* every call goes to the log */
} tarn_sim_options;
#define TARN_SIM_DRIVES_MAX 32

/* Faults of a drive, each met by a call with the given probability. */
#define TARN_SIM_READ_FAILS 1u    /* -EIO */
#define TARN_SIM_READ_CORRUPTS 2u /* other bytes than were written, this once */
#define TARN_SIM_WRITE_FAILS 4u   /* -EIO; a part may have been written */
#define TARN_SIM_WRITE_LOST 8u    /* success, and nothing was written */
#define TARN_SIM_WRITE_STRAYS 16u /* success, and it was written somewhere else on the drive */
#define TARN_SIM_SYNC_FAILS 32u
#define TARN_SIM_OPEN_FAILS 64u /* and other calls by name */
#define TARN_SIM_FULL 128u      /* -ENOSPC for what needs space */
#define TARN_SIM_READ_ONLY 256u /* -EROFS */
#define TARN_SIM_SLOW 512u      /* the call takes seconds */
#define TARN_SIM_GONE 1024u     /* everything fails, whatever the probability */
typedef struct tarn_sim_fault {
    unsigned faults;      /* TARN_SIM_… */
    unsigned per_mille;   /* of the calls */
    const char *path_has; /* only files whose path has this text, for reads, writes and syncs; NULL: all */
} tarn_sim_fault;

tarn_sim *tarn_sim_new(const tarn_sim_options *opt);
void tarn_sim_free(tarn_sim *s);
tarn_fs *tarn_sim_fs(tarn_sim *s);
void tarn_sim_reseed(tarn_sim *s, uint64_t seed);
void tarn_sim_set_fault(tarn_sim *s, size_t drive, const tarn_sim_fault *fault); /* NULL: healthy again */
/* The power goes with the nth call from now that changes something (0: never): from then on every call fails. */
void tarn_sim_cut_after(tarn_sim *s, uint64_t nth);
void tarn_sim_cut_now(tarn_sim *s);
bool tarn_sim_power_lost(const tarn_sim *s);
/* The machine starts again: see above for what is left. Handles of before stay dead until they are closed. */
void tarn_sim_power_on(tarn_sim *s);
void tarn_sim_replace_drive(tarn_sim *s, size_t drive); /* by an empty one */
void tarn_sim_unplug_drive(tarn_sim *s, size_t drive);  /* GONE, losing what was not synced */
/* Flips bits in up to n sectors of the drive's files whose path has the text (NULL: any). How many it found. */
size_t tarn_sim_damage(tarn_sim *s, size_t drive, const char *path_has, size_t n);
size_t tarn_sim_open_files(const tarn_sim *s, const char **path); /* how many; one of them (path may be NULL) */
/* Makes the nth call from now of these kinds fail once with this errno; nth 0: none. */
#define TARN_SIM_CALL_OPEN 1u /* and other calls by name */
#define TARN_SIM_CALL_READ 2u
#define TARN_SIM_CALL_WRITE 4u /* and truncate, allocate, punch */
#define TARN_SIM_CALL_SYNC 8u  /* and sync_dir */
void tarn_sim_fail_nth(tarn_sim *s, unsigned kinds, uint64_t nth, int errno_value);
uint64_t tarn_sim_calls(const tarn_sim *s, unsigned kinds); /* so far */
uint64_t tarn_sim_hash(const tarn_sim *s);                  /* of all calls and their results: the same for the same run */

#endif
