/* rpc/grpc_core.c - the one file that knows the gRPC C core (libgrpc 1.51).
 *
 * Its rules, found by experiment: a byte buffer is sent once and destroyed after; every call gets a
 * batch of its own for "the client is gone"; exactly one status per call; methods that nobody
 * registered must be asked for as well, or their clients hang; the queue is shut down only when no
 * call lives. The core writes from the thread that starts a batch, so an answer leaves on its loop.
 */
#include "rpc/grpc_core.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/metrics.h"
#include "core/panic.h"
#include "rpc/status.h"

#define CALL_MAGIC 0x434e4743u /* "CNGC" */
#define PREPOSTED 8            /* calls asked for per method and loop; 1 to 256 measured alike */
#define KEEPALIVE_ANSWER_MS 20000
#define MIN_PING_INTERVAL_MS 5000 /* clients may ask so often without calls */
/* Bodies from here on go out without a copy; below, a copy is cheaper than a release callback. */
#define BORROW_BYTES 65536

/* ThreadSanitizer does not see the locks inside libgrpc, through which a tag goes from the thread
 * that starts a batch to the queue's. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define passes_to_core(tag) __tsan_release(tag)
#define comes_from_core(tag) __tsan_acquire(tag)
#else
#define passes_to_core(tag) ((void)(tag))
#define comes_from_core(tag) ((void)(tag))
#endif

/* One operation that the core works on; it comes back by its loop's mailbox. */
struct tag {
    struct cn_msg msg;
    struct cn_loop *loop;
    bool ok;
};

struct outgoing {
    struct cn_list link;
    grpc_byte_buffer *bytes;
    void *owner;
    size_t body_bytes;
};

/* What one loop has. */
struct site {
    struct cn_grpc *grpc;
    struct cn_loop *loop;
    struct cn_list waiting; /* calls that are asked for */
    struct cn_list live;
    uint32_t n_waiting, n_live;
};

/* A server's messages to a loop. */
struct orders {
    struct cn_msg start, drain;
    struct cn_grpc_server *server;
    struct site *site;
};

struct cn_grpc_server {
    struct cn_grpc *grpc;
    grpc_server *core;
    grpc_server_credentials *plain, *tls;
    uint64_t identity_generation; /* that its handshakes use; under the identity's mutex */
    const struct cn_grpc_method *methods;
    cn_grpc_authorize_fn authorize;
    unsigned n_methods;
    void **handles; /* of the registered methods */
    struct tag stopped;
    bool draining;         /* loop 0's */
    struct orders *orders; /* one per loop */
    struct cn_list link;
};

/* Read by the core's threads at each handshake, set by loop 0: rare on both sides, so a mutex. */
struct identity {
    pthread_mutex_t mutex;
    char *certificate, *key, *client_ca;
    uint64_t generation;
};

struct cn_grpc {
    struct cn_grpc_limits limits;
    struct identity identity;
    void *host;
    grpc_completion_queue *queue;
    pthread_t thread;
    unsigned n_loops;
    struct site *sites;
    struct cn_list servers;
};

struct cn_grpc_call {
    uint32_t magic;
    struct cn_grpc_server *server;
    const struct cn_grpc_method *method; /* NULL: one that we don't have */
    unsigned method_index;
    struct site *site;
    struct cn_list link;
    grpc_call *core;           /* NULL while it is only asked for */
    grpc_call_details details; /* where method is NULL */
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    struct cn_header *headers; /* the same; made when somebody asks */
    grpc_byte_buffer *received;
    struct tag accepted, closed, read, wrote;
    int was_cancelled;
    uint32_t n_busy, n_holds; /* operations of the core; of others */
    bool reading, writing, gone, freeing;
    bool head_sent, is_finishing, end_sent;

    struct cn_list out;
    struct outgoing *out_now; /* in the core's hands */
    uint32_t n_head, n_tail;
    grpc_metadata head[CN_GRPC_CALL_HEADERS], tail[3];
    int code;
    grpc_slice text;
    struct cn_timer write_timer;
    struct cn_arena arena;
    alignas(16) char state[];
};

struct cn_grpc_message {
    grpc_byte_buffer *bytes;
};

static void ask_for_call(struct site *site, struct cn_grpc_server *server, unsigned index);
static void call_check(struct cn_grpc_call *call);
static void call_pump(struct cn_grpc_call *call);

/* --- operations */

static void
tag_init(struct tag *tag, struct cn_loop *loop, void (*fn)(struct cn_msg *msg))
{
    tag->msg.fn = fn;
    tag->loop = loop;
}

static void
start_batch(struct cn_grpc_call *call, const grpc_op *ops, size_t n, struct tag *tag)
{
    grpc_call_error rc;

    call->n_busy++;
    passes_to_core(tag);
    rc = grpc_call_start_batch(call->core, ops, n, tag, NULL);
    if (rc != GRPC_CALL_OK) /* it says that we broke a rule of its API */
        cn_panic(__FILE__, __LINE__, "start_batch: %s", grpc_call_error_to_string(rc));
}

/* The queue's thread: what happened goes to where it belongs. */
static void *
queue_main(void *ctx)
{
    struct cn_grpc *grpc = ctx;
    grpc_event event;

    pthread_setname_np(pthread_self(), "grpc-queue");
    for (;;) {
        struct tag *tag;

        event = grpc_completion_queue_next(grpc->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        tag = event.tag;
        comes_from_core(tag);
        tag->ok = event.success != 0;
        cn_loop_post(tag->loop, &tag->msg);
    }
}

/* --- a call's life */

static void on_accepted(struct cn_msg *msg);
static void on_closed(struct cn_msg *msg);
static void on_read(struct cn_msg *msg);
static void on_wrote(struct cn_msg *msg);

/* The client does not take its message. */
static void
on_write_late(struct cn_timer *timer)
{
    struct cn_grpc_call *call = cn_container_of(timer, struct cn_grpc_call, write_timer);

    cn_log(CN_LOG_DEBUG, "event=grpc_write_timeout method=%s",
           call->method ? call->method->path : "");
    grpc_call_cancel_with_status(call->core, GRPC_STATUS_DEADLINE_EXCEEDED,
                                 "the client does not take its answers", NULL);
}

static struct cn_grpc_call *
call_create(struct site *site, struct cn_grpc_server *server, unsigned index)
{
    const struct cn_grpc_method *method =
        index < server->n_methods ? &server->methods[index] : NULL;
    struct cn_grpc_call *call = cn_alloc(sizeof(*call) + (method ? method->state_bytes : 0));

    call->magic = CALL_MAGIC;
    call->server = server;
    call->method = method;
    call->method_index = index;
    call->site = site;
    call->text = grpc_empty_slice();
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    tag_init(&call->accepted, site->loop, on_accepted);
    tag_init(&call->closed, site->loop, on_closed);
    tag_init(&call->read, site->loop, on_read);
    tag_init(&call->wrote, site->loop, on_wrote);
    cn_list_init(&call->link);
    cn_list_init(&call->out);
    cn_timer_init(&call->write_timer, on_write_late);
    cn_arena_init(&call->arena);
    return call;
}

static void
drop_received(struct cn_grpc_call *call)
{
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
}

/* The message is sent, or will not be. */
static void
outgoing_done(struct cn_grpc_call *call, struct outgoing *out)
{
    void *owner = out->owner;
    size_t bytes = out->body_bytes;

    grpc_byte_buffer_destroy(out->bytes);
    cn_free(out);
    if (call->method && call->method->on_sent)
        call->method->on_sent(call, owner, bytes);
}

static void
drop_outgoing(struct cn_grpc_call *call)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&call->out)))
        outgoing_done(call, cn_container_of(node, struct outgoing, link));
}

static void
call_destroy(struct cn_grpc_call *call)
{
    uint32_t i;

    drop_received(call);
    for (i = 0; i < call->n_head; i++)
        grpc_slice_unref(call->head[i].value);
    for (i = 0; i < call->n_tail; i++)
        grpc_slice_unref(call->tail[i].value);
    grpc_slice_unref(call->text);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    if (call->core)
        grpc_call_unref(call->core);
    cn_timer_cancel(&call->write_timer);
    cn_list_remove(&call->link);
    cn_arena_fini(&call->arena);
    cn_free(call);
}

/* Frees the call once it is over for everybody. */
static void
call_check(struct cn_grpc_call *call)
{
    if (call->n_busy || call->n_holds || !call->end_sent || call->freeing)
        return;
    call->freeing = true; /* on_free may release what it held */
    if (call->method && call->method->on_free)
        call->method->on_free(call);
    call->site->n_live--;
    cn_metrics_sub(cn_loop_metrics(call->site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    call_destroy(call);
}

static void
on_closed(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, closed.msg);

    call->n_busy--;
    call->n_holds++;
    if (call->was_cancelled && !call->gone) {
        call->gone = true;
        drop_outgoing(call);
        if (call->method && call->method->on_gone)
            call->method->on_gone(call);
        cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){.code = GRPC_STATUS_CANCELLED});
        call_pump(call); /* it may have been finished before, with messages that are dropped now */
    }
    cn_grpc_call_release(call);
}

static void
watch_for_end(struct cn_grpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    start_batch(call, &op, 1, &call->closed);
}

/* What may be wrong before a method sees the call: 0, or why it is refused. */
static int
check_call(struct cn_grpc_call *call, struct cn_error *err)
{
    const struct cn_grpc_limits *limits = &call->site->grpc->limits;
    char path[128];

    if (!call->method) {
        char *text = grpc_slice_to_c_string(call->details.method);

        cn_log_quote(text, strlen(text), path, sizeof(path));
        gpr_free(text);
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "this port has no method %s; server reflection lists its services", path);
    }
    if (call->site->n_live > limits->calls)
        return cn_fail(err, CN_E_TOO_MANY_CALLS,
                       "%u calls are open, which is the limit (grpc-max-calls); try again later",
                       limits->calls);
    if (!call->method->needs_no_key && call->server->authorize(call, err))
        return err->code;
    if (!call->method->client_streams && !call->received)
        return cn_fail(err, CN_E_PROTOCOL, "the call ended without its request message");
    return 0;
}

static void
call_open(struct cn_grpc_call *call)
{
    struct cn_grpc_message message;
    struct cn_error err;

    if (check_call(call, &err)) {
        cn_rpc_fail(call, err.code, err.message, 0);
        return;
    }
    if (call->method->on_open)
        call->method->on_open(call);
    if (call->method->client_streams) {
        cn_grpc_call_read(call);
        return;
    }
    message.bytes = call->received;
    call->method->on_message(call, &message);
    drop_received(call);
}

/* A client made a call that was asked for; or, not ok, the server stops. */
static void
on_accepted(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, accepted.msg);
    struct site *site = call->site;

    site->n_waiting--;
    if (!call->accepted.ok) {
        call_destroy(call);
        return;
    }
    ask_for_call(site, call->server, call->method_index);
    cn_list_remove(&call->link);
    cn_list_push_back(&site->live, &call->link);
    site->n_live++;
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS, 1);
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    if (!call->method)
        call->deadline = call->details.deadline;
    cn_grpc_call_hold(call);
    watch_for_end(call);
    call_open(call);
    cn_grpc_call_release(call);
}

static void
ask_for_call(struct site *site, struct cn_grpc_server *server, unsigned index)
{
    struct cn_grpc_call *call = call_create(site, server, index);
    grpc_completion_queue *queue = site->grpc->queue;
    grpc_call_error rc;

    cn_list_push_back(&site->waiting, &call->link);
    site->n_waiting++;
    passes_to_core(&call->accepted);
    if (call->method)
        rc = grpc_server_request_registered_call(
            server->core, server->handles[index], &call->core, &call->deadline, &call->metadata,
            call->method->client_streams ? NULL : &call->received, queue, queue, &call->accepted);
    else
        rc = grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata,
                                      queue, queue, &call->accepted);
    if (rc != GRPC_CALL_OK)
        cn_panic(__FILE__, __LINE__, "request_call: %s", grpc_call_error_to_string(rc));
}

/* --- messages */

size_t
cn_grpc_message_bytes(const struct cn_grpc_message *message)
{
    return grpc_byte_buffer_length(message->bytes);
}

void
cn_grpc_message_copy(const struct cn_grpc_message *message, char *out)
{
    grpc_byte_buffer_reader reader;
    grpc_slice slice;

    if (!grpc_byte_buffer_reader_init(&reader, message->bytes))
        cn_panic(__FILE__, __LINE__, "a message that cannot be read");
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        memcpy(out, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        out += GRPC_SLICE_LENGTH(slice);
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
}

void
cn_grpc_call_read(struct cn_grpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    cn_assert(!call->reading);
    if (call->gone || call->is_finishing)
        return;
    call->reading = true;
    op.data.recv_message.recv_message = &call->received;
    start_batch(call, &op, 1, &call->read);
}

static void
on_read(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, read.msg);
    struct cn_grpc_message message = {call->received};

    call->received = NULL; /* the next read may be asked for from inside on_message */
    call->n_busy--;
    call->reading = false;
    call->n_holds++;
    if (!call->gone && !call->is_finishing) {
        if (message.bytes && call->read.ok)
            call->method->on_message(call, &message);
        else
            call->method->on_half_close(call);
    }
    if (message.bytes)
        grpc_byte_buffer_destroy(message.bytes);
    cn_grpc_call_release(call);
}

static grpc_byte_buffer *
pack(const struct cn_grpc_outgoing *message)
{
    bool borrowed = message->release && message->body.len >= BORROW_BYTES;
    size_t first = message->head.len + (borrowed ? 0 : message->body.len);
    grpc_slice slices[2] = {grpc_slice_malloc(first), grpc_empty_slice()};
    char *at = (char *)GRPC_SLICE_START_PTR(slices[0]);
    grpc_byte_buffer *bytes;

    if (message->head.len)
        memcpy(at, message->head.ptr, message->head.len);
    if (borrowed) {
        slices[1] =
            grpc_slice_new_with_user_data((void *)(uintptr_t)message->body.ptr, message->body.len,
                                          message->release, message->arg);
    } else {
        if (message->body.len)
            memcpy(at + message->head.len, message->body.ptr, message->body.len);
        if (message->release)
            message->release(message->arg);
    }
    bytes = grpc_raw_byte_buffer_create(slices, borrowed ? 2 : 1);
    grpc_slice_unref(slices[0]);
    grpc_slice_unref(slices[1]);
    return bytes;
}

static void
queue_message(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    struct outgoing *out;

    if (call->gone || call->is_finishing) {
        if (message->release)
            message->release(message->arg);
        if (call->method->on_sent)
            call->method->on_sent(call, message->owner, message->body.len);
        return;
    }
    out = cn_alloc(sizeof(*out));
    out->owner = message->owner;
    out->body_bytes = message->body.len;
    out->bytes = pack(message);
    cn_list_push_back(&call->out, &out->link);
}

void
cn_grpc_call_send(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    queue_message(call, message);
    call_pump(call);
}

void
cn_grpc_call_add_header(struct cn_grpc_call *call, const char *name, struct cn_str value)
{
    grpc_metadata *header;

    if (call->head_sent || call->n_head == CN_GRPC_CALL_HEADERS)
        return;
    header = &call->head[call->n_head++];
    header->key = grpc_slice_from_static_string(name);
    header->value = grpc_slice_from_copied_buffer(value.ptr, value.len);
}

static void
add_tail(struct cn_grpc_call *call, const char *name, const char *value, size_t len)
{
    grpc_metadata *header = &call->tail[call->n_tail++];

    cn_assert(call->n_tail <= sizeof(call->tail) / sizeof(call->tail[0]));
    header->key = grpc_slice_from_static_string(name);
    header->value = grpc_slice_from_copied_buffer(value, len);
}

void
cn_grpc_call_finish(struct cn_grpc_call *call, const struct cn_grpc_outgoing *last,
                    const struct cn_grpc_status *status)
{
    char seconds[16];
    int n;

    if (call->is_finishing) {
        if (last && last->release)
            last->release(last->arg);
        return;
    }
    if (last)
        queue_message(call, last);
    call->is_finishing = true;
    call->code = status->code;
    if (status->message)
        call->text = grpc_slice_from_copied_string(status->message);
    if (status->details.len)
        add_tail(call, "grpc-status-details-bin", status->details.ptr, status->details.len);
    if (status->word)
        add_tail(call, "continuo-error", status->word, strlen(status->word));
    if (status->retry_after_s) {
        n = snprintf(seconds, sizeof(seconds), "%u", status->retry_after_s);
        add_tail(call, "retry-after", seconds, (size_t)n);
    }
    if (status->code)
        cn_metrics_add(cn_loop_metrics(call->site->loop), CN_M_GRPC_ERRORS, 1);
    call_pump(call);
}

/* Hands the core the next message, and with the last one the status. */
static void
call_pump(struct cn_grpc_call *call)
{
    struct cn_list *node;
    grpc_op ops[3] = {0}, *op = ops;

    if (call->writing || call->end_sent)
        return;
    node = cn_list_pop_front(&call->out);
    if (!node && !call->is_finishing)
        return;
    if (!call->head_sent) {
        op->op = GRPC_OP_SEND_INITIAL_METADATA;
        op->data.send_initial_metadata.count = call->n_head;
        op->data.send_initial_metadata.metadata = call->head;
        op++;
        call->head_sent = true;
    }
    if (node) {
        call->out_now = cn_container_of(node, struct outgoing, link);
        op->op = GRPC_OP_SEND_MESSAGE;
        op->data.send_message.send_message = call->out_now->bytes;
        op++;
    }
    if (call->is_finishing && cn_list_empty(&call->out)) {
        op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        op->data.send_status_from_server.trailing_metadata_count = call->n_tail;
        op->data.send_status_from_server.trailing_metadata = call->tail;
        op->data.send_status_from_server.status = (grpc_status_code)call->code;
        op->data.send_status_from_server.status_details = &call->text;
        op++;
        call->end_sent = true;
    }
    call->writing = true;
    cn_timer_set(cn_loop_wheel(call->site->loop), &call->write_timer,
                 cn_loop_now_ms(call->site->loop) + call->site->grpc->limits.write_ms);
    start_batch(call, ops, (size_t)(op - ops), &call->wrote);
}

static void
on_wrote(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, wrote.msg);
    struct outgoing *out = call->out_now;

    call->n_busy--;
    call->writing = false;
    cn_timer_cancel(&call->write_timer);
    call->out_now = NULL;
    call->n_holds++;
    if (out)
        outgoing_done(call, out);
    call_pump(call);
    cn_grpc_call_release(call);
}

/* --- what a method may ask */

void *
cn_grpc_call_state(struct cn_grpc_call *call)
{
    return call->state;
}

struct cn_grpc_call *
cn_grpc_call_of(void *state)
{
    return cn_cast(struct cn_grpc_call,
                   (void *)((char *)state - offsetof(struct cn_grpc_call, state)), CALL_MAGIC);
}

void *
cn_grpc_call_host(const struct cn_grpc_call *call)
{
    return call->site->grpc->host;
}

struct cn_grpc_server *
cn_grpc_call_server(const struct cn_grpc_call *call)
{
    return call->server;
}

struct cn_loop *
cn_grpc_call_loop(const struct cn_grpc_call *call)
{
    return call->site->loop;
}

struct cn_arena *
cn_grpc_call_arena(struct cn_grpc_call *call)
{
    return &call->arena;
}

static struct cn_str
slice_str(const grpc_slice *slice)
{
    return (struct cn_str){(const char *)GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
}

const struct cn_header *
cn_grpc_call_headers(struct cn_grpc_call *call, uint32_t *n)
{
    size_t i;

    *n = (uint32_t)call->metadata.count;
    if (call->headers || *n == 0)
        return call->headers;
    call->headers = cn_arena_alloc(&call->arena, sizeof(*call->headers) * call->metadata.count);
    for (i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *item = &call->metadata.metadata[i];

        /* Short slices hold their bytes inside: the array stays where it is, so do they. */
        call->headers[i].name = slice_str(&item->key);
        call->headers[i].value = slice_str(&item->value);
    }
    return call->headers;
}

uint64_t
cn_grpc_call_deadline_ms(const struct cn_grpc_call *call)
{
    gpr_timespec left;
    int64_t ms;

    if (gpr_time_cmp(call->deadline, gpr_inf_future(call->deadline.clock_type)) == 0)
        return CN_NEVER;
    left = gpr_time_sub(call->deadline, gpr_now(call->deadline.clock_type));
    ms = gpr_time_to_millis(left);
    return cn_loop_now_ms(call->site->loop) + (ms > 0 ? (uint64_t)ms : 0);
}

bool
cn_grpc_call_is_gone(const struct cn_grpc_call *call)
{
    return call->gone;
}

void
cn_grpc_call_hold(struct cn_grpc_call *call)
{
    call->n_holds++;
}

void
cn_grpc_call_release(struct cn_grpc_call *call)
{
    cn_assert(call->n_holds > 0);
    call->n_holds--;
    call_check(call);
}

/* --- servers */

/* The core's own lines go where ours go. */
static void
log_line(gpr_log_func_args *args)
{
    char shown[400];

    cn_log(args->severity == GPR_LOG_SEVERITY_ERROR ? CN_LOG_WARN : CN_LOG_DEBUG,
           "event=grpc_library text=%s",
           cn_log_quote(args->message, strlen(args->message), shown, sizeof(shown)));
}

int
cn_grpc_create(const struct cn_grpc_limits *limits, struct cn_loop *const *loops, unsigned n_loops,
               void *host, struct cn_grpc **out, struct cn_error *err)
{
    struct cn_grpc *grpc = cn_alloc(sizeof(*grpc));
    sigset_t all, before;
    unsigned i;
    int rc;

    gpr_set_log_function(log_line);
    /* Signals are loop 0's: the threads that start here inherit what is blocked. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    grpc_init();
    grpc->limits = *limits;
    grpc->host = host;
    grpc->n_loops = n_loops;
    pthread_mutex_init(&grpc->identity.mutex, NULL);
    grpc->sites = cn_alloc(n_loops * sizeof(*grpc->sites));
    cn_list_init(&grpc->servers);
    for (i = 0; i < n_loops; i++) {
        struct site *site = &grpc->sites[i];

        site->grpc = grpc;
        site->loop = loops[i];
        cn_list_init(&site->waiting);
        cn_list_init(&site->live);
    }
    grpc->queue = grpc_completion_queue_create_for_next(NULL);
    rc = pthread_create(&grpc->thread, NULL, queue_main, grpc);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        grpc_completion_queue_shutdown(grpc->queue);
        while (grpc_completion_queue_next(grpc->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
                   .type != GRPC_QUEUE_SHUTDOWN)
            continue;
        grpc_completion_queue_destroy(grpc->queue);
        grpc_shutdown_blocking();
        cn_free(grpc->sites);
        cn_free(grpc);
        return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start gRPC's thread");
    }
    *out = grpc;
    return 0;
}

static grpc_arg
number(const char *name, uint64_t value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)name};

    arg.value.integer = value < INT32_MAX ? (int)value : INT32_MAX;
    return arg;
}

static grpc_server *
core_create(const struct cn_grpc_limits *limits)
{
    grpc_arg args[] = {
        number(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, limits->message_bytes),
        number(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT32_MAX),
        number(GRPC_ARG_MAX_METADATA_SIZE, limits->metadata_bytes),
        number(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits->calls),
        number(GRPC_ARG_KEEPALIVE_TIME_MS, limits->keepalive_ms),
        number(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_ANSWER_MS),
        number(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        number(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        number(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, MIN_PING_INTERVAL_MS),
        number(GRPC_ARG_ALLOW_REUSEPORT, 0),
        number(GRPC_ARG_ENABLE_CHANNELZ, 0), /* its traces cost memory per connection */
    };
    grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};

    return grpc_server_create(&all, NULL);
}

void
cn_grpc_set_identity(struct cn_grpc *grpc, const struct cn_grpc_identity *identity)
{
    struct identity *own = &grpc->identity;

    pthread_mutex_lock(&own->mutex);
    cn_free(own->certificate);
    cn_free(own->key);
    cn_free(own->client_ca);
    own->certificate = cn_strndup(identity->certificate.ptr, identity->certificate.len);
    own->key = cn_strndup(identity->key.ptr, identity->key.len);
    own->client_ca = identity->client_ca.len
                         ? cn_strndup(identity->client_ca.ptr, identity->client_ca.len)
                         : NULL;
    own->generation++;
    pthread_mutex_unlock(&own->mutex);
}

/* A handshake begins, on some thread of the core's. */
static grpc_ssl_certificate_config_reload_status
fetch_identity(void *ctx, grpc_ssl_server_certificate_config **out)
{
    struct cn_grpc_server *server = ctx;
    struct identity *own = &server->grpc->identity;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

    pthread_mutex_lock(&own->mutex);
    if (server->identity_generation != own->generation) {
        grpc_ssl_pem_key_cert_pair pair = {own->key, own->certificate};

        server->identity_generation = own->generation;
        /* It insists on roots, also where no client is asked for a certificate. */
        *out = grpc_ssl_server_certificate_config_create(
            own->client_ca ? own->client_ca : own->certificate, &pair, 1);
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&own->mutex);
    return status;
}

/* The core listens itself: it takes ready-made connections only without TLS. */
static void
listen_tls(struct cn_grpc_server *server, const char *host, uint16_t *port)
{
    grpc_ssl_client_certificate_request_type asked =
        server->grpc->identity.client_ca
            ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
            : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    char address[300];

    server->tls = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(asked, fetch_identity,
                                                                        server));
    snprintf(address, sizeof(address), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, *port);
    *port = (uint16_t)grpc_server_add_http2_port(server->core, address, server->tls);
}

/* On each loop: begin to ask for calls. */
static void
start_site(struct cn_msg *msg)
{
    struct orders *orders = cn_container_of(msg, struct orders, start);
    struct cn_grpc_server *server = orders->server;
    struct site *site = orders->site;
    unsigned index, i;

    for (index = 0; index <= server->n_methods; index++) {
        if (index < server->n_methods && server->methods[index].home_only &&
            site != &site->grpc->sites[0])
            continue;
        for (i = 0; i < PREPOSTED; i++)
            ask_for_call(site, server, index);
    }
}

static void
drain_site(struct cn_msg *msg)
{
    struct orders *orders = cn_container_of(msg, struct orders, drain);
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &orders->site->live) {
        struct cn_grpc_call *call = cn_container_of(node, struct cn_grpc_call, link);

        if (call->server == orders->server && call->method && call->method->on_drain)
            call->method->on_drain(call);
    }
}

static void
ignore(struct cn_msg *msg)
{
    (void)msg;
}

struct cn_grpc_server *
cn_grpc_serve(struct cn_grpc *grpc, const struct cn_grpc_method *methods,
              cn_grpc_authorize_fn authorize, const char *tls_host, uint16_t *tls_port)
{
    struct cn_grpc_server *server = cn_alloc(sizeof(*server));
    unsigned i;

    server->grpc = grpc;
    server->core = core_create(&grpc->limits);
    server->plain = grpc_insecure_server_credentials_create();
    server->methods = methods;
    server->authorize = authorize;
    while (methods[server->n_methods].path)
        server->n_methods++;
    tag_init(&server->stopped, grpc->sites[0].loop, ignore);
    server->handles = cn_alloc(server->n_methods * sizeof(*server->handles));
    for (i = 0; i < server->n_methods; i++) {
        server->handles[i] = grpc_server_register_method(
            server->core, methods[i].path, NULL,
            methods[i].client_streams ? GRPC_SRM_PAYLOAD_NONE
                                      : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
            0);
        cn_assert(server->handles[i]);
    }
    grpc_server_register_completion_queue(server->core, grpc->queue, NULL);
    if (tls_host)
        listen_tls(server, tls_host, tls_port);
    grpc_server_start(server->core);
    server->orders = cn_alloc(grpc->n_loops * sizeof(*server->orders));
    for (i = 0; i < grpc->n_loops; i++) {
        server->orders[i] =
            (struct orders){{NULL, start_site}, {NULL, drain_site}, server, &grpc->sites[i]};
        cn_loop_post(grpc->sites[i].loop, &server->orders[i].start);
    }
    cn_list_push_back(&grpc->servers, &server->link);
    return server;
}

void
cn_grpc_server_connect(struct cn_grpc_server *server, int fd)
{
    grpc_server_add_channel_from_fd(server->core, fd, server->plain);
}

void
cn_grpc_server_drain(struct cn_grpc_server *server)
{
    unsigned i;

    if (server->draining)
        return;
    server->draining = true;
    passes_to_core(&server->stopped);
    grpc_server_shutdown_and_notify(server->core, server->grpc->queue, &server->stopped);
    for (i = 0; i < server->grpc->n_loops; i++)
        cn_loop_post(server->grpc->sites[i].loop, &server->orders[i].drain);
}

const struct cn_grpc_method *
cn_grpc_server_methods(const struct cn_grpc_server *server)
{
    return server->methods;
}

void
cn_grpc_cut(struct cn_grpc *grpc)
{
    struct cn_list *node;

    cn_list_for_each(node, &grpc->servers)
        grpc_server_cancel_all_calls(cn_container_of(node, struct cn_grpc_server, link)->core);
}

bool
cn_grpc_is_empty(const struct cn_grpc *grpc, unsigned loop)
{
    return grpc->sites[loop].n_live == 0 && grpc->sites[loop].n_waiting == 0;
}

static void
server_destroy(struct cn_grpc_server *server)
{
    cn_list_remove(&server->link);
    grpc_server_destroy(server->core);
    grpc_server_credentials_release(server->plain);
    if (server->tls)
        grpc_server_credentials_release(server->tls);
    cn_free(server->handles);
    cn_free(server->orders);
    cn_free(server);
}

void
cn_grpc_destroy(struct cn_grpc *grpc)
{
    struct cn_list *node, *next;
    unsigned i;

    if (!grpc)
        return;
    cn_list_for_each(node, &grpc->servers) /* where the loops never came to it */
        cn_grpc_server_drain(cn_container_of(node, struct cn_grpc_server, link));
    cn_grpc_cut(grpc);
    grpc_completion_queue_shutdown(grpc->queue);
    pthread_join(grpc->thread, NULL);
    grpc_completion_queue_destroy(grpc->queue);
    for (i = 0; i < grpc->n_loops; i++) {
        cn_assert(cn_list_empty(&grpc->sites[i].live));
        while (!cn_list_empty(&grpc->sites[i].waiting))
            call_destroy(cn_container_of(grpc->sites[i].waiting.next, struct cn_grpc_call, link));
    }
    cn_list_for_each_safe(node, next, &grpc->servers)
        server_destroy(cn_container_of(node, struct cn_grpc_server, link));
    grpc_shutdown_blocking();
    cn_free(grpc->identity.certificate);
    cn_free(grpc->identity.key);
    cn_free(grpc->identity.client_ca);
    pthread_mutex_destroy(&grpc->identity.mutex);
    cn_free(grpc->sites);
    cn_free(grpc);
}
