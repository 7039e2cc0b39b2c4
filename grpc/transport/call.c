/* grpc/transport/call.c - the life of a call, and what a method may ask of it. On the call's loop.
 *
 * 1. Begun: the request's metadata are complete (cn_grpc_call_begin), and nghttp2's stream points
 *    to the call.
 * 2. Open: the call was checked (limits, key) and handed to its method, which gets the messages.
 * 3. Finished: the method has called cn_grpc_call_finish() (is_finishing), and nghttp2 has made the
 *    last frame of the answer (end_sent).
 * 4. Closed: nghttp2 has closed the stream, so it has forgotten the call (conn is NULL).
 * 5. Freed by call_check(), when the call is finished and closed and nobody holds it.
 *
 * If the stream closes before the end is sent, the client has left: leave() drops what was
 * not sent, tells the method (on_gone), and finishes the call itself.
 */
#include <string.h>

#include "access/audit.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/intake/client_addresses.h"
#include "grpc/error_status.h"
#include "grpc/transport/transport_priv.h"
#include "metrics/counters/metrics.h"

#define CALL_MAGIC 0x434e4743u /* "CNGC" */
/* What a call takes besides its state and its metadata: the call, the first block of its arena, and
 * what nghttp2 keeps of its stream. */
#define CALL_BYTES (sizeof(struct cn_grpc_call) + 3072 + 512)
#define LAST_FRAME_MS 500 /* for which the client's last frame is awaited after the answer */
#define CANCELLED 1
#define DEADLINE_EXCEEDED 4
#define RESOURCE_EXHAUSTED 8

static void
call_destroy(struct cn_grpc_call *call)
{
    cn_unread_done(call->site->loop, &call->unread);
    cn_grpc_drop_received(call);
    cn_timer_cancel(&call->read_timer);
    cn_timer_cancel(&call->write_timer);
    cn_timer_cancel(&call->deadline_timer);
    cn_list_remove(&call->work.link);
    cn_list_remove(&call->link);
    cn_arena_fini(&call->head.arena);
    cn_free(call);
}

/* Frees the call once nobody needs it any more: see 5. in the head of this file. */
static void
call_check(struct cn_grpc_call *call)
{
    if (call->n_holds || call->conn || !call->is_finishing || call->freeing)
        return;
    call->freeing = true; /* on_free may release holds, which calls this function again */
    if (call->method && call->method->on_free)
        call->method->on_free(call);
    call->site->n_live--;
    call->site->bytes -= call->bytes;
    cn_metrics_sub(cn_loop_metrics(call->site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    call_destroy(call);
}

int
cn_grpc_call_charge(struct cn_grpc_call *call, size_t bytes, struct cn_error *err)
{
    const struct cn_grpc *grpc = call->site->grpc;
    const uint64_t most = grpc->limits.memory_bytes / grpc->n_loops;

    if (call->site->bytes + bytes > most)
        return cn_fail(err, CN_E_TOO_MANY_CALLS,
                       "the open calls of this loop take %llu bytes, which is the limit "
                       "(grpc-memory, divided by the number of loops); try again later",
                       (unsigned long long)most);
    call->site->bytes += bytes;
    call->bytes += (uint32_t)bytes;
    return 0;
}

void
cn_grpc_call_uncharge(struct cn_grpc_call *call, uint32_t bytes)
{
    call->site->bytes -= bytes;
    call->bytes -= bytes;
}

/* Tells the client that no more of its request is needed (RFC 9113, 8.1). */
static void
reset_politely(struct cn_grpc_call *call)
{
    nghttp2_submit_rst_stream(call->conn->h2, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
    cn_grpc_conn_touch(call->conn);
}

static void
on_deadline(struct cn_timer *timer)
{
    struct cn_grpc_call *call = cn_container_of(timer, struct cn_grpc_call, deadline_timer);

    if (call->end_sent && call->conn)
        reset_politely(call);
    else
        cn_grpc_call_abort(call, DEADLINE_EXCEEDED, "Deadline Exceeded");
}

/* A client may be answered before it has sent its last frame, which most often is under way then. A
 * reset would only cost it time, so it comes when the frame is late. */
void
cn_grpc_call_end_sent(struct cn_grpc_call *call)
{
    call->end_sent = true;
    if (call->half_closed)
        return;
    if (call->conn->draining || !call->opened || call->gone)
        reset_politely(call); /* it is not worth its memory any more */
    else
        cn_timer_set(cn_loop_wheel(call->site->loop), &call->deadline_timer,
                     cn_loop_now_ms(call->site->loop) + LAST_FRAME_MS);
}

static const struct cn_grpc_method *
find_method(const struct cn_grpc_server *server, struct cn_str path)
{
    for (unsigned i = 0; i < server->n_methods; i++)
        if (cn_str_eq(path, cn_str_from(server->methods[i].path)))
            return &server->methods[i];
    return NULL;
}

/* Checks a call before its method sees it. Returns 0, or the error with which it is refused. */
static int
check_call(struct cn_grpc_call *call, struct cn_error *err)
{
    const struct cn_grpc_limits *limits = &call->site->grpc->limits;
    char path[128];

    if (call->head.wrong)
        return cn_fail(err, call->head.wrong_code, "%s", call->head.wrong);
    if (!call->method)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "this port has no method %s; server reflection lists its services",
                       cn_log_quote(call->head.path.ptr, call->head.path.len, path, sizeof(path)));
    if (call->site->n_live > limits->calls)
        return cn_fail(err, CN_E_TOO_MANY_CALLS,
                       "%u calls are open, which is the limit (grpc-max-calls); try again later",
                       limits->calls);
    if (cn_grpc_call_charge(call, CALL_BYTES + call->method->state_bytes + call->head.bytes, err))
        return err->code;
    return call->method->needs_no_key ? 0 : call->server->authorize(call, err);
}

/* Hands a call to its method, if it is not refused. */
static void
open_call(struct cn_grpc_call *call)
{
    struct cn_error err;

    cn_grpc_call_hold(call);
    if (call->head.deadline_ms != CN_NEVER)
        cn_timer_set(cn_loop_wheel(call->site->loop), &call->deadline_timer,
                     call->head.deadline_ms);
    if (check_call(call, &err)) {
        cn_rpc_fail(call, err.code, err.message, 0);
    } else {
        call->opened = true;
        if (call->method->on_open)
            call->method->on_open(call);
        cn_grpc_call_read(call);
    }
    cn_grpc_call_release(call);
}

void
cn_grpc_call_begin(struct cn_grpc_conn *conn, int32_t stream)
{
    struct cn_grpc_site *site = conn->site;
    const struct cn_grpc_method *method = find_method(conn->server, conn->head.path);
    struct cn_grpc_call *call = cn_alloc(sizeof(*call) + (method ? method->state_bytes : 0));

    call->magic = CALL_MAGIC;
    call->stream = stream;
    call->conn = conn;
    call->server = conn->server;
    call->method = method;
    call->site = site;
    call->head = conn->head;
    cn_arena_init(&conn->head.arena); /* it is the call's now */
    cn_buf_init(&call->in.rest, 0);
    call->work.fn = cn_grpc_on_work;
    cn_list_init(&call->work.link);
    cn_list_init(&call->out);
    cn_timer_init(&call->read_timer, cn_grpc_on_read_late);
    cn_timer_init(&call->write_timer, cn_grpc_on_write_late);
    cn_timer_init(&call->deadline_timer, on_deadline);
    cn_list_push_back(&conn->calls, &call->link);
    nghttp2_session_set_stream_user_data(conn->h2, stream, call);
    site->n_live++;
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS, 1);
    cn_metrics_add(cn_loop_metrics(site->loop), CN_M_GRPC_CALLS_OPEN, 1);
    open_call(call);
}

/* Ends the call with this status, behind the messages that wait. */
static void
finish(struct cn_grpc_call *call, const struct cn_grpc_status *status)
{
    call->is_finishing = true;
    call->code = status->code;
    call->word = status->word;
    call->retry_after_s = status->retry_after_s;
    if (status->message)
        call->text = cn_arena_str(&call->head.arena, cn_str_from(status->message));
    if (status->details.len)
        call->details = cn_arena_str(&call->head.arena, status->details);
    if (call->key && call->method->administers)
        cn_key_audit(call->key, CN_STR("gRPC"), cn_str_from(call->method->path), status->code);
    if (status->code)
        cn_metrics_add(cn_loop_metrics(call->site->loop), CN_M_GRPC_ERRORS, 1);
    cn_timer_cancel(&call->deadline_timer);
    cn_grpc_pump(call);
}

/* Nothing can be sent any more, except for the status, if the stream is open: tells the method, and
 * finishes the call. Messages that are dropped are reported to the method like those that were
 * sent, and it must not take that for success: cn_grpc_call_finish() has no effect meanwhile. */
static void
leave(struct cn_grpc_call *call, const struct cn_grpc_status *status)
{
    if (call->gone)
        return;
    call->gone = true;
    atomic_store_explicit(&call->left, true, memory_order_release);
    cn_grpc_call_hold(call);
    cn_grpc_drop_outgoing(call);
    if (call->opened && call->method->on_gone)
        call->method->on_gone(call);
    if (!call->is_finishing)
        finish(call, status);
    cn_grpc_call_release(call);
}

void
cn_grpc_call_closed(struct cn_grpc_call *call)
{
    cn_grpc_call_hold(call);
    cn_list_remove(&call->link);
    call->conn = NULL;
    if (!call->end_sent)
        leave(call, &(struct cn_grpc_status){.code = CANCELLED});
    cn_grpc_call_release(call);
}

/* Has the client got the begin of a message without its end? */
static bool
is_amid_message(const struct cn_grpc_call *call)
{
    const struct cn_grpc_queued *first;

    if (cn_list_empty(&call->out))
        return false;
    first = cn_container_of(call->out.next, struct cn_grpc_queued, link);
    return first->part > 0 || first->part_at > 0;
}

void
cn_grpc_call_abort(struct cn_grpc_call *call, int code, const char *why)
{
    bool needs_reset = call->is_finishing || is_amid_message(call);
    /* Clients make RESOURCE_EXHAUSTED of the first one, and CANCELLED of the other. */
    const uint32_t reason = code == RESOURCE_EXHAUSTED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_CANCEL;

    if (call->gone || !call->conn)
        return;
    cn_grpc_call_hold(call);
    if (needs_reset) {
        nghttp2_submit_rst_stream(call->conn->h2, NGHTTP2_FLAG_NONE, call->stream, reason);
        cn_grpc_conn_touch(call->conn);
    }
    call->is_reset = needs_reset;
    leave(call, &(struct cn_grpc_status){.code = code, .message = why});
    cn_grpc_call_release(call);
}

void
cn_grpc_call_finish(struct cn_grpc_call *call, const struct cn_grpc_outgoing *last,
                    const struct cn_grpc_status *status)
{
    if (last)
        cn_grpc_queue(call, last);
    /* Also if too many bytes wait for clients: then queueing the message has ended the call, with a
     * status that says so. */
    if (call->is_finishing || call->gone)
        return;
    finish(call, status);
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
    return &call->head.arena;
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

const struct cn_certificate *
cn_grpc_call_certificate(const struct cn_grpc_call *call)
{
    return call->conn ? call->conn->certificate : NULL;
}

const struct cn_header *
cn_grpc_call_headers(struct cn_grpc_call *call, uint32_t *n)
{
    *n = call->head.n_headers;
    return call->head.headers;
}

uint64_t
cn_grpc_call_deadline_ms(const struct cn_grpc_call *call)
{
    return call->head.deadline_ms;
}

int
cn_grpc_call_connection(const struct cn_grpc_call *call)
{
    return call->conn ? call->conn->fd : 0;
}

uint32_t
cn_grpc_call_client(const struct cn_grpc_call *call)
{
    return call->conn ? cn_client_address_number(call->conn->from) : 0;
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
