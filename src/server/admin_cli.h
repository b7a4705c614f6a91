/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tarn admin`: admin_cli.c has the commands, admin_client.c speaks to a running daemon.
 */
#ifndef TARN_ADMIN_CLI_H
#define TARN_ADMIN_CLI_H

#include "server.h"

#define ADMIN_ANSWER_BYTES_MAX (4u * 1024 * 1024)

typedef struct admin_client {
    tarn_arena *arena;
    tarn_str authority; /* HOST:PORT */
    tarn_addr addr;
    tarn_str access_key, secret_key, region;
} admin_client;

/* Address and credentials as the daemon of this environment has them; url NULL: on loopback. */
tarn_exit admin_client_open(admin_client *c, tarn_server *s, const char *url);

typedef struct admin_answer {
    int status;
    tarn_str body; /* in the arena, unless sink took it */
} admin_answer;
/* One exchange. sink (may be NULL) gets the body of a 200 in pieces instead; its false ends the transfer. */
tarn_exit admin_client_ask(admin_client *c, const char *method, tarn_str target, bool (*sink)(void *ctx, tarn_str piece), void *ctx,
                           admin_answer *out);

/* credentials.c: what a client of this environment's daemon signs with; minioadmin when nothing is set. */
tarn_exit tarn_client_credentials(tarn_server *s, tarn_str *access_key, tarn_str *secret_key);
/* health.c: where this environment's daemon listens, as HOST:PORT. */
tarn_str tarn_client_authority(tarn_arena *arena, tarn_str address);

#endif
