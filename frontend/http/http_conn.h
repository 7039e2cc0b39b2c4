/* frontend/http/http_conn.h - one client connection: its deadlines, and whether the client is still
 * there.
 *
 * libmicrohttpd knows only one limit, idle time, and does not watch a suspended connection at all.
 * So each connection has a timer of ours, and a watch in our own epoll set for "the other side has
 * closed". The watch is edge-triggered and set once, so it costs no system call per request. Owned
 * by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_CONN_H
#define CN_FRONTEND_HTTP_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"

struct cn_http_listener;
struct cn_http_request;

enum cn_http_phase {
    CN_PHASE_HEADERS, /* the request line or headers are coming, or nothing has come yet */
    CN_PHASE_BODY,
    CN_PHASE_PARKED, /* the server works on the request: the client has no deadline */
    CN_PHASE_WRITE,
    CN_PHASE_IDLE, /* between two requests */
};

struct cn_http_conn {
    uint32_t magic;
    int fd;
    struct cn_http_listener *listener;
    struct cn_http_request *request; /* in progress; NULL between requests */
    struct cn_list link;             /* in the listener's list of connections */
    struct cn_watch watch;
    struct cn_timer timer;
    uint64_t phase_ms; /* loop time at which the phase began */
    uint8_t phase;     /* enum cn_http_phase */
    bool peer_closed;  /* the client has closed at least its sending side */
    bool discards;     /* the request was refused while the client may still send */
    bool surplus;      /* above --max-connections: its first request is refused */
    bool looked_at;    /* TLS: the first byte has been looked at */
    bool plain;        /* TLS: the client sent plain HTTP and is refused */
    bool unproven;     /* TLS: no request has come yet, maybe not even a handshake */
    char client[64];   /* the client's address for the access log; empty: not wanted or not known */
};

/* Makes the record of a connection that was accepted. `tls_session`: its gnutls_session_t, or NULL
 * for plain HTTP. Never returns NULL. */
struct cn_http_conn *cn_http_conn_open(struct cn_http_listener *listener, int fd,
                                       void *tls_session);
/* Frees the record. libmicrohttpd calls back for this just before it closes the descriptor. */
void cn_http_conn_close(struct cn_http_conn *conn);
struct cn_http_conn *cn_http_conn_cast(void *conn);

/* The connection's first request has come, so a TLS client has done its handshake. Calls after the
 * first one do nothing. */
void cn_http_conn_proven(struct cn_http_conn *conn);
/* Begins a phase, or begins the present one again, which renews its deadline. Costs two stores. */
void cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase);
/* Shuts the socket down; libmicrohttpd then sees its end and closes it. `why` is for the log. */
void cn_http_conn_cut(struct cn_http_conn *conn, const char *why);

#endif
