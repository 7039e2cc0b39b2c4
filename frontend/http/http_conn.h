/* frontend/http/http_conn.h - one client connection: its deadlines, and whether the client is still
 * there.
 *
 * libmicrohttpd knows only idle time, and nothing at all of a suspended connection. So each
 * connection has a timer of ours and a watch for "the other side closed" in our own epoll set, set
 * once and edge-triggered: it costs no system call per request. Owned by the loop thread.
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
    CN_PHASE_HEADERS, /* a request line or headers are coming, or nothing came yet */
    CN_PHASE_BODY,
    CN_PHASE_PARKED, /* we work on it: no deadline for the client */
    CN_PHASE_WRITE,
    CN_PHASE_IDLE, /* between two requests */
};

struct cn_http_conn {
    uint32_t magic;
    int fd;
    struct cn_http_listener *listener;
    struct cn_http_request *request; /* in progress; NULL between requests */
    struct cn_list link;             /* listener's */
    struct cn_watch watch;
    struct cn_timer timer;
    uint64_t phase_ms; /* when the phase began */
    uint8_t phase;     /* enum cn_http_phase */
    bool peer_closed;  /* at least its sending side */
    bool discards;     /* refused while the client may still send */
    bool surplus;      /* over --max-connections: its first request is refused */
    bool looked_at;    /* TLS: its first byte was */
    bool plain;        /* TLS: that was none of a handshake; refused */
    bool unproven;     /* TLS: no request came yet, maybe not even a handshake */
    char client[64];   /* address for the access log; empty: not wanted, or not known */
};

/* A connection was accepted. `tls_session`: its gnutls_session_t, NULL for plain HTTP. Never
 * NULL. */
struct cn_http_conn *cn_http_conn_open(struct cn_http_listener *listener, int fd,
                                       void *tls_session);
/* Before the descriptor is closed; frees it. */
void cn_http_conn_close(struct cn_http_conn *conn);
struct cn_http_conn *cn_http_conn_cast(void *conn);

/* Its first request is there: it speaks TLS if it must. Harmless afterwards. */
void cn_http_conn_proven(struct cn_http_conn *conn);
/* Begins a phase, or the same one again. Costs two stores. */
void cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase);
/* Shuts the socket down; libmicrohttpd then sees its end. */
void cn_http_conn_cut(struct cn_http_conn *conn, const char *why);

#endif
