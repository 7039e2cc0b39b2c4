/* grpc/library/grpc_priv.h - shared by the four files that use the gRPC C core (libgrpc 1.51).
 *
 * The core's rules, found by experiment:
 * - A byte buffer is sent once and destroyed after that.
 * - Each call that lasts needs an operation of its own that completes when the client is gone.
 * - Each call gets exactly one status.
 * - Methods that were not registered must be asked for as well, or their clients hang.
 * - The queue may be shut down only when no call lives.
 * - The core writes from the thread that starts an operation, so an answer leaves from its loop.
 *
 * The core's headers are included here and nowhere else.
 */
#ifndef CN_GRPC_LIBRARY_GRPC_PRIV_H
#define CN_GRPC_LIBRARY_GRPC_PRIV_H

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "core/containers/list.h"
#include "core/time/busy_wait.h"
#include "frontend/intake/unread.h"
#include "grpc/library/grpc_core.h"

/* ThreadSanitizer does not see the locks inside libgrpc, through which a tag gets from the thread
 * that starts an operation to the thread that takes the event. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define passes_to_core(tag) __tsan_release(tag)
#define comes_from_core(tag) __tsan_acquire(tag)
#else
#define passes_to_core(tag) ((void)(tag))
#define comes_from_core(tag) ((void)(tag))
#endif

/* One operation of the core. Its event comes back through its loop's mailbox. */
struct cn_grpc_tag {
    struct cn_msg msg;
    struct cn_loop *loop;
    /* Runs on the thread that takes the event, before the loop is informed. NULL: nothing to do. */
    void (*taken)(struct cn_grpc_tag *tag);
    bool ok;
};

struct cn_grpc_queued {
    struct cn_list link;
    grpc_byte_buffer *bytes;
    void *owner;
    size_t body_bytes, wire_bytes; /* of the answer; of the whole message */
};

/* What one loop has of gRPC. */
struct cn_grpc_site {
    struct cn_grpc *grpc;
    struct cn_loop *loop;
    struct cn_list waiting; /* calls that were asked for and have not come yet */
    struct cn_list live;
    uint32_t n_waiting, n_live;
};

/* A server's messages to a loop. */
struct cn_grpc_orders {
    struct cn_msg start, drain;
    struct cn_grpc_server *server;
    struct cn_grpc_site *site;
};

struct cn_grpc_server {
    struct cn_grpc *grpc;
    grpc_server *core;
    grpc_server_credentials *plain, *tls;
    uint64_t identity_generation; /* of the identity that handshakes use; under the mutex */
    const struct cn_grpc_method *methods;
    cn_grpc_authorize_fn authorize;
    unsigned n_methods;
    void **handles; /* the core's handles of the registered methods */
    struct cn_grpc_tag stopped;
    bool draining;                 /* used by loop 0 only */
    struct cn_grpc_orders *orders; /* one per loop */
    struct cn_list link;
};

/* The identity. The core's threads read it at each handshake, and loop 0 sets it. Both are rare, so
 * a mutex is enough. */
struct cn_grpc_keys {
    pthread_mutex_t mutex;
    char *certificate, *key, *client_ca;
    bool needs_client;
    uint64_t generation;
};

/* grpc_queue.c: takes events out of the core's queue. */
struct cn_grpc_taker {
    grpc_completion_queue *queue;
    struct cn_loop *loop;     /* the only loop, if it may take events itself; else NULL */
    struct cn_source source;  /* registered with that loop */
    struct cn_busy_wait wait; /* used by the thread */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    atomic_bool loaned; /* the loop takes the events; written under `mutex` */
    bool stopping;      /* under `mutex` */
};

struct cn_grpc {
    struct cn_grpc_limits limits;
    grpc_resource_quota *quota;
    struct cn_grpc_keys identity;
    void *host;
    struct cn_grpc_taker taker;
    unsigned n_loops;
    struct cn_grpc_site *sites;
    struct cn_list servers;
};

struct cn_grpc_call {
    uint32_t magic;
    struct cn_grpc_server *server;
    const struct cn_grpc_method *method; /* NULL: the server has no such method */
    unsigned method_index;
    struct cn_grpc_site *site;
    struct cn_list link;
    grpc_call *core;           /* NULL until a client makes the call */
    grpc_call_details details; /* used if `method` is NULL */
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    struct cn_header *headers; /* the metadata as headers; made on demand */
    const struct cn_key *key;  /* see cn_grpc_call_set_key */
    uint64_t certificate_ends_ms;
    grpc_byte_buffer *received;
    struct cn_grpc_tag accepted, closed, read, wrote;
    int was_cancelled;
    uint32_t n_busy,
        n_holds; /* operations of the core that are under way, and holds of other files */
    bool reading, writing, gone, freeing;
    bool head_sent, is_finishing, end_sent;
    bool watched;     /* the core was asked to report when the client is gone */
    atomic_bool left; /* the core reported that; the loop may not know it yet */

    struct cn_unread unread; /* bytes of messages that the client has not read */
    struct cn_list out;
    struct cn_grpc_queued *out_now; /* the message that the core is sending */
    uint32_t n_head, n_tail;
    grpc_metadata head[CN_GRPC_CALL_HEADERS], tail[3];
    int code;
    grpc_slice text;
    struct cn_timer write_timer, watch_timer;
    struct cn_arena arena;
    alignas(16) char state[];
};

/* Is a call's first message read after its method has begun? Otherwise the core reads it together
 * with the call, which is cheaper, but then it reads messages of clients without a key, too. */
static inline bool
cn_grpc_reads_later(const struct cn_grpc *grpc, const struct cn_grpc_method *method)
{
    return method->client_streams || grpc->limits.keys_first;
}

struct cn_grpc_message {
    grpc_byte_buffer *bytes;
};

/* Starts the thread that takes events, on loop 0 or before the loops run. Returns CN_E_UNAVAILABLE
 * when that is not possible. */
int cn_grpc_taker_start(struct cn_grpc_taker *taker, const struct cn_grpc_limits *limits,
                        struct cn_loop *const *loops, unsigned n_loops, struct cn_error *err);
/* Empties the queue, which must have no calls left, and destroys it, when no loop runs. */
void cn_grpc_taker_stop(struct cn_grpc_taker *taker);

/* Takes one event. Returns false when the time is up, or, with *over set, when the queue has been
 * shut down and is empty. */
bool cn_grpc_take(struct cn_grpc_taker *taker, gpr_timespec until, struct cn_grpc_tag **out,
                  bool *over);

/* grpc_loan.c: allows the loop to borrow the queue, if there is one loop and it waits busily. */
void cn_grpc_loan_allow(struct cn_grpc_taker *taker, struct cn_loop *const *loops,
                        unsigned n_loops);
/* Ends the loan for good. The loop must not run any more, or be the caller's. */
void cn_grpc_loan_end(struct cn_grpc_taker *taker);
/* On the thread, with an event that it has not posted yet: lends the queue to the loop if that is
 * awake. If it returns true, the thread posts the event and then waits for the queue's return. */
bool cn_grpc_lend(struct cn_grpc_taker *taker);
void cn_grpc_await_return(struct cn_grpc_taker *taker);

/* grpc_call.c: begins to wait for a call of this method (n_methods stands for any other method). On
 * the site's loop. */
void cn_grpc_ask_for_call(struct cn_grpc_site *site, struct cn_grpc_server *server, unsigned index);
void cn_grpc_call_destroy(struct cn_grpc_call *call);
/* Starts operations of the core; their event comes to `tag`, and the call is busy until then. */
void cn_grpc_start_batch(struct cn_grpc_call *call, const grpc_op *ops, size_t n,
                         struct cn_grpc_tag *tag);
void cn_grpc_tag_init(struct cn_grpc_tag *tag, struct cn_loop *loop,
                      void (*fn)(struct cn_msg *msg));

/* --- grpc_watch.c */

/* Returns the operation that completes when the client is gone, and marks the call as watched. */
grpc_op cn_grpc_watch_op(struct cn_grpc_call *call);
/* Begins to watch a call that was accepted: a stream at once, a unary call after a while. */
void cn_grpc_watch_begin(struct cn_grpc_call *call);
/* Begins to watch the call at once: its watch_timer has run out. */
void cn_grpc_watch_on_timer(struct cn_timer *timer);
/* What is to be done on the taker's thread with the events `accepted` and `closed` of a call. */
void cn_grpc_watch_accepted(struct cn_grpc_tag *tag);
void cn_grpc_watch_closed(struct cn_grpc_tag *tag);

/* grpc_message.c: sends the messages that wait, and then the end of the call. */
void cn_grpc_call_pump(struct cn_grpc_call *call);
void cn_grpc_on_read(struct cn_msg *msg);
void cn_grpc_on_wrote(struct cn_msg *msg);
void cn_grpc_drop_received(struct cn_grpc_call *call);
void cn_grpc_drop_outgoing(struct cn_grpc_call *call);

#endif
