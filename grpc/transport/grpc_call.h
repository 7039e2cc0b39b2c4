/* grpc/transport/grpc_call.h - gRPC over HTTP/2: servers, calls and messages.
 *
 * nghttp2 reads and makes the frames of HTTP/2; everything above them is done here, and
 * transport_priv.h says how. A connection belongs to one loop, and so do its calls, their state and
 * all callbacks below. Nothing here takes a lock. Functions must be called on the call's loop
 * unless their comment says otherwise.
 */
#ifndef CN_GRPC_TRANSPORT_GRPC_CALL_H
#define CN_GRPC_TRANSPORT_GRPC_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "frontend/intake/request_bytes.h"
#include "proto/message.h"

struct cn_certificate;
struct cn_client_address;
struct cn_grpc;
struct cn_grpc_call;
struct cn_key;
struct cn_grpc_message;
struct cn_grpc_server;

struct cn_grpc_limits {
    uint64_t message_bytes;  /* most bytes of a request message, decompressed */
    uint32_t metadata_bytes; /* most bytes of a request's metadata */
    uint32_t calls;          /* most open calls per loop */
    uint32_t streams;        /* most open calls per connection */
    uint64_t memory_bytes;   /* most bytes of all calls, besides what max-held-requests counts */
    uint32_t handshake_ms;   /* a TLS client must be done with its handshake within this time */
    uint32_t resets;         /* calls that a connection may cancel in a second; 0: any number */
    uint32_t keepalive_ms;   /* after this silence a connection is pinged; it has 20 s to answer */
    uint32_t read_ms;        /* a message must arrive within this time of its first byte */
    uint32_t write_ms;       /* a client must take a message within this time */
    uint64_t compress_bytes; /* answers from this size on are compressed; 0: none */
    bool needs_certificate;  /* where TLS asks for certificates, clients without one are refused */
};

/* A method of a service. A callback may answer or finish the call, or do so later. Callbacks that
 * are NULL are not called. For a call that was refused, such as one without its key, only on_free
 * is, with a state that is zero. */
struct cn_grpc_method {
    const char *path; /* "/package.Service/Method" */
    bool client_streams;
    bool home_only; /* only called on loop 0, so its server has all connections there */
    bool needs_no_key;
    bool administers;  /* changes the server, so it needs management's key */
    bool tells_health; /* says only whether the server is healthy */
    /* A key that is limited to some models may call it: it checks the model that its message names,
     * or concerns none. */
    bool any_models;
    unsigned group;     /* a number that a cn_grpc_authorize_fn may look at */
    size_t state_bytes; /* bytes of cn_grpc_call_state; zeroed, 16-byte aligned */
    void (*on_open)(struct cn_grpc_call *call);
    /* A message has come; it is valid until the callback returns. With client_streams the next one
     * comes after cn_grpc_call_read; else this is the only one. */
    void (*on_message)(struct cn_grpc_call *call, const struct cn_grpc_message *message);
    /* With client_streams: the client will send no more messages. */
    void (*on_half_close)(struct cn_grpc_call *call);
    /* The transport has taken a message, or it was dropped, so it needs no memory any more. `owner`
     * and `bytes` (of the body) are those of the message that was sent. */
    void (*on_sent)(struct cn_grpc_call *call, void *owner, size_t bytes);
    /* The client is gone, or its deadline has passed: nothing can be sent any more. */
    void (*on_gone)(struct cn_grpc_call *call);
    /* The server stops: finish the call once everything under way is answered. */
    void (*on_drain)(struct cn_grpc_call *call);
    void (*on_free)(struct cn_grpc_call *call);
};

/* Before the loops run, or on loop 0. `host` is for the methods' own use. */
struct cn_grpc *cn_grpc_create(const struct cn_grpc_limits *limits, struct cn_loop *const *loops,
                               unsigned n_loops, void *host);
/* Makes the server of one port (enum cn_grpc_port). `methods` ends with a path of NULL and must
 * stay in place. `authorize` decides, on the call's loop, whether a client may call at all; its
 * error ends the call. */
typedef int (*cn_grpc_authorize_fn)(struct cn_grpc_call *call, struct cn_error *err);
struct cn_grpc_server *cn_grpc_serve(struct cn_grpc *grpc, unsigned port,
                                     const struct cn_grpc_method *methods,
                                     cn_grpc_authorize_fn authorize);
/* How many connections the server has. Any thread. */
uint32_t cn_grpc_server_open(const struct cn_grpc_server *server);
/* Takes over a connection that was accepted. `is_tls`: it begins with a handshake, for which
 * cn_tls_start() has read the certificate. `from` may be NULL. Loop 0. */
void cn_grpc_server_connect(struct cn_grpc_server *server, int fd, bool is_tls,
                            struct cn_client_address *from);
/* Refuses new calls, calls on_drain for the open ones, and closes each connection when its last
 * call has ended. Loop 0. May be called twice. */
void cn_grpc_server_drain(struct cn_grpc_server *server);
/* The methods that were given to cn_grpc_serve. Any thread. */
const struct cn_grpc_method *cn_grpc_server_methods(const struct cn_grpc_server *server);
/* Ends all calls as if their clients had left. Any thread. */
void cn_grpc_cut(struct cn_grpc *grpc);
/* Has the loop of that index no connections left? Called on that loop. */
bool cn_grpc_is_empty(const struct cn_grpc *grpc, unsigned loop);
/* Frees everything, when no loop runs any more and all are empty. NULL is allowed. */
void cn_grpc_destroy(struct cn_grpc *grpc);

void *cn_grpc_call_state(struct cn_grpc_call *call);
/* Returns the call that a state belongs to. */
struct cn_grpc_call *cn_grpc_call_of(void *state);
void *cn_grpc_call_host(const struct cn_grpc_call *call);
/* Returns the call's method; NULL: the server does not have the method that was called. */
const struct cn_grpc_method *cn_grpc_call_method(const struct cn_grpc_call *call);
struct cn_grpc_server *cn_grpc_call_server(const struct cn_grpc_call *call);
struct cn_loop *cn_grpc_call_loop(const struct cn_grpc_call *call);
/* The named key that the call showed; NULL: it needs none. */
void cn_grpc_call_set_key(struct cn_grpc_call *call, const struct cn_key *key);
const struct cn_key *cn_grpc_call_key(const struct cn_grpc_call *call);
/* The certificate with which the client has connected, which was verified then; NULL: it has none.
 * It stays while the client is connected. */
const struct cn_certificate *cn_grpc_call_certificate(const struct cn_grpc_call *call);
/* The call takes `bytes` more memory, which count until it is freed. CN_E_TOO_MANY_CALLS: all calls
 * together take too much (grpc-memory). */
int cn_grpc_call_charge(struct cn_grpc_call *call, size_t bytes, struct cn_error *err);
/* The call's arena, which is freed with the call. */
struct cn_arena *cn_grpc_call_arena(struct cn_grpc_call *call);
/* The request's metadata; valid until the call is freed. */
const struct cn_header *cn_grpc_call_headers(struct cn_grpc_call *call, uint32_t *n);
/* The call's deadline as a time of cn_now_ms(); CN_NEVER: it has none. */
uint64_t cn_grpc_call_deadline_ms(const struct cn_grpc_call *call);
bool cn_grpc_call_is_gone(const struct cn_grpc_call *call);
/* The socket of the client's connection; 0: it is closed. */
int cn_grpc_call_connection(const struct cn_grpc_call *call);
/* A number that all connections of the client's address have in common; 0: it is not known. */
uint32_t cn_grpc_call_client(const struct cn_grpc_call *call);
/* Points to a flag that becomes true when the client has cancelled the call or lost its connection.
 * Any thread may read it while the call lives. */
const atomic_bool *cn_grpc_call_left(const struct cn_grpc_call *call);

/* Keep the call in memory, also when it is over, and end that. The last release may free the
 * call. */
void cn_grpc_call_hold(struct cn_grpc_call *call);
void cn_grpc_call_release(struct cn_grpc_call *call);

size_t cn_grpc_message_bytes(const struct cn_grpc_message *message);
void cn_grpc_message_copy(const struct cn_grpc_message *message, char *out);
/* Keeps a message's bytes after on_message: copies a small one into the arena, and takes a large
 * one over. They stay until `kept` is freed with cn_grpc_kept_free() and the arena is gone; `kept`
 * must be zeroed, and freed before the call. CN_E_UNAVAILABLE, CN_E_TOO_MANY_CALLS,
 * CN_E_OUT_OF_MEMORY: they cannot be kept. */
struct cn_grpc_kept {
    struct cn_str bytes;
    char *owned; /* NULL: `bytes` are in the arena */
    struct cn_request_bytes held;
    struct cn_grpc_call *call; /* that takes `charged` bytes more; NULL: none */
    uint32_t charged;
};
int cn_grpc_message_keep(const struct cn_grpc_message *message, struct cn_arena *arena,
                         struct cn_grpc_kept *kept, struct cn_error *err);
void cn_grpc_kept_free(struct cn_grpc_kept *kept);

/* Asks for the next message; call it once per message. */
void cn_grpc_call_read(struct cn_grpc_call *call);
/* Adds metadata that is sent before the first message. `name` must be lower case and static,
 * `value` printable ASCII, which is copied. Has no effect once the first message is sent, or when
 * there are CN_GRPC_CALL_HEADERS already. */
#define CN_GRPC_CALL_HEADERS 6
void cn_grpc_call_add_header(struct cn_grpc_call *call, const char *name, struct cn_str value);

/* A piece of a message whose large parts lie in different places. */
struct cn_grpc_piece {
    struct cn_str head, data; /* `data` inside of the message's body is borrowed like the body */
};

/* A message to send. `head` is copied. `body` is copied, too, if `release` is NULL; otherwise it is
 * borrowed until release(arg), which any thread may call and which must be quick. */
struct cn_grpc_outgoing {
    struct cn_str head, body;
    const struct cn_grpc_piece *pieces; /* if not NULL, these follow `head` in place of the body */
    uint32_t n_pieces;
    void (*release)(void *arg);
    void *arg;
    void *owner; /* passed to on_sent */
};
void cn_grpc_call_send(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message);

struct cn_grpc_status {
    int code;               /* gRPC's status code; 0: OK */
    const char *message;    /* UTF-8, or NULL */
    struct cn_str details;  /* a packed google.rpc.Status; may be empty */
    const char *word;       /* the error's word in continuo-error, static; NULL: none */
    uint32_t retry_after_s; /* seconds; 0: no retry-after is sent */
};
/* Ends the call after all of its messages. Only the first call of this function counts. `last` is
 * one more message, sent in the same packet; it may be NULL. */
void cn_grpc_call_finish(struct cn_grpc_call *call, const struct cn_grpc_outgoing *last,
                         const struct cn_grpc_status *status);

#endif
