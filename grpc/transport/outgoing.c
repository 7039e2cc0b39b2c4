/* grpc/transport/outgoing.c - the messages of an answer, on their way to nghttp2. On the call's
 * loop.
 *
 * Messages wait in call->out. At the end of the turn nghttp2 asks how many bytes of data there are
 * (cn_grpc_on_data_wanted), as far as the client's windows allow, and then for a frame with them
 * (cn_grpc_on_send_data), which goes to the outbox from which the connection sends. A message is
 * done as soon as its last byte is there. The outbox points into it, so it is reported, and freed,
 * after the outbox was sent. Then nghttp2 has returned, too, which matters because on_sent may send
 * more.
 *
 * From BORROW_BYTES on a body is not copied into the queue; it is released when it is done. Every
 * message is reported by on_sent exactly once, whether it was sent or dropped; the credit of
 * streams relies on that.
 */
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "grpc/transport/transport_priv.h"

#define BORROW_BYTES 4096 /* a smaller body is copied: that is cheaper than its bookkeeping */
/* A whole message is compressed at once: a few ms for this many bytes, in which the other calls of
 * the loop wait. Larger messages are sent uncompressed. */
#define COMPRESS_MAX_BYTES 262144
#define DEADLINE_EXCEEDED 4
#define RESOURCE_EXHAUSTED 8

/* --- making messages */

static bool
is_borrowed(const struct cn_grpc_outgoing *message, struct cn_str data)
{
    return message->release && data.len >= BORROW_BYTES && data.ptr >= message->body.ptr &&
           data.ptr < message->body.ptr + message->body.len;
}

/* The i-th text of a message: its head, then its body or the two texts of each piece. */
static struct cn_str
text_of(const struct cn_grpc_outgoing *message, uint32_t i)
{
    const struct cn_grpc_piece *piece;

    if (i == 0)
        return message->head;
    if (!message->pieces)
        return message->body;
    piece = &message->pieces[(i - 1) / 2];
    return i % 2 ? piece->head : piece->data;
}

static uint32_t
count_texts(const struct cn_grpc_outgoing *message)
{
    return 1 + (message->pieces ? 2 * message->n_pieces : 1);
}

static void
put_prefix(uint8_t out[CN_GRPC_PREFIX_BYTES], bool compressed, size_t len)
{
    out[0] = compressed;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

/* Makes a message out of its texts. Runs of texts that are copied become one part. NULL: there is
 * not enough memory. */
static struct cn_grpc_queued *
pack(const struct cn_grpc_outgoing *message)
{
    const uint32_t n = count_texts(message);
    size_t copied = CN_GRPC_PREFIX_BYTES, whole = 0;
    uint32_t i, n_parts = 1;
    struct cn_grpc_queued *out;
    struct cn_str text;
    char *at, *run;

    for (i = 0; i < n; i++) {
        text = text_of(message, i);
        whole += text.len;
        if (is_borrowed(message, text))
            n_parts += 2; /* itself, and what is copied after it */
        else
            copied += text.len;
    }
    out = cn_try_alloc(sizeof(*out) + n_parts * sizeof(*out->parts) + copied);
    if (!out)
        return NULL;
    *out = (struct cn_grpc_queued){.parts = (struct cn_str *)(out + 1)};
    run = at = (char *)(out->parts + n_parts);
    put_prefix((uint8_t *)at, false, whole);
    at += CN_GRPC_PREFIX_BYTES;
    for (i = 0; i < n; i++) {
        text = text_of(message, i);
        if (is_borrowed(message, text)) {
            out->parts[out->n_parts++] = (struct cn_str){run, (size_t)(at - run)};
            out->parts[out->n_parts++] = text;
            run = at;
        } else if (text.len) {
            memcpy(at, text.ptr, text.len);
            at += text.len;
        }
    }
    if (at != run)
        out->parts[out->n_parts++] = (struct cn_str){run, (size_t)(at - run)};
    out->wire_bytes = CN_GRPC_PREFIX_BYTES + whole;
    if (message->release && n_parts > 1) {
        out->release = message->release;
        out->arg = message->arg;
    } else if (message->release) {
        message->release(message->arg);
    }
    return out;
}

/* Compresses a message that is in one part. Returns NULL when that does not make it smaller. */
static struct cn_grpc_queued *
compress(const struct cn_grpc_queued *plain)
{
    const size_t room = plain->wire_bytes;
    struct cn_grpc_queued *out = cn_try_alloc(sizeof(*out) + sizeof(*out->parts) + room);
    char *bytes = out ? (char *)(out + 1) + sizeof(*out->parts) : NULL;
    size_t len = 0, n = 0;
    struct cn_compressor *compressor;

    compressor =
        !out ? NULL
             : cn_compressor_create(CN_CODING_GZIP,
                                    (struct cn_str){plain->parts[0].ptr + CN_GRPC_PREFIX_BYTES,
                                                    plain->wire_bytes - CN_GRPC_PREFIX_BYTES});
    while (compressor && CN_GRPC_PREFIX_BYTES + len < room &&
           (n = cn_compressor_read(compressor, bytes + CN_GRPC_PREFIX_BYTES + len,
                                   room - CN_GRPC_PREFIX_BYTES - len)) > 0)
        len += n;
    if (compressor)
        cn_compressor_destroy(compressor);
    if (!compressor || n > 0) {
        cn_free(out);
        return NULL;
    }
    put_prefix((uint8_t *)bytes, true, len);
    *out = (struct cn_grpc_queued){.parts = (struct cn_str *)(out + 1), .n_parts = 1};
    out->parts[0] = (struct cn_str){bytes, CN_GRPC_PREFIX_BYTES + len};
    out->wire_bytes = out->parts[0].len;
    return out;
}

static bool
is_compressed(const struct cn_grpc_call *call, size_t bytes)
{
    uint64_t above = call->site->grpc->limits.compress_bytes;

    return above && call->head.accepts_gzip && bytes >= above && bytes <= COMPRESS_MAX_BYTES;
}

/* NULL: there is not enough memory; nothing was released then. */
static struct cn_grpc_queued *
make(const struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    struct cn_grpc_outgoing whole = *message;
    struct cn_grpc_queued *plain, *small;
    size_t bytes = 0;

    for (uint32_t i = 0; i < count_texts(message); i++)
        bytes += text_of(message, i).len;
    if (!is_compressed(call, bytes))
        return pack(message);
    whole.release = NULL; /* copies all, into one part */
    plain = pack(&whole);
    if (!plain)
        return NULL;
    small = compress(plain);
    if (message->release)
        message->release(message->arg);
    if (!small)
        return plain;
    cn_free(plain);
    return small;
}

/* --- the queue */

/* The message has been sent, or never will be. */
static void
report(struct cn_grpc_queued *out)
{
    struct cn_grpc_call *call = out->call;
    void *owner = out->owner;
    size_t bytes = out->body_bytes;

    cn_unread_sub(call->site->loop, &call->unread, out->wire_bytes);
    if (out->release)
        out->release(out->arg);
    cn_free(out);
    if (call->method && call->method->on_sent)
        call->method->on_sent(call, owner, bytes);
    cn_grpc_call_release(call);
}

void
cn_grpc_report_sent(struct cn_grpc_site *site)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&site->sent)))
        report(cn_container_of(node, struct cn_grpc_queued, link));
}

void
cn_grpc_drop_outgoing(struct cn_grpc_call *call)
{
    struct cn_list *node;

    cn_timer_cancel(&call->write_timer);
    call->out_bytes = 0;
    while ((node = cn_list_pop_front(&call->out)))
        if (call->site->out.bytes > 0) /* it may point into this message */
            cn_list_push_back(&call->site->sent, node);
        else
            report(cn_container_of(node, struct cn_grpc_queued, link));
}

static void
set_write_timer(struct cn_grpc_call *call)
{
    cn_timer_set(cn_loop_wheel(call->site->loop), &call->write_timer,
                 cn_loop_now_ms(call->site->loop) + call->site->grpc->limits.write_ms);
}

void
cn_grpc_on_write_late(struct cn_timer *timer)
{
    struct cn_grpc_call *call = cn_container_of(timer, struct cn_grpc_call, write_timer);

    cn_log(CN_LOG_DEBUG, "event=grpc_write_timeout method=%s",
           call->method ? call->method->path : "");
    cn_grpc_call_abort(call, DEADLINE_EXCEEDED, "the client does not read its answers");
}

/* Too many bytes wait for clients, and this one has kept its bytes waiting for the longest
 * time. */
static void
drop_unread(struct cn_unread *unread)
{
    cn_grpc_call_abort(cn_container_of(unread, struct cn_grpc_call, unread), RESOURCE_EXHAUSTED,
                       "all unread answers together are too large (max-unread-answers)");
}

void
cn_grpc_queue(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    struct cn_grpc_queued *out;

    out = call->gone || call->is_finishing ? NULL : make(call, message);
    if (!out) {
        if (message->release)
            message->release(message->arg);
        if (call->method->on_sent)
            call->method->on_sent(call, message->owner, message->body.len);
        if (!call->is_finishing)
            cn_grpc_call_abort(call, RESOURCE_EXHAUSTED, "not enough memory for the answer");
        return;
    }
    out->call = call;
    out->owner = message->owner;
    out->body_bytes = message->body.len;
    cn_grpc_call_hold(call); /* until it is reported */
    if (cn_list_empty(&call->out))
        set_write_timer(call);
    cn_list_push_back(&call->out, &out->link);
    call->out_bytes += out->wire_bytes;
    call->unread.drop = drop_unread;
    cn_unread_add(call->site->loop, &call->unread, out->wire_bytes);
}

void
cn_grpc_call_send(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    cn_grpc_queue(call, message);
    cn_grpc_pump(call);
}

/* nghttp2 asks for data, and so for the status behind them, only when the client's windows are
 * open. But a status needs no window, and a client that has read everything need not open one. */
static bool
has_closed_window(const struct cn_grpc_call *call)
{
    return nghttp2_session_get_stream_remote_window_size(call->conn->h2, call->stream) <= 0 ||
           nghttp2_session_get_remote_window_size(call->conn->h2) <= 0;
}

void
cn_grpc_pump(struct cn_grpc_call *call)
{
    if (!call->conn || call->is_reset || call->status_given)
        return;
    if (!call->answered) {
        call->answered = true;
        cn_grpc_submit_head(call);
    } else if (call->waits_for_data) {
        call->waits_for_data = false;
        nghttp2_session_resume_data(call->conn->h2, call->stream);
    }
    if (call->is_finishing && call->out_bytes == 0 && !call->status_given &&
        has_closed_window(call))
        cn_grpc_submit_trailers(call);
    cn_grpc_conn_touch(call->conn);
}

/* --- nghttp2's callbacks */

ssize_t
cn_grpc_on_data_wanted(nghttp2_session *h2, int32_t stream, uint8_t *room, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct cn_grpc_call *call = source->ptr;
    struct cn_grpc_site *site = call->site;

    (void)h2, (void)stream, (void)room, (void)ctx;
    if (call->out_bytes == 0 && !call->is_finishing) {
        call->waits_for_data = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    site->out.is_full = site->out.bytes + CN_GRPC_FRAME_BYTES > CN_GRPC_OUT_BYTES;
    if (site->out.is_full)
        return NGHTTP2_ERR_PAUSE;
    if (len > call->out_bytes)
        len = call->out_bytes;
    if (len == call->out_bytes && call->is_finishing) {
        if (!call->status_given)
            cn_grpc_submit_trailers(call);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    if (len > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)len;
}

/* Puts the next bytes of the messages into the outbox; messages that are done go to site->sent.
 * Returns whether there were any. TLS wants the bytes in one piece, which makes whole records. */
static bool
put(struct cn_grpc_call *call, size_t len)
{
    struct cn_grpc_outbox *to = &call->site->out;
    bool is_done = false;

    while (len > 0) {
        struct cn_grpc_queued *out = cn_container_of(call->out.next, struct cn_grpc_queued, link);
        struct cn_str part = out->parts[out->part];
        size_t n = part.len - out->part_at < len ? part.len - out->part_at : len;

        (call->conn->tls ? cn_grpc_outbox_copy : cn_grpc_outbox_borrow)(to, part.ptr + out->part_at,
                                                                        n);
        len -= n;
        call->out_bytes -= n;
        out->part_at += n;
        if (out->part_at < part.len)
            break;
        out->part_at = 0;
        if (++out->part == out->n_parts) {
            cn_list_remove(&out->link);
            cn_list_push_back(&call->site->sent, &out->link);
            is_done = true;
        }
    }
    return is_done;
}

int
cn_grpc_on_send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                     nghttp2_data_source *source, void *ctx)
{
    struct cn_grpc_call *call = source->ptr;
    bool is_done;

    (void)h2, (void)frame, (void)ctx;
    cn_grpc_outbox_copy(&call->site->out, head, 9);
    is_done = put(call, len);
    if (cn_list_empty(&call->out))
        cn_timer_cancel(&call->write_timer);
    else if (is_done)
        set_write_timer(call); /* each message has a time of its own, however slowly it goes */
    return 0;
}
