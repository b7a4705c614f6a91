/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http, private: what the files of the engine share.
 *
 * Ownership: tarn_http owns the pools (buffers, arenas) and outlives every connection of its loop. A connection owns its
 * socket and, while there are bytes in it, its input buffer. A request lives in its arena, which the connection holds
 * from the end of the head until the answer is out. Everything belongs to one loop's thread but `connections`.
 *
 * What an idle connection costs: its fiber and a struct of some hundred bytes. Bytes are received into the loop's one
 * scratch buffer first: a socket's receive writes to memory only in the moment before it returns, so a fiber that is
 * parked in it leaves the scratch buffer to the others.
 */
#ifndef TARN_HTTP_PRIVATE_H
#define TARN_HTTP_PRIVATE_H

#include <stdatomic.h>

#include "http_parse.h"

#define TARN_HTTP_BUFFER_BYTES (TARN_HTTP_HEAD_BYTES_MAX + 4096) /* a whole head, and room to see that it is too large */
#define TARN_HTTP_SCRATCH_BYTES (16 * 1024)
#define TARN_HTTP_POOL_BUFFERS_MAX 64
#define TARN_HTTP_POOL_ARENAS_MAX 64
#define TARN_HTTP_ACCEPTORS_MAX 16
#define TARN_HTTP_CHUNK_LINE_BYTES_MAX 1024 /* size and extension of one chunk */
#define TARN_HTTP_TRAILER_BYTES_MAX 8192    /* all trailer lines together */
#define TARN_HTTP_RESPONSE_HEAD_BYTES_MAX (64 * 1024)
#define TARN_HTTP_SEND_PIECE_BYTES (512 * 1024) /* each must go out within the body timeout */
#define TARN_HTTP_LINGER_BYTES_MAX (8u * 1024 * 1024)
#define TARN_HTTP_LINGER_MS 3000
#define TARN_HTTP_TURNS_MAX 16 /* requests of one connection in a row before the others get their turn */

/* ------------------------------------------------------------------ chunked coding (RFC 9112 §7.1) */
typedef enum tarn_http_chunk_state {
    TARN_HTTP_CHUNK_SIZE,     /* in a size line */
    TARN_HTTP_CHUNK_DATA,     /* `left` bytes of data to come */
    TARN_HTTP_CHUNK_DATA_END, /* the CRLF behind them */
    TARN_HTTP_CHUNK_TRAILER,  /* lines until the empty one */
    TARN_HTTP_CHUNK_DONE
} tarn_http_chunk_state;

typedef struct tarn_http_chunks {
    tarn_http_chunk_state state;
    uint64_t left;
    size_t trailer_bytes;
} tarn_http_chunks;

/*
 * Looks at in[0..n) and takes what is not data: *used bytes. Ends at data (state DATA), at the end (DONE), or where more input
 * is needed (*used may be 0 then). A line is taken whole or not at all. Error: HTTP_BAD_REQUEST.
 */
tarn_err tarn_http_chunks_step(tarn_http_chunks *c, const char *in, size_t n, size_t *used);

/* ------------------------------------------------------------------ connection */
typedef struct tarn_http_conn {
    tarn_link link; /* in tarn_http.conns; first */
    tarn_http *http;
    tarn_post post; /* handing over between threads */
    tarn_sock *sock;
    tarn_addr peer;
    int fd;   /* handed over, not attached yet; else -1 */
    char *in; /* pool buffer; NULL when there is nothing in it */
    size_t pos, end;
    bool idle;   /* no request is complete: a drain may end it */
    bool broken; /* the socket failed: nothing more is sent */
    bool cut;    /* close by reset: the peer must not take what it got for the whole */
    unsigned turns;
} tarn_http_conn;

/* ------------------------------------------------------------------ engine */
struct tarn_http {
    tarn_loop *loop;
    tarn_http_options opt;
    tarn_link conns;
    atomic_uint connections; /* read by other threads to place new ones */
    unsigned busy;
    bool draining;
    bool paused;
    tarn_acceptor *acceptors[TARN_HTTP_ACCEPTORS_MAX];
    size_t acceptors_n;
    char *scratch;
    char *buffers[TARN_HTTP_POOL_BUFFERS_MAX];
    size_t buffers_n;
    tarn_arena *arenas[TARN_HTTP_POOL_ARENAS_MAX];
    size_t arenas_n;
    uint64_t id_state;
    int64_t date_s;   /* the second that `common` was made in */
    char common[160]; /* "\r\nServer: …\r\nDate: …\r\nx-amz-request-id: " */
    size_t common_n;
};

/* ------------------------------------------------------------------ request */
typedef enum tarn_http_answer {
    TARN_HTTP_ANSWER_NONE,
    TARN_HTTP_ANSWER_BODY, /* begun; body to come */
    TARN_HTTP_ANSWER_DONE
} tarn_http_answer;

struct tarn_req {
    tarn_http *http;
    tarn_http_conn *conn;
    tarn_arena *arena;
    tarn_http_head head;
    tarn_auth_view view;
    int64_t time_ms;
    uint64_t start_ns;
    char id[17];
    const char *operation;
    tarn_str access_key;
    /* query, parsed at first use */
    tarn_param *params;
    size_t params_n;
    bool params_parsed, params_ok;
    /* body */
    uint64_t body_left; /* of a Content-Length */
    tarn_http_chunks chunks;
    bool body_done;
    bool body_broken;
    bool expect_pending; /* 100 Continue was asked for and not sent */
    uint64_t received_bytes;
    /* answer */
    tarn_http_answer answer;
    tarn_sb headers; /* lines of the handler's own headers, in the arena */
    bool headers_failed;
    bool is_head;
    bool close_after;
    bool chunked_out;
    bool head_unsent; /* begin() was called; the head goes out with the first write */
    int status;
    uint64_t out_left;
    uint64_t sent_bytes;
};

/* conn.c */
void tarn_http_conn_start(tarn_http *h, tarn_sock *sock, const tarn_addr *peer); /* takes sock in any case */
/* Receives into the connection's buffer (taken from the pool at need), at least one byte; CLOSED at the peer's end. */
tarn_err tarn_http_conn_fill(tarn_http_conn *c, uint64_t deadline_ns);
void tarn_http_conn_consume(tarn_http_conn *c, size_t n); /* gives the buffer back when it is empty */

/* http.c */
char *tarn_http_buffer_take(tarn_http *h); /* NULL when out of memory */
void tarn_http_buffer_give(tarn_http *h, char *buffer);
tarn_arena *tarn_http_arena_take(tarn_http *h);
void tarn_http_arena_give(tarn_http *h, tarn_arena *a);
tarn_str tarn_http_common_headers(tarn_http *h, int64_t now_ms);
void tarn_http_conn_gone(tarn_http *h); /* a connection has ended: accept again */

/* body.c */
void tarn_http_body_begin(tarn_req *r);
/* After the answer: brings the connection to the next request. False: it must be closed. */
bool tarn_http_body_drain(tarn_req *r);
/* Will the connection have to be closed after an answer that is given now? */
bool tarn_http_body_hopeless(const tarn_req *r);

/* response.c */
const char *tarn_http_reason(int status);

static inline uint64_t tarn_http_deadline(uint64_t ms)
{
    return tarn_mono_ns() + ms * 1000000u;
}

#endif
