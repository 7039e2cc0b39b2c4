/* grpc/transport/transport_priv.h - shared by the files of this room. All of it belongs to one
 * loop.
 *
 * The way of a call:
 * 1. connection.c reads the socket (h2_tls.c decrypts) and gives the bytes to nghttp2. Those that
 *    belong to a large message are read to where they stay; nghttp2 does not look at them, and
 *    says where they lie.
 * 2. h2_session.c has nghttp2's callbacks. It collects the metadata of a request (metadata.c),
 *    makes the call when they are complete (call.c), and hands over its data.
 * 3. incoming.c puts messages together and calls the method's on_message.
 * 4. outgoing.c keeps the messages of the answer; trailers.c has the status. nghttp2 is told that
 *    there is something to send.
 * 5. At the end of the turn, sending.c asks nghttp2 for the frames of all calls, which fetches the
 *    messages' bytes, and sends them together (outbox.c).
 *
 * nghttp2's rules, which shape the code: its callbacks must not read or send on the session, so
 * everything is sent at the end of the turn; and a stream's user data are used as long as the
 * stream is open, so a call is not freed before its stream is closed.
 */
#ifndef CN_GRPC_TRANSPORT_TRANSPORT_PRIV_H
#define CN_GRPC_TRANSPORT_TRANSPORT_PRIV_H

#include <gnutls/gnutls.h>
#include <nghttp2/nghttp2.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "core/containers/list.h"
#include "core/memory/buf.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/request_bytes.h"
#include "frontend/intake/unread.h"
#include "grpc/transport/grpc_call.h"
#include "grpc/transport/h2_guard.h"

#define CN_GRPC_PREFIX_BYTES 5 /* before each message: a flag, and its length */
/* What a client may send of one call, and of all calls of a connection, before they are read. */
#define CN_GRPC_STREAM_WINDOW (1u << 20)
#define CN_GRPC_CONNECTION_WINDOW (8u << 20)
/* How many bytes of a connection are put together before they are sent. The client may be woken for
 * each part that it gets, so an answer of 1 MB is cheaper in one part than in four. */
#define CN_GRPC_OUT_BYTES (1024u << 10)
/* What is read at a time, besides bytes that are known to belong to a large message. */
#define CN_GRPC_IN_BYTES (64u << 10)
#define CN_GRPC_IN_FRAME_BYTES (256u << 10) /* the largest frame that a client may send */
#define CN_GRPC_FRAME_BYTES (16384u + 9u)   /* the most that nghttp2 makes at a time */
/* A turn's last frames with data may fill CN_GRPC_OUT_BYTES, and nghttp2 may make one frame of
 * another kind before it returns. */
#define CN_GRPC_OUT_ROOM (CN_GRPC_OUT_BYTES + CN_GRPC_FRAME_BYTES)
/* From this size on, a run of a message's bytes is sent from where it lies. */
#define CN_GRPC_OUT_BORROWED 4096u
#define CN_GRPC_OUT_PARTS (2 * (CN_GRPC_OUT_ROOM / CN_GRPC_OUT_BORROWED) + 1)

/* The frames that are sent together. Their heads and small bytes are copied, and large runs of a
 * message's bytes are borrowed, so no message may be freed before the frames are sent. */
struct cn_grpc_outbox {
    uint8_t *copied; /* CN_GRPC_OUT_ROOM bytes */
    size_t n_copied;
    size_t bytes; /* of all parts; 0: nothing is borrowed either */
    unsigned n_parts;
    bool is_full; /* nghttp2 was told to go on when these frames are sent */
    struct iovec parts[CN_GRPC_OUT_PARTS];
};

/* What one loop has of gRPC. */
struct cn_grpc_site {
    struct cn_grpc *grpc;
    struct cn_loop *loop;
    struct cn_list conns;
    atomic_uint n_conns; /* also those that are on their way to the loop */
    uint32_t n_live;     /* calls */
    uint64_t bytes;      /* that they take; bounded by this loop's part of limits.memory_bytes */
    struct cn_list sent; /* messages that were sent in this turn, and not reported yet */
    struct cn_msg cut;
    /* For the bytes of one connection at a time. */
    uint8_t *in;
    struct cn_grpc_outbox out;
    struct cn_buf sealed; /* what TLS has made of the bytes */
};

/* A server's message to a loop. */
struct cn_grpc_order {
    struct cn_msg drain;
    struct cn_grpc_server *server;
    struct cn_grpc_site *site;
};

struct cn_grpc_server {
    struct cn_grpc *grpc;
    const struct cn_grpc_method *methods;
    unsigned n_methods;
    cn_grpc_authorize_fn authorize;
    unsigned port; /* enum cn_grpc_port */
    atomic_uint n_conns;
    bool at_home;                 /* all connections are loop 0's */
    bool draining;                /* used by loop 0 only */
    unsigned next_site;           /* the loop of the next connection; loop 0 */
    struct cn_grpc_order *orders; /* one per loop */
    struct cn_list link;
};

struct cn_grpc {
    struct cn_grpc_limits limits;
    struct cn_h2_limits h2_limits;
    void *host;
    unsigned n_loops;
    struct cn_grpc_site *sites;
    struct cn_list servers;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    gnutls_certificate_credentials_t credentials; /* which certificate a handshake shows */
    gnutls_priority_t priorities;
    atomic_bool cut;
};

/* A request's metadata, while they arrive and then as a part of the call. */
struct cn_grpc_head {
    struct cn_arena arena;
    struct cn_header *headers; /* of `room`; without those of HTTP/2 and gRPC itself */
    uint32_t n_headers, room;
    size_t bytes; /* of all headers, as HTTP/2 counts them */
    struct cn_str path;
    uint64_t deadline_ms;
    enum cn_coding coding; /* of the request's messages */
    bool is_post, is_grpc, accepts_gzip;
    const char *wrong; /* what is wrong with them; NULL: nothing */
    int wrong_code;
};

struct cn_grpc_conn {
    struct cn_grpc_server *server;
    struct cn_grpc_site *site;
    struct cn_list link;
    struct cn_msg arrive;
    struct cn_watch watch;
    struct cn_deferred flush;
    struct cn_client_address *from;
    nghttp2_session *h2;
    gnutls_session_t tls;               /* NULL: without TLS */
    struct cn_certificate *certificate; /* the client's; NULL: none */
    struct cn_h2_guard guard;
    struct cn_grpc_head head; /* of the request whose metadata are arriving */
    struct cn_buf out;        /* bytes that the socket has not taken */
    size_t out_at;            /* how many bytes of `out` were sent */
    struct cn_unread unread;  /* the others, as they were counted last */
    struct cn_list calls;
    struct cn_timer timer; /* what it means depends on the connection's state; see connection.c */
    uint64_t heard_ms;     /* when the client last sent something */
    uint64_t stuck_ms;     /* since when the client has not read enough of `out`; 0: none wait */
    int fd;
    bool shaking_hands;  /* TLS is not established yet */
    bool pinged;         /* an answer to our ping is due */
    bool draining;       /* ends with its last call */
    bool hung_up;        /* all was sent; the client's end is awaited */
    bool named;          /* an answer has put the names of its headers into the client's table */
    bool failed;         /* ends at the end of the turn */
    bool watches_output; /* EPOLLOUT */
};

/* A message that waits to be sent. */
struct cn_grpc_queued {
    struct cn_list link;
    struct cn_grpc_call *call;
    void *owner;
    size_t body_bytes, wire_bytes; /* of the answer; of the whole message with its prefix */
    void (*release)(void *arg);    /* NULL: nothing is borrowed */
    void *arg;
    uint32_t n_parts, part; /* how many parts there are; the first that is not sent yet */
    size_t part_at;         /* bytes of that part that are sent */
    struct cn_str *parts;
};

struct cn_grpc_message {
    struct cn_str bytes;
    struct cn_grpc_inbox *in; /* that owns the bytes; NULL: they are somewhere else */
    struct cn_grpc_call *call;
};

/* How memory for a client's bytes is counted. */
struct cn_grpc_held {
    struct cn_request_bytes counted; /* among all requests */
    uint32_t charged; /* to the call: bytes up to CN_REQUEST_BYTES_STEP, not counted above */
};

/* The message that a client is sending. */
struct cn_grpc_inbox {
    char *bytes;         /* of the message, without prefix; NULL: none have come */
    uint32_t len;        /* of the whole message, once the prefix has come */
    uint32_t have, room; /* bytes that have come; the size of `bytes` */
    struct cn_buf rest;  /* what has come after the message */
    size_t rest_at;      /* bytes of it that were taken */
    uint8_t n_prefix;
    uint8_t prefix[CN_GRPC_PREFIX_BYTES];
    struct cn_grpc_held held, held_rest; /* of `bytes` and of `rest` */
};

struct cn_grpc_call {
    uint32_t magic;
    int32_t stream;            /* its id */
    struct cn_grpc_conn *conn; /* NULL: the stream is closed */
    struct cn_grpc_server *server;
    const struct cn_grpc_method *method; /* NULL: the server has no such method */
    struct cn_grpc_site *site;
    struct cn_list link; /* among the connection's calls */
    struct cn_grpc_head head;
    const struct cn_key *key; /* see cn_grpc_call_set_key */
    struct cn_grpc_inbox in;
    struct cn_deferred work; /* delivers what has been asked for */
    uint32_t n_holds;        /* of methods, and of messages that are not reported yet */
    uint32_t bytes;          /* its part of site->bytes */
    bool half_closed;        /* the client has sent its last byte */
    bool reading;            /* a message was asked for */
    bool delivering;         /* incoming.c is calling the method */
    bool opened;             /* it was not refused */
    bool gone;               /* see cn_grpc_call_is_gone */
    bool is_reset;           /* RST_STREAM was given to nghttp2 */
    bool freeing;
    bool answered;       /* the head of the answer was given to nghttp2 */
    bool status_given;   /* its status was given to nghttp2 */
    bool waits_for_data; /* nghttp2 has asked for data when there were none */
    bool is_finishing;   /* the method has called cn_grpc_call_finish() */
    bool end_sent;       /* nghttp2 has made the last frame of the answer */
    atomic_bool left;

    struct cn_unread unread; /* bytes of messages that the client has not read */
    struct cn_list out;
    size_t out_bytes; /* of all messages in `out` */
    uint32_t n_add;
    struct cn_header add[CN_GRPC_CALL_HEADERS]; /* metadata before the first message */
    const char *word;                           /* of the status; see struct cn_grpc_status */
    uint32_t retry_after_s;
    int code;
    struct cn_str text, details;
    struct cn_timer read_timer, write_timer;
    struct cn_timer deadline_timer; /* after the answer: the client's last frame is late */
    alignas(16) char state[];
};

/* --- connection.c */

/* Begins to serve a connection, on its loop. */
void cn_grpc_conn_arrive(struct cn_msg *msg);
/* Something is to be sent at the end of the turn. */
void cn_grpc_conn_touch(struct cn_grpc_conn *conn);
/* No new calls; the connection ends with its last one. */
void cn_grpc_conn_drain(struct cn_grpc_conn *conn);
/* Sets the timer of a connection that is in use. */
void cn_grpc_conn_watch_time(struct cn_grpc_conn *conn);
/* The client has cancelled too many calls: ends the connection at the end of the turn. */
void cn_grpc_conn_cut(struct cn_grpc_conn *conn);
/* Logs that a connection ends because of what its client does. */
void cn_grpc_conn_log_drop(const struct cn_grpc_conn *conn, const char *why);
/* Ends the connection and all of its calls now, and frees it. Not in a callback of nghttp2. */
void cn_grpc_conn_drop(struct cn_grpc_conn *conn);

/* --- h2_tls.c */

void cn_grpc_tls_start(struct cn_grpc *grpc);
void cn_grpc_tls_stop(struct cn_grpc *grpc);
/* Makes the TLS session of a connection. Returns false if that is not possible. */
bool cn_grpc_tls_begin(struct cn_grpc_conn *conn);
/* Goes on with the handshake: 1: it is done; 0: it waits for the client; -1: it has failed. */
int cn_grpc_tls_shake(struct cn_grpc_conn *conn);
/* Like recv() without waiting: -1 with EAGAIN, and 0 at the end of the client's bytes. */
ptrdiff_t cn_grpc_tls_recv(struct cn_grpc_conn *conn, void *room, size_t len);
/* Encrypts. This and the functions above put what is to be sent behind the site's `sealed` bytes.
 * Returns false if the session cannot go on. */
bool cn_grpc_tls_seal(struct cn_grpc_conn *conn, const void *bytes, size_t len);

/* --- h2_session.c */

void cn_grpc_session_start(struct cn_grpc *grpc);
void cn_grpc_session_stop(struct cn_grpc *grpc);
/* Makes the connection's session of HTTP/2. Returns false if there is no memory. */
bool cn_grpc_session_begin(struct cn_grpc_conn *conn);
/* Finds where the next bytes of the client go: if they belong to a large message, there is room for
 * some of them in it. Its length is 0 if they must be read first. */
struct iovec cn_grpc_session_room(struct cn_grpc_conn *conn);

/* --- metadata.c */

/* A header of a request has come. */
void cn_grpc_head_add(struct cn_grpc_head *head, const struct cn_grpc_site *site,
                      struct cn_str name, struct cn_str value);
/* Parses grpc-timeout, such as "100m" (gRPC over HTTP/2). Returns ms, rounded up; CN_NEVER: it is
 * not a timeout. */
uint64_t cn_grpc_timeout_ms(struct cn_str text);

/* --- call.c */

/* A request's metadata are complete: makes the call from conn->head, and opens it. */
void cn_grpc_call_begin(struct cn_grpc_conn *conn, int32_t stream);
/* The opposite of cn_grpc_call_charge(). */
void cn_grpc_call_uncharge(struct cn_grpc_call *call, uint32_t bytes);
/* nghttp2 has made the last frame of the answer. */
void cn_grpc_call_end_sent(struct cn_grpc_call *call);
/* The stream is closed, on either side. */
void cn_grpc_call_closed(struct cn_grpc_call *call);
/* Ends the call from our side. The client gets the status, or a reset of the stream if it is too
 * late for a status. */
void cn_grpc_call_abort(struct cn_grpc_call *call, int code, const char *why);

/* --- incoming.c */

/* Where the next `most` bytes of the call's messages go; see cn_grpc_session_room(). It may make
 * more room, and counts no byte: cn_grpc_receive() must be called with these very bytes when they
 * are there. */
struct iovec cn_grpc_receive_room(struct cn_grpc_call *call, size_t most);
/* The client has sent these bytes of its messages, or its last one. */
void cn_grpc_receive(struct cn_grpc_call *call, const uint8_t *bytes, size_t len);
void cn_grpc_receive_end(struct cn_grpc_call *call);
void cn_grpc_on_work(struct cn_deferred *work);
void cn_grpc_on_read_late(struct cn_timer *timer);
void cn_grpc_drop_received(struct cn_grpc_call *call);

/* --- outgoing.c */

/* Puts a message behind those that wait, or drops it if the call has ended. It may end the call. */
void cn_grpc_queue(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message);
/* Tells nghttp2 that the call has something to send. */
void cn_grpc_pump(struct cn_grpc_call *call);
void cn_grpc_drop_outgoing(struct cn_grpc_call *call);
/* Reports the messages that were sent. Not in a callback of nghttp2. */
void cn_grpc_report_sent(struct cn_grpc_site *site);
void cn_grpc_on_write_late(struct cn_timer *timer);
/* nghttp2's callbacks for the data of an answer. */
ssize_t cn_grpc_on_data_wanted(nghttp2_session *h2, int32_t stream, uint8_t *room, size_t len,
                               uint32_t *flags, nghttp2_data_source *source, void *ctx);
int cn_grpc_on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                         nghttp2_data_source *source, void *ctx);

/* --- sending.c */

/* Sends what is left from before. Returns true when it is gone. */
bool cn_grpc_conn_send_rest(struct cn_grpc_conn *conn);
/* Sends what TLS has made. The outbox must be empty. */
void cn_grpc_conn_send_sealed(struct cn_grpc_conn *conn);
/* Sends what there is, as long as the socket takes it. Returns false when nothing more is to be
 * made. */
bool cn_grpc_conn_send_all(struct cn_grpc_conn *conn);
/* Counts what waits for the socket as unread, once the messages that it was made of are reported
 * and not counted any more. The connection may have `failed` then. */
void cn_grpc_conn_count_unread(struct cn_grpc_conn *conn);

/* --- outbox.c */

void cn_grpc_outbox_copy(struct cn_grpc_outbox *out, const void *bytes, size_t len);
/* Adds a run of bytes that stay where they are until the frames are sent. */
void cn_grpc_outbox_borrow(struct cn_grpc_outbox *out, const void *bytes, size_t len);
/* Sends what the socket takes of these bytes. Returns how many; -1: the client is gone. */
ptrdiff_t cn_grpc_outbox_send(const struct cn_grpc_outbox *out, int fd);
/* Appends all bytes from `at` on to `to`. Fails as cn_buf_append does. */
int cn_grpc_outbox_keep(const struct cn_grpc_outbox *out, size_t at, struct cn_buf *to);
void cn_grpc_outbox_clear(struct cn_grpc_outbox *out);

/* --- trailers.c */

/* Gives nghttp2 the answer's head: together with the status, if nothing else is to be sent. */
void cn_grpc_submit_head(struct cn_grpc_call *call);
/* Gives nghttp2 the status, behind the messages. */
void cn_grpc_submit_trailers(struct cn_grpc_call *call);
/* Answers a request that is not one of gRPC, with a status of HTTP. */
void cn_grpc_submit_http_status(struct cn_grpc_conn *conn, int32_t stream, const char *status);

#endif
