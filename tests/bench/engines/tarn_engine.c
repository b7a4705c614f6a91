/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn's HTTP engine alone, on one thread: GET answers 4 KiB from memory, PUT reads its body and answers. What a daemon built
 * on it can reach at most. With "park" every request parks once, as one does that waits for a drive.
 * Usage: tarn_engine PORT [park]
 */
#include "tarn/http.h"

#include <stdio.h>
#include <string.h>

static uint8_t content[4096];
static bool park;

static void handle(void *ctx, tarn_req *r)
{
    uint8_t body[65536];
    size_t got = 1;
    (void)ctx;
    while (got > 0)
        if (tarn_req_read(r, body, sizeof body, &got) != TARN_OK)
            return;
    if (park)
        tarn_fiber_yield();
    bool get = tarn_str_eqc(tarn_req_method(r), "GET");
    (void)tarn_resp_send(r, 200, (tarn_str){(const char *)content, get ? sizeof content : 0});
}

static void edge_error(void *ctx, tarn_req *r, tarn_err e, const char *message)
{
    (void)ctx;
    (void)message;
    (void)tarn_resp_send(r, tarn_err_get(e)->http_status, TARN_STR_NULL);
}

int main(int argc, char **argv)
{
    tarn_addr addr;
    tarn_loop *loop;
    tarn_http *http;
    tarn_http_options o = {.handler = handle, .edge_error = edge_error, .connections_max = 4096, .server_name = "bench"};
    tarn_loop_options lo = {.backend = TARN_IO_AUTO, .name = "bench"};
    int fd, en;
    char text[32];
    tarn_sb b;
    if (argc < 2)
        return 2;
    park = argc > 2 && strcmp(argv[2], "park") == 0;
    tarn_sb_init_fixed(&b, text, sizeof text);
    tarn_sb_cstr(&b, "127.0.0.1:");
    tarn_sb_cstr(&b, argv[1]);
    if (tarn_addr_parse(tarn_sb_view(&b), &addr) != TARN_OK || tarn_loop_create(&lo, &loop) != TARN_OK ||
        tarn_http_new(loop, &o, &http) != TARN_OK || tarn_listen(&addr, false, 512, &fd, &en) != TARN_OK ||
        tarn_http_listen(http, fd) != TARN_OK)
        return 1;
    tarn_loop_run(loop);
    return 0;
}
