/* grpc/library/grpc_call.c - the life of a call, and what a method may ask of it. On the call's
 * loop; grpc_priv.h has the core's rules.
 *
 * The life of a struct cn_grpc_call: 1. Asked for. The core delivers a call only to somebody who
 * has asked for one. So each loop keeps some calls of each method asked for (`waiting`). 2.
 * Accepted. on_accepted() asks for the next call in its place, checks this one (limits, key), and
 * hands it to its method. 3. Watched. An operation that completes when the client is gone costs a
 * tenth of a short call. So a unary call is watched only after a while, or together with its
 * end; a stream is watched at once (grpc_watch.c). 4. Finished. The method has called
 * cn_grpc_call_finish(), and the status has been handed to the core (`end_sent`). 5. Freed, by
 * call_check(), when the end has been sent, no operation of the core is under way (`n_busy`), and
 * nobody holds it (`n_holds`). The core never forgets an operation, so n_busy always returns to 0.
 *
 * If the client leaves first, on_closed() drops what has not been sent, tells the method (on_gone)
 * and finishes the call itself.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "grpc/error_status.h"
#include "grpc/library/grpc_priv.h"
#include "metrics/counters/metrics.h"

#define CALL_MAGIC 0x434e4743u /* "CNGC" */

void
cn_grpc_tag_init(struct cn_grpc_tag *tag, struct cn_loop *loop, void (*fn)(struct cn_msg *msg))
{
    tag->msg.fn = fn;
    tag->loop = loop;
}

void
cn_grpc_start_batch(struct cn_grpc_call *call, const grpc_op *ops, size_t n,
                    struct cn_grpc_tag *tag)
{
    grpc_call_error rc;

    call->n_busy++;
    passes_to_core(tag);
    rc = grpc_call_start_batch(call->core, ops, n, tag, NULL);
    if (rc != GRPC_CALL_OK) /* we have broken a rule of the core's API */
        cn_panic(__FILE__, __LINE__, "cn_grpc_start_batch: %s", grpc_call_error_to_string(rc));
}

static void on_accepted(struct cn_msg *msg);
static void on_closed(struct cn_msg *msg);

/* The client has not taken a message within --write-timeout. */
static void
on_write_late(struct cn_timer *timer)
{
    struct cn_grpc_call *call = cn_container_of(timer, struct cn_grpc_call, write_timer);

    cn_log(CN_LOG_DEBUG, "event=grpc_write_timeout method=%s",
           call->method ? call->method->path : "");
    grpc_call_cancel_with_status(call->core, GRPC_STATUS_DEADLINE_EXCEEDED,
                                 "the client does not read its answers", NULL);
}

static struct cn_grpc_call *
call_create(struct cn_grpc_site *site, struct cn_grpc_server *server, unsigned index)
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
    cn_grpc_tag_init(&call->accepted, site->loop, on_accepted);
    call->accepted.taken = cn_grpc_watch_accepted;
    cn_grpc_tag_init(&call->closed, site->loop, on_closed);
    call->closed.taken = cn_grpc_watch_closed;
    cn_grpc_tag_init(&call->read, site->loop, cn_grpc_on_read);
    cn_grpc_tag_init(&call->wrote, site->loop, cn_grpc_on_wrote);
    cn_list_init(&call->link);
    cn_list_init(&call->out);
    cn_timer_init(&call->write_timer, on_write_late);
    cn_timer_init(&call->watch_timer, cn_grpc_watch_on_timer);
    cn_arena_init(&call->arena);
    return call;
}

void
cn_grpc_call_destroy(struct cn_grpc_call *call)
{
    uint32_t i;

    cn_unread_done(call->site->loop, &call->unread);
    cn_grpc_drop_received(call);
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
    cn_timer_cancel(&call->watch_timer);
    cn_list_remove(&call->link);
    cn_arena_fini(&call->arena);
    cn_free(call);
}

/* Frees the call once nobody needs it any more: see 5. in the head of this file. */
static void
call_check(struct cn_grpc_call *call)
{
    if (call->n_busy || call->n_holds || !call->end_sent || call->freeing)
        return;
    call->freeing = true; /* on_free may release holds, which calls this function again */
    if (call->method && call->method->on_free)
        call->method->on_free(call);
    call->site->n_live--;
    cn_metrics_sub(cn_loop_metrics(call->site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    cn_grpc_call_destroy(call);
}

static void
on_closed(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, closed.msg);

    call->n_busy--;
    call->n_holds++;
    if (call->was_cancelled && !call->gone) {
        call->gone = true;
        cn_grpc_drop_outgoing(call);
        if (call->method && call->method->on_gone)
            call->method->on_gone(call);
        cn_grpc_call_finish(call, NULL, &(struct cn_grpc_status){.code = GRPC_STATUS_CANCELLED});
        cn_grpc_call_pump(
            call); /* it may have been finished before, with messages that are dropped now */
    }
    cn_grpc_call_release(call);
}

/* Checks a call before its method sees it. Returns 0, or the error with which it is refused. */
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
    if (!cn_grpc_reads_later(call->site->grpc, call->method) && !call->received)
        return cn_fail(err, CN_E_PROTOCOL, "the call ended without its request message");
    return 0;
}

/* Hands an accepted call to its method. */
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
    if (cn_grpc_reads_later(call->site->grpc, call->method)) {
        cn_grpc_call_read(call);
        return;
    }
    message.bytes = call->received;
    call->method->on_message(call, &message);
    cn_grpc_drop_received(call);
}

/* A client has made a call for which the server had asked. If the tag is not ok, the server stops.
 */
static void
on_accepted(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, accepted.msg);
    struct cn_grpc_site *site = call->site;

    site->n_waiting--;
    if (!call->accepted.ok) {
        cn_grpc_call_destroy(call);
        return;
    }
    cn_grpc_ask_for_call(site, call->server, call->method_index);
    cn_list_remove(&call->link);
    cn_list_push_back(&site->live, &call->link);
    site->n_live++;
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS, 1);
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    if (!call->method)
        call->deadline = call->details.deadline;
    cn_grpc_call_hold(call);
    cn_grpc_watch_begin(call);
    call_open(call);
    cn_grpc_call_release(call);
}

void
cn_grpc_ask_for_call(struct cn_grpc_site *site, struct cn_grpc_server *server, unsigned index)
{
    struct cn_grpc_call *call = call_create(site, server, index);
    grpc_completion_queue *queue = site->grpc->taker.queue;
    grpc_call_error rc;

    cn_list_push_back(&site->waiting, &call->link);
    site->n_waiting++;
    passes_to_core(&call->accepted);
    if (call->method)
        rc = grpc_server_request_registered_call(
            server->core, server->handles[index], &call->core, &call->deadline, &call->metadata,
            cn_grpc_reads_later(site->grpc, call->method) ? NULL : &call->received, queue, queue,
            &call->accepted);
    else
        rc = grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata,
                                      queue, queue, &call->accepted);
    if (rc != GRPC_CALL_OK)
        cn_panic(__FILE__, __LINE__, "request_call: %s", grpc_call_error_to_string(rc));
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

const struct cn_grpc_method *
cn_grpc_call_method(const struct cn_grpc_call *call)
{
    return call->method;
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

void
cn_grpc_call_set_key(struct cn_grpc_call *call, const struct cn_key *key)
{
    call->key = key;
}

const struct cn_key *
cn_grpc_call_key(const struct cn_grpc_call *call)
{
    return call->key;
}

void
cn_grpc_call_set_certificate_end(struct cn_grpc_call *call, uint64_t ends_wall_ms)
{
    call->certificate_ends_ms = ends_wall_ms;
}

uint64_t
cn_grpc_call_certificate_end(const struct cn_grpc_call *call)
{
    return call->certificate_ends_ms;
}

struct cn_str
cn_grpc_call_certificate(struct cn_grpc_call *call)
{
    grpc_auth_context *context = grpc_call_auth_context(call->core);
    struct cn_str pem = {NULL, 0};
    grpc_auth_property_iterator found;
    const grpc_auth_property *property;

    if (!context)
        return pem;
    /* Only the TLS transport sets this property, after it has verified the certificate. */
    found = grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    property = grpc_auth_property_iterator_next(&found);
    if (property)
        pem = cn_arena_str(&call->arena, (struct cn_str){property->value, property->value_length});
    grpc_auth_context_release(context);
    return pem;
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

        /* Short slices hold their bytes inside. The array of slices does not move, so the pointers
         * stay valid. */
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

const atomic_bool *
cn_grpc_call_left(const struct cn_grpc_call *call)
{
    return &call->left;
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
