/* grpc/library/grpc_core.h - servers, calls and messages of the gRPC C core.
 *
 * One completion queue with one thread, or with one loop that is awake, as taker (grpc_queue.c),
 * which only passes what happened to the loop of its call, by that loop's mailbox. So a call, its
 * state and all callbacks below belong to one loop, and nothing here locks. Functions are for the
 * call's loop where they don't say otherwise. */
#ifndef CN_GRPC_LIBRARY_GRPC_CORE_H
#define CN_GRPC_LIBRARY_GRPC_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "core/memory/arena.h"
#include "core/text/str.h"
#include "proto/message.h"

struct cn_grpc;
struct cn_grpc_call;
struct cn_grpc_message;
struct cn_grpc_server;

struct cn_grpc_limits {
    uint64_t message_bytes;  /* of a request message, unpacked */
    uint32_t metadata_bytes; /* of a request */
    uint32_t calls;          /* open ones, per loop */
    uint32_t keepalive_ms;   /* a silent connection is asked after; it has 20 s to answer */
    uint32_t write_ms;       /* a client must take a message within */
    uint32_t busy_wait_us;   /* core/time/busy_wait.h; 0: none */
    uint64_t compress_bytes; /* answers from this size are compressed; 0: none */
};

/* A method. The callbacks may answer, finish, or do so later; those that are NULL are not
 * called. */
struct cn_grpc_method {
    const char *path; /* "/package.Service/Method" */
    bool client_streams;
    bool home_only; /* on loop 0 */
    bool is_rare;   /* few clients call it at a time: less is kept ready for it */
    bool needs_no_key;
    bool is_step;       /* its messages are steps of models: see accepted_taken in grpc_call.c */
    unsigned group;     /* the methods' own: what cn_grpc_authorize_fn may look at */
    size_t state_bytes; /* zeroed, 16-byte aligned: cn_grpc_call_state */
    void (*on_open)(struct cn_grpc_call *call);
    /* A message, valid until return. With client_streams the next one comes after
     * cn_grpc_call_read; else this is the only one. */
    void (*on_message)(struct cn_grpc_call *call, const struct cn_grpc_message *message);
    /* client_streams: the client sends no more messages. */
    void (*on_half_close)(struct cn_grpc_call *call);
    /* The transport took a message, or it was dropped: it costs memory no more. `owner`, `bytes`:
     * of what was sent, its body's. */
    void (*on_sent)(struct cn_grpc_call *call, void *owner, size_t bytes);
    /* The client is gone, or its deadline has passed: nothing can be sent any more. */
    void (*on_gone)(struct cn_grpc_call *call);
    /* The server stops: finish once what is under way is answered. */
    void (*on_drain)(struct cn_grpc_call *call);
    void (*on_free)(struct cn_grpc_call *call);
};

/* On loop 0, or before the loops run. `host` is for the methods' own use. Starts the thread. */
int cn_grpc_create(const struct cn_grpc_limits *limits, struct cn_loop *const *loops,
                   unsigned n_loops, void *host, struct cn_grpc **out, struct cn_error *err);
/* What a TLS port shows, as PEM text; `client_ca` not empty: and whose certificates clients must
 * have. Copied. */
struct cn_grpc_identity {
    struct cn_str certificate, key, client_ca;
};
/* For the handshakes that begin from now on. Loop 0. */
void cn_grpc_set_identity(struct cn_grpc *grpc, const struct cn_grpc_identity *identity);

/* `methods` ends with a path of NULL and stays in place. `authorize`: may the client call at all?
 * On the call's loop; its error ends the call. `tls_host` not NULL: the server itself listens there
 * with the identity; *tls_port 0 becomes the port it got, and stays 0 when it can't. Ready for
 * connections afterwards. */
typedef int (*cn_grpc_authorize_fn)(struct cn_grpc_call *call, struct cn_error *err);
struct cn_grpc_server *cn_grpc_serve(struct cn_grpc *grpc, const struct cn_grpc_method *methods,
                                     cn_grpc_authorize_fn authorize, const char *tls_host,
                                     uint16_t *tls_port);
/* A connection without TLS that was accepted; the server's from here on. Loop 0. */
void cn_grpc_server_connect(struct cn_grpc_server *server, int fd);
/* No new calls; on_drain for those that are open. Loop 0; harmless twice. */
void cn_grpc_server_drain(struct cn_grpc_server *server);
/* As given to cn_grpc_serve. Any thread. */
const struct cn_grpc_method *cn_grpc_server_methods(const struct cn_grpc_server *server);
/* Ends all calls as if their clients were gone. Any thread. */
void cn_grpc_cut(struct cn_grpc *grpc);
/* Has the loop of that index nothing left? On that loop. */
bool cn_grpc_is_empty(const struct cn_grpc *grpc, unsigned loop);
/* When no loop runs any more and all are empty. NULL is allowed. */
void cn_grpc_destroy(struct cn_grpc *grpc);

void *cn_grpc_call_state(struct cn_grpc_call *call);
/* The call that a state belongs to. */
struct cn_grpc_call *cn_grpc_call_of(void *state);
void *cn_grpc_call_host(const struct cn_grpc_call *call);
/* NULL: one that the server doesn't have. */
const struct cn_grpc_method *cn_grpc_call_method(const struct cn_grpc_call *call);
struct cn_grpc_server *cn_grpc_call_server(const struct cn_grpc_call *call);
struct cn_loop *cn_grpc_call_loop(const struct cn_grpc_call *call);
/* Freed with the call. */
struct cn_arena *cn_grpc_call_arena(struct cn_grpc_call *call);
/* The request's metadata, as long as the call lives. */
const struct cn_header *cn_grpc_call_headers(struct cn_grpc_call *call, uint32_t *n);
/* cn_now_ms(); CN_NEVER without one. */
uint64_t cn_grpc_call_deadline_ms(const struct cn_grpc_call *call);
bool cn_grpc_call_is_gone(const struct cn_grpc_call *call);
/* True once the client has cancelled the call or has lost its connection, perhaps before the call's
 * loop hears of it. Any thread may read it, as long as the call lives. */
const atomic_bool *cn_grpc_call_left(const struct cn_grpc_call *call);

/* Keeps the call in memory, also when it is over. */
void cn_grpc_call_hold(struct cn_grpc_call *call);
void cn_grpc_call_release(struct cn_grpc_call *call);

size_t cn_grpc_message_bytes(const struct cn_grpc_message *message);
void cn_grpc_message_copy(const struct cn_grpc_message *message, char *out);

/* Asks for the next message; once per message. */
void cn_grpc_call_read(struct cn_grpc_call *call);
/* Metadata before the first message; `name` is lower case and static, `value` printable ASCII,
 * copied. No effect when the first message is out; at most CN_GRPC_CALL_HEADERS. */
#define CN_GRPC_CALL_HEADERS 5
void cn_grpc_call_add_header(struct cn_grpc_call *call, const char *name, struct cn_str value);

/* Of a message whose large parts lie apart. */
struct cn_grpc_piece {
    struct cn_str head, data; /* `data` inside of the message's body is borrowed as that is */
};

/* A message of two pieces. `head` is copied. `body` too where release is NULL; else it is borrowed
 * until release(arg), which any thread may call and which must be quick. */
struct cn_grpc_outgoing {
    struct cn_str head, body;
    const struct cn_grpc_piece *pieces; /* not NULL: they follow `head`, not the whole body */
    uint32_t n_pieces;
    void (*release)(void *arg);
    void *arg;
    void *owner; /* for on_sent */
};
void cn_grpc_call_send(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message);

struct cn_grpc_status {
    int code;               /* of gRPC; 0: OK */
    const char *message;    /* UTF-8; NULL: none */
    struct cn_str details;  /* a packed google.rpc.Status; may be empty */
    const char *word;       /* of the error, static; NULL: none */
    uint32_t retry_after_s; /* 0: nothing is said */
};
/* After all messages: the call's end. The first one counts. `last`: one more message, in the same
 * packet; may be NULL. */
void cn_grpc_call_finish(struct cn_grpc_call *call, const struct cn_grpc_outgoing *last,
                         const struct cn_grpc_status *status);

#endif
