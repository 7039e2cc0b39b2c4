/* frontend/http/transport/http_conn.h - one client connection: its socket, its deadlines, and
 * whether the client is still there.
 *
 * A connection belongs to the loop that accepted it. Its watch is edge-triggered and set once, so
 * it costs no system call per request: `is_readable` remembers that there may be bytes which were
 * not read, because the present request is not answered yet.
 */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_HTTP_CONN_H
#define CN_FRONTEND_HTTP_TRANSPORT_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"
#include "core/memory/buf.h"
#include "frontend/http/transport/http_parser.h"

struct cn_client_address;
struct cn_http_certificate;
struct cn_http_listener;
struct cn_http_request;
struct cn_ws_stream;
struct gnutls_session_int;
struct sockaddr;

enum cn_http_phase {
    CN_PHASE_HEADERS, /* the request line or headers are coming, or nothing has come yet */
    CN_PHASE_BODY,
    CN_PHASE_PARKED, /* the server works on the request: the client has no deadline */
    CN_PHASE_WRITE,
    CN_PHASE_IDLE,     /* between two requests */
    CN_PHASE_UPGRADED, /* it is a WebSocket, which has its own times */
};

/* What is still to be sent, in this order. */
struct cn_http_out {
    struct cn_buf kept; /* our copy of bytes that the socket did not take */
    size_t kept_at;     /* bytes of it that were sent */
    struct cn_str body; /* bytes of the answer, which the request owns */
    struct cn_str tail; /* the same, or static */
    bool has_new_head;  /* `kept` is the head of a stream, of which nothing was sent */
};

struct cn_http_conn {
    int fd;
    struct cn_http_listener *listener;
    struct cn_http_request *request; /* in progress; NULL between requests */
    struct cn_ws_stream *stream;     /* if it has become a WebSocket; else NULL */
    struct gnutls_session_int *tls;  /* NULL: plain HTTP */
    struct cn_list link;             /* in the listener's list of connections */
    struct cn_watch watch;
    struct cn_deferred later; /* goes on at the end of the turn */
    struct cn_timer timer;
    struct cn_http_parser parser;
    struct cn_buf in; /* bytes that wait: a part of a head, or what came behind the request */
    size_t in_parsed; /* bytes of `in` that the parser has taken */
    struct cn_http_out out;
    struct cn_client_address *from;
    struct cn_http_certificate *certificate; /* of the client; NULL: it was not looked at yet */
    uint64_t looked_ms, counted; /* when the timer last looked at the rate, and what it saw */
    uint64_t phase_ms;           /* loop time at which the phase began */
    uint8_t phase;               /* enum cn_http_phase */
    uint8_t rate_phase;          /* the phase in which the timer looked */
    bool was_waiting;            /* bytes waited for the client then */
    bool has_more;               /* bytes came behind the present request together with it */
    bool is_readable;            /* the socket, or TLS, may have bytes that were not read */
    bool peer_closed;            /* the client has closed at least its sending side */
    bool failed;                 /* nothing can be sent or read: it ends in this turn */
    bool discards;               /* the request was refused while the client may still send */
    bool surplus;                /* above --max-connections: its first request is refused */
    bool watches_output;         /* something is kept until the socket takes more */
    bool shaking_hands;          /* TLS: the handshake is not done */
    bool was_heard;              /* TLS: the first byte of the client was looked at */
    bool is_drained;             /* TLS: the socket had no byte for GnuTLS at its last read */
    bool is_sending;             /* TLS: the session has bytes that the socket did not take */
    char client[64]; /* the client's address for the access log; empty: not wanted or not known */
};

/* Takes over a connection that was accepted. `from` is given back when it ends. */
void cn_http_conn_open(struct cn_http_listener *listener, int fd, const struct sockaddr *address,
                       struct cn_client_address *from);

/* Begins a phase, or begins the present one again, which renews its deadline. Costs two stores. */
void cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase);
/* Cuts a connection whose client does not take its answer. What the kernel still has for it is
 * dropped, or the client would get that for as long as it likes. */
void cn_http_conn_drop(struct cn_http_conn *conn, const char *why);
/* Ends the connection at the end of this turn. `why` is for the log. */
void cn_http_conn_cut(struct cn_http_conn *conn, const char *why);
/* The server stops: reads once more what the client may have sent, and ends a connection without a
 * request. */
void cn_http_conn_drain(struct cn_http_conn *conn);
/* Lets the connection go on at the end of this turn: it ends if it has failed, and otherwise sends
 * and reads what it can. */
void cn_http_conn_go_on(struct cn_http_conn *conn);

/* Reads like recv() with MSG_DONTWAIT, with or without TLS, and sets errno. For TLS, `len` should
 * be at least 16 KiB, the most that one record can hold. */
ssize_t cn_http_conn_recv(struct cn_http_conn *conn, void *room, size_t len);
/* Writes like send() with MSG_DONTWAIT, with or without TLS, and sets errno. After EAGAIN or EINTR,
 * TLS keeps the bytes that it has encrypted. The next call sends those, whatever its arguments are,
 * and returns how many of the earlier bytes they were. */
ssize_t cn_http_conn_send(struct cn_http_conn *conn, const void *bytes, size_t len);
/* Tells the client that nothing more comes. */
void cn_http_conn_shut(struct cn_http_conn *conn);

#endif
