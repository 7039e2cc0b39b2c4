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
#include "core/memory/buf.h"
#include "frontend/guard/http_strict.h"
#include "frontend/guard/library_calls.h"

struct cn_client_address;
struct cn_http_certificate;
struct cn_http_listener;
struct cn_http_request;
struct cn_ws_stream;

enum cn_http_phase {
    CN_PHASE_HEADERS, /* the request line or headers are coming, or nothing has come yet */
    CN_PHASE_BODY,
    CN_PHASE_PARKED, /* the server works on the request: the client has no deadline */
    CN_PHASE_WRITE,
    CN_PHASE_IDLE,     /* between two requests */
    CN_PHASE_UPGRADED, /* it is a WebSocket, which has its own times */
};

/* A connection that was upgraded. Its owner calls `end` once; the socket is closed soon then. */
struct cn_http_upgrade {
    struct cn_http_conn *conn;
    void *handle; /* libmicrohttpd's */
    void (*end)(const struct cn_http_upgrade *upgrade);
};

struct cn_http_conn {
    uint32_t magic;
    int fd;
    struct cn_http_listener *listener;
    struct cn_http_request *request; /* in progress; NULL between requests */
    struct cn_ws_stream *stream;     /* if it has become a WebSocket; else NULL */
    struct cn_list link;             /* in the listener's list of connections */
    struct cn_watch watch;
    struct cn_timer timer;
    struct cn_http_reader reader;
    struct cn_buf head_text; /* headers of the present answer that libmicrohttpd does not know */
    struct cn_http_strict strict; /* looks at all bytes before libmicrohttpd does */
    struct cn_list refused_link;  /* in the listener's list while a byte of the client is refused */
    uint64_t n_requests;          /* that libmicrohttpd has begun to handle */
    struct cn_client_address *from;
    struct cn_http_certificate *certificate; /* of the client; NULL: it was not looked at yet */
    uint64_t looked_ms, counted; /* when the timer last looked at the rate, and what it saw */
    uint64_t phase_ms;           /* loop time at which the phase began */
    uint8_t phase;               /* enum cn_http_phase */
    bool peer_closed;            /* the client has closed at least its sending side */
    bool discards;               /* the request was refused while the client may still send */
    bool surplus;                /* above --max-connections: its first request is refused */
    uint8_t rate_phase;          /* the phase in which it looked */
    bool was_waiting;            /* bytes waited for the client then */
    bool told;                   /* the client was told what is wrong with its bytes */
    bool looked_at;              /* TLS: the first byte has been looked at */
    bool plain;                  /* TLS: the client sent plain HTTP and is refused */
    bool unproven;               /* TLS: no request has come yet, maybe not even a handshake */
    bool is_sending;             /* TLS: the session has bytes that the socket did not take */
    bool is_ending;              /* TLS: it was a WebSocket, and libmicrohttpd ends it */
    char client[64]; /* the client's address for the access log; empty: not wanted or not known */
};

/* Makes the record of a connection that was accepted. `tls_session`: its gnutls_session_t, or NULL
 * for plain HTTP. `from` is given back when the connection ends. Never returns NULL. */
struct cn_http_conn *cn_http_conn_open(struct cn_http_listener *listener, int fd, void *tls_session,
                                       struct cn_client_address *from);
/* Frees the record. libmicrohttpd calls back for this just before it closes the descriptor. */
void cn_http_conn_close(struct cn_http_conn *conn);
struct cn_http_conn *cn_http_conn_cast(void *conn);

/* The connection's first request has come, so a TLS client has done its handshake. Calls after the
 * first one do nothing. */
void cn_http_conn_proven(struct cn_http_conn *conn);
/* Begins a phase, or begins the present one again, which renews its deadline. Costs two stores. */
void cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase);
/* Cuts a connection whose client does not take its answer. What the kernel still has for it is
 * dropped, or the client would get that for as long as it likes. */
void cn_http_conn_drop(struct cn_http_conn *conn, const char *why);
/* Tells the clients whose bytes were refused why, when their earlier requests are answered, and
 * ends their connections. Called after each run of libmicrohttpd. */
void cn_http_conn_refuse_all(struct cn_http_listener *listener);
/* The connection speaks another protocol from now on: its bytes are not looked at any more. */
void cn_http_conn_leave_http(struct cn_http_conn *conn);
/* Shuts the socket down; libmicrohttpd then sees its end and closes it. `why` is for the log. */
void cn_http_conn_cut(struct cn_http_conn *conn, const char *why);

#endif
