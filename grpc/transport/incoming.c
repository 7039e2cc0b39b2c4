/* grpc/transport/incoming.c - puts a client's messages together. On the call's loop.
 *
 * A message is a prefix of five bytes (a flag that says whether it is compressed, and its length)
 * and its bytes; frames of HTTP/2 cut them anywhere. The next message is put together before the
 * method asks for it, and then waits. What comes behind it is kept in `rest`, and its part of the
 * stream's window is not opened again, so a client can have one message and CN_GRPC_STREAM_WINDOW
 * bytes in the server that its method has not asked for.
 *
 * Memory grows with the bytes that have come, never with the length that was announced. Where a
 * large message has grown room, its next bytes are read from the socket into it.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "grpc/error_status.h"
#include "grpc/transport/transport_priv.h"

#define FIRST_ROOM 4096u
#define DEADLINE_EXCEEDED 4
/* There is room for this many times the bytes that have come, up to the message's length, because
 * each growth may copy them. Room that is not used yet costs addresses and no memory, so only the
 * bytes that have come are counted. */
#define ROOM_TIMES 16u
#define DIRECT_BYTES 4096u /* fewer are not worth a part of their own in a read */

static bool
is_complete(const struct cn_grpc_inbox *in)
{
    return in->n_prefix == CN_GRPC_PREFIX_BYTES && in->have == in->len;
}

static void
drop_message(struct cn_grpc_call *call)
{
    struct cn_grpc_inbox *in = &call->in;

    cn_timer_cancel(&call->read_timer);
    cn_free(in->bytes);
    in->bytes = NULL;
    in->have = in->room = in->len = 0;
    in->n_prefix = 0;
    cn_request_bytes_done(&in->held.counted);
}

static void
drop_rest(struct cn_grpc_inbox *in)
{
    cn_buf_fini(&in->rest);
    in->rest_at = 0;
    cn_request_bytes_done(&in->held_rest.counted);
}

void
cn_grpc_drop_received(struct cn_grpc_call *call)
{
    drop_message(call);
    drop_rest(&call->in);
}

/* The prefix is complete: checks it. */
static bool
check_prefix(struct cn_grpc_call *call, struct cn_error *err)
{
    struct cn_grpc_inbox *in = &call->in;
    const uint8_t *at = in->prefix;
    uint64_t most = call->site->grpc->limits.message_bytes;

    in->len = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
    if (at[0] > 1 || (at[0] == 1 && call->head.coding == CN_CODING_IDENTITY)) {
        cn_fail(err, CN_E_PROTOCOL,
                at[0] > 1 ? "a message does not begin as gRPC's messages do"
                          : "a message is compressed, but the call has no grpc-encoding");
        return false;
    }
    if (in->len > most) {
        cn_fail(err, CN_E_TOO_LARGE,
                "the message has %u bytes; at most %llu are allowed (max-v2-request-size)", in->len,
                (unsigned long long)most);
        return false;
    }
    return true;
}

/* There will be `now` bytes. What was charged to the call stays charged until its end. */
static int
hold(struct cn_grpc_call *call, struct cn_grpc_held *held, size_t now, struct cn_error *err)
{
    size_t charged = now < CN_REQUEST_BYTES_STEP ? now : CN_REQUEST_BYTES_STEP;

    if (!cn_request_bytes_take(&held->counted, now))
        return cn_request_bytes_refuse(err);
    if (charged <= held->charged)
        return 0;
    if (cn_grpc_call_charge(call, charged - held->charged, err))
        return err->code;
    held->charged = (uint32_t)charged;
    return 0;
}

/* Makes the room large enough for the message's first `len` bytes. */
static bool
grow(struct cn_grpc_inbox *in, size_t len, struct cn_error *err)
{
    uint64_t room = len > FIRST_ROOM / ROOM_TIMES ? (uint64_t)len * ROOM_TIMES : FIRST_ROOM;
    char *bytes;

    if (len <= in->room)
        return true;
    if (room > in->len)
        room = in->len;
    bytes = cn_try_realloc(in->bytes, room);
    if (!bytes) {
        cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a message of %u bytes", in->len);
        return false;
    }
    in->bytes = bytes;
    in->room = (uint32_t)room;
    return true;
}

/* Makes room for `len` more bytes of the message, which have come. */
static bool
make_room(struct cn_grpc_call *call, size_t len, struct cn_error *err)
{
    struct cn_grpc_inbox *in = &call->in;

    return hold(call, &in->held, in->have + len, err) == 0 && grow(in, in->have + len, err);
}

/* Takes bytes up to the end of the message. Returns how many; -1 with the error: the call must end.
 */
static ptrdiff_t
take(struct cn_grpc_call *call, const char *bytes, size_t len, struct cn_error *err)
{
    struct cn_grpc_inbox *in = &call->in;
    size_t done = 0, n;

    if (in->n_prefix < CN_GRPC_PREFIX_BYTES) {
        done = CN_GRPC_PREFIX_BYTES - in->n_prefix;
        done = done < len ? done : len;
        memcpy(in->prefix + in->n_prefix, bytes, done);
        in->n_prefix = (uint8_t)(in->n_prefix + done);
        if (in->n_prefix == CN_GRPC_PREFIX_BYTES && !check_prefix(call, err))
            return -1;
    }
    n = in->len - in->have < len - done ? in->len - in->have : len - done;
    if (n == 0)
        return (ptrdiff_t)done;
    if (!make_room(call, n, err))
        return -1;
    if (bytes + done != in->bytes + in->have) /* else they were read to their place */
        memcpy(in->bytes + in->have, bytes + done, n);
    in->have += (uint32_t)n;
    return (ptrdiff_t)(done + n);
}

static void
consume(struct cn_grpc_call *call, size_t len)
{
    if (!call->conn || len == 0)
        return;
    nghttp2_session_consume_stream(call->conn->h2, call->stream, len);
    cn_grpc_conn_touch(call->conn); /* the window may have to be opened */
}

static void
fail(struct cn_grpc_call *call, const struct cn_error *err)
{
    cn_grpc_drop_received(call);
    cn_rpc_fail(call, err->code, err->message, 0);
}

/* Are further bytes of no use? Either the call ends, or it has had its only message. */
static bool
is_deaf(const struct cn_grpc_call *call)
{
    return call->gone || call->is_finishing ||
           (!call->method->client_streams && !call->reading && !call->delivering);
}

/* Takes what has come behind the last message. */
static void
take_rest(struct cn_grpc_call *call)
{
    struct cn_grpc_inbox *in = &call->in;
    struct cn_error err;
    ptrdiff_t n;

    if (in->rest_at == in->rest.len || is_complete(in))
        return;
    n = take(call, in->rest.data + in->rest_at, in->rest.len - in->rest_at, &err);
    if (n < 0) {
        fail(call, &err);
        return;
    }
    in->rest_at += (size_t)n;
    consume(call, (size_t)n);
    if (in->rest_at == in->rest.len)
        drop_rest(in);
}

/* Hands the message to the method. */
static void
hand_over(struct cn_grpc_call *call)
{
    struct cn_grpc_inbox *in = &call->in;
    struct cn_grpc_message message = {{in->bytes, in->len}, in, call};
    const size_t most = call->site->grpc->limits.message_bytes;
    struct cn_buf inflated;
    struct cn_error err;

    call->reading = false;
    cn_buf_init(&inflated, 0);
    if (in->prefix[0] && cn_inflate(message.bytes, most, &inflated, &err)) {
        if (inflated.len > most) /* over HTTP that is a bad request, as Triton has it */
            err.code = CN_E_TOO_LARGE;
        fail(call, &err);
    } else {
        if (in->prefix[0])
            message = (struct cn_grpc_message){cn_buf_str(&inflated), NULL, call};
        call->method->on_message(call, &message);
        drop_message(call);
    }
    cn_buf_fini(&inflated);
}

/* The client has sent everything. */
static void
hand_over_end(struct cn_grpc_call *call)
{
    call->reading = false;
    if (call->in.n_prefix)
        cn_rpc_fail(call, CN_E_PROTOCOL, "the client's last message is not complete", 0);
    else if (call->method->client_streams)
        call->method->on_half_close(call);
    else
        cn_rpc_fail(call, CN_E_PROTOCOL, "the call ended without its request message", 0);
}

/* A message that has begun must be complete in time. Most are complete at once. */
static void
watch_arrival(struct cn_grpc_call *call)
{
    if (call->in.n_prefix == 0 || is_complete(&call->in) || is_deaf(call))
        cn_timer_cancel(&call->read_timer);
    else if (!cn_timer_armed(&call->read_timer))
        cn_timer_set(cn_loop_wheel(call->site->loop), &call->read_timer,
                     cn_loop_now_ms(call->site->loop) + call->site->grpc->limits.read_ms);
}

/* Gives the method what it has asked for, if it is there. The method may ask for more meanwhile. */
static void
deliver(struct cn_grpc_call *call)
{
    if (call->delivering)
        return;
    call->delivering = true;
    cn_grpc_call_hold(call);
    for (;;) {
        take_rest(call);
        if (!call->reading || call->gone || call->is_finishing)
            break;
        if (is_complete(&call->in))
            hand_over(call);
        else if (call->half_closed && call->in.rest_at == call->in.rest.len)
            hand_over_end(call);
        else
            break;
    }
    call->delivering = false;
    if (is_deaf(call)) {
        consume(call, call->in.rest.len - call->in.rest_at);
        cn_grpc_drop_received(call);
    }
    watch_arrival(call);
    cn_grpc_call_release(call);
}

/* Keeps what comes behind a message that waits. */
static void
keep_rest(struct cn_grpc_call *call, const uint8_t *bytes, size_t len)
{
    struct cn_grpc_inbox *in = &call->in;
    struct cn_error err;

    if (in->rest_at > in->rest.len / 2) {
        cn_buf_consume(&in->rest, in->rest_at);
        in->rest_at = 0;
    }
    if (hold(call, &in->held_rest, in->rest.len + len, &err) == 0) {
        if (cn_buf_append(&in->rest, bytes, len) == 0)
            return;
        cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the client's messages");
    }
    fail(call, &err);
}

void
cn_grpc_on_read_late(struct cn_timer *timer)
{
    cn_grpc_call_abort(cn_container_of(timer, struct cn_grpc_call, read_timer), DEADLINE_EXCEEDED,
                       "a message did not arrive in time (body-timeout)");
}

/* Is it time to make more room for a large message, of which much has come? */
static bool
is_filling_up(const struct cn_grpc_inbox *in)
{
    const uint32_t left = in->room - in->have;

    return in->room < in->len && in->have >= DIRECT_BYTES && left < CN_GRPC_IN_BYTES &&
           left <= in->have;
}

struct iovec
cn_grpc_receive_room(struct cn_grpc_call *call, size_t most)
{
    struct cn_grpc_inbox *in = &call->in;
    struct cn_error err;

    if (is_deaf(call) || in->n_prefix < CN_GRPC_PREFIX_BYTES || is_complete(in))
        return (struct iovec){0};
    if (is_filling_up(in))
        grow(in, in->room + 1u, &err); /* if there is no memory, cn_grpc_receive() says so */
    if (most > in->room - in->have)
        most = in->room - in->have;
    return (struct iovec){in->bytes + in->have, most < DIRECT_BYTES ? 0 : most};
}

void
cn_grpc_receive(struct cn_grpc_call *call, const uint8_t *bytes, size_t len)
{
    struct cn_error err;
    ptrdiff_t n = 0;

    cn_grpc_call_hold(call);
    while (len > 0 && !is_deaf(call) && !is_complete(&call->in)) {
        n = take(call, (const char *)bytes, len, &err);
        if (n < 0) {
            fail(call, &err);
            break;
        }
        bytes += n;
        len -= (size_t)n;
        consume(call, (size_t)n);
        if (is_complete(&call->in))
            deliver(call);
    }
    if (len > 0 && is_deaf(call))
        consume(call, len);
    else if (len > 0)
        keep_rest(call, bytes, len);
    watch_arrival(call);
    cn_grpc_call_release(call);
}

void
cn_grpc_receive_end(struct cn_grpc_call *call)
{
    call->half_closed = true;
    deliver(call);
}

void
cn_grpc_on_work(struct cn_deferred *work)
{
    deliver(cn_container_of(work, struct cn_grpc_call, work));
}

void
cn_grpc_call_read(struct cn_grpc_call *call)
{
    cn_assert(!call->reading);
    if (call->gone || call->is_finishing)
        return;
    call->reading = true;
    /* Not at once: the caller may be in the middle of something. */
    if (!call->delivering && (call->half_closed || is_complete(&call->in)))
        cn_loop_defer(call->site->loop, &call->work);
}

size_t
cn_grpc_message_bytes(const struct cn_grpc_message *message)
{
    return message->bytes.len;
}

void
cn_grpc_message_copy(const struct cn_grpc_message *message, char *out)
{
    if (message->bytes.len)
        memcpy(out, message->bytes.ptr, message->bytes.len);
}

/* What is not counted among all requests is counted among the bytes of the call, as long as the
 * message is kept: a stream may keep many. A call with one message has counted it already. */
static int
charge_kept(const struct cn_grpc_message *message, struct cn_grpc_kept *kept, struct cn_error *err)
{
    struct cn_grpc_call *call = message->call;
    const size_t bytes = message->bytes.len % CN_REQUEST_BYTES_STEP;
    const size_t before = call->method->client_streams ? 0 : call->in.held.charged;

    if (bytes <= before)
        return 0;
    if (cn_grpc_call_charge(call, bytes - before, err))
        return err->code;
    kept->call = call;
    kept->charged = (uint32_t)(bytes - before);
    return 0;
}

int
cn_grpc_message_keep(const struct cn_grpc_message *message, struct cn_arena *arena,
                     struct cn_grpc_kept *kept, struct cn_error *err)
{
    const size_t len = message->bytes.len;
    char *copy;

    if (charge_kept(message, kept, err))
        return err->code;
    if (message->in && len >= CN_REQUEST_BYTES_STEP) {
        kept->owned = message->in->bytes;
        kept->bytes = message->bytes;
        message->in->bytes = NULL;
        cn_request_bytes_move(&kept->held, &message->in->held.counted);
        return 0;
    }
    if (!cn_request_bytes_take(&kept->held, len))
        return cn_request_bytes_refuse(err);
    copy = cn_arena_try_alloc(arena, len ? len : 1);
    if (!copy)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a message of %zu bytes",
                       len);
    cn_grpc_message_copy(message, copy);
    kept->bytes = (struct cn_str){copy, len};
    return 0;
}

void
cn_grpc_kept_free(struct cn_grpc_kept *kept)
{
    cn_free(kept->owned);
    cn_request_bytes_done(&kept->held);
    if (kept->call)
        cn_grpc_call_uncharge(kept->call, kept->charged);
}
