/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server, private: the process and its parts.
 *
 * Threads: the main thread starts everything, then accepts connections, gives each to the worker with the fewest, and
 * takes signals. Each worker is a thread with a loop and an HTTP engine. What is shared by all (store, auth, s3, iceberg,
 * admin) is made before the workers start and freed after they have ended.
 */
#ifndef TARN_SERVER_H
#define TARN_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "options.h"
#include "tarn/admin.h"
#include "tarn/iceberg.h"
#include "tarn/s3.h"

#define TARN_ADDRESSES_MAX 8
#define TARN_WORKERS_MAX 256
#define TARN_DRAIN_MS 30000
#define TARN_CUT_MS 1000   /* for what is cut off to come to its end */
#define TARN_GRACE_MS 3000 /* for background work, once the loops are told to stop */
#define TARN_LISTEN_BACKLOG 4096
#define TARN_CONNECTIONS_DEFAULT_MAX 65536
#define TARN_FILES_RESERVED 384 /* descriptors that are not connections: drives, database, logs, rings */
#define TARN_FILES_MIN 512
#define TARN_CREDENTIAL_FILE_BYTES_MAX 4096

typedef struct tarn_server tarn_server;

typedef struct tarn_worker {
    tarn_server *server;
    unsigned index;
    char name[16];
    pthread_t thread;
    bool started;
    tarn_loop *loop;
    tarn_http *http;
    tarn_err err;
    atomic_int state; /* 0 starting, 1 running, 2 failed, 3 ended */
    tarn_post drain;
} tarn_worker;

struct tarn_server {
    tarn_arena *arena;
    tarn_options opt;
    tarn_addr addresses[TARN_ADDRESSES_MAX];
    int listeners[TARN_ADDRESSES_MAX];
    size_t addresses_n;
    unsigned connections_max;
    tarn_store *store;
    tarn_auth *auth;
    tarn_s3 *s3;
    tarn_iceberg *iceberg;
    tarn_admin *admin;
    tarn_worker *workers;
    unsigned workers_n;
    tarn_str root_user; /* for the start lines; never the password */
    bool default_credentials;
    bool human; /* somebody looks at a terminal */
};

/* dispatch.c: what the HTTP engine calls; ctx is the server. */
void tarn_server_handle(void *ctx, tarn_req *r);
void tarn_server_edge_error(void *ctx, tarn_req *r, tarn_err e, const char *message);

/* setup.c: each returns an exit status, and has said what is wrong and what to do. */
tarn_exit tarn_setup_limits(tarn_server *s);
tarn_exit tarn_setup_addresses(tarn_server *s); /* parses and binds */
tarn_exit tarn_setup_store(tarn_server *s);
tarn_exit tarn_setup_apis(tarn_server *s);
void tarn_setup_undo(tarn_server *s); /* the database is checkpointed here */

/* credentials.c */
tarn_exit tarn_setup_credentials(tarn_server *s);

/* workers.c */
tarn_exit tarn_workers_start(tarn_server *s);
tarn_worker *tarn_workers_idlest(tarn_server *s);
unsigned tarn_workers_connections(const tarn_server *s);
void tarn_workers_drain(tarn_server *s); /* asks them, does not wait; the second time it cuts off */
void tarn_workers_stop(tarn_server *s);  /* ends the loops and joins their threads */
void tarn_workers_free(tarn_server *s);  /* after tarn_setup_undo */

/* accept.c: accepts and takes signals until the process is to end. */
void tarn_serve(tarn_server *s, int signals_fd);
int tarn_signals_open(void); /* before any thread is started; -1 */

/* notify.c: systemd's protocol; nothing where there is no systemd. */
void tarn_notify(const char *text);

/* banner.c */
void tarn_banner(const tarn_server *s);
void tarn_server_url(const tarn_server *s, tarn_sb *b); /* how a client on this machine reaches it */

/* health.c: `tarn health`; the words behind it. */
#define TARN_HEALTH_USAGE "tarn health [[--url] URL]"
tarn_exit tarn_health_command(int words_n, char *const *words);

/* server.c: `tarn server …` */
tarn_exit tarn_server_command(int words_n, char *const *words);

/* admin_cli.c: `tarn admin …` */
tarn_exit tarn_admin_command(int words_n, char *const *words);
void tarn_admin_help_render(tarn_sb *b);

/* A line on standard error for the person who started us, and the status. */
tarn_exit tarn_complain(tarn_exit status, const char *fmt, ...) TARN_PRINTF(2, 3);

#endif
