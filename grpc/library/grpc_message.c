/* grpc/library/grpc_message.c - a call's messages in and out, and its end. On the call's loop;
 * grpc_priv.h has the core's rules.
 *
 * The core sends one message of a call at a time. Messages wait in `call->out`, and
 * cn_grpc_call_pump() hands over the next one when the last one is written (cn_grpc_on_wrote). The
 * first operation also has the metadata, and the last one the status: a unary answer is therefore
 * one operation with metadata, message and status, which leaves in one packet.
 *
 * A message's bytes are either copied into the core's slices or borrowed. From BORROW_BYTES on they
 * are borrowed: the core gets a slice that points into the answer, and calls `release` when it
 * needs it no more, on any thread. Smaller bodies are copied, since that is cheaper than the
 * callback. Every message is reported by on_sent exactly once, whether it was written or dropped;
 * the credit of streams relies on that.
 */
#include <stdio.h>
#include <string.h>

#include "access/audit.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "grpc/error_status.h"
#include "grpc/library/grpc_priv.h"
#include "metrics/counters/metrics.h"

/* Bodies of at least this size are sent without a copy. For smaller ones a copy is cheaper than a
 * callback. */
#define BORROW_BYTES 65536
/* The core compresses a whole message at once, on the loop: a few ms for this many bytes, while the
 * other calls of the loop wait. Larger messages are sent uncompressed. */
#define COMPRESS_MAX_BYTES 262144

void
cn_grpc_drop_received(struct cn_grpc_call *call)
{
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
}

/* The message has been sent, or never will be. */
static void
outgoing_done(struct cn_grpc_call *call, struct cn_grpc_queued *out)
{
    void *owner = out->owner;
    size_t bytes = out->body_bytes;

    cn_unread_sub(call->site->loop, &call->unread, out->wire_bytes);
    grpc_byte_buffer_destroy(out->bytes);
    cn_free(out);
    if (call->method && call->method->on_sent)
        call->method->on_sent(call, owner, bytes);
}

void
cn_grpc_drop_outgoing(struct cn_grpc_call *call)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&call->out)))
        outgoing_done(call, cn_container_of(node, struct cn_grpc_queued, link));
}

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
    cn_grpc_start_batch(call, &op, 1, &call->read);
}

void
cn_grpc_on_read(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, read.msg);
    struct cn_grpc_message message = {call->received};

    call->received = NULL; /* on_message may already ask for the next message */
    call->n_busy--;
    call->reading = false;
    call->n_holds++;
    if (!call->gone && !call->is_finishing) {
        if (message.bytes && call->read.ok)
            call->method->on_message(call, &message);
        else if (call->method->client_streams)
            call->method->on_half_close(call);
        else
            cn_rpc_fail(call, CN_E_PROTOCOL, "the call ended without its request message", 0);
    }
    if (message.bytes)
        grpc_byte_buffer_destroy(message.bytes);
    cn_grpc_call_release(call);
}

/* Is this part of the message sent without a copy? */
static bool
is_borrowed(const struct cn_grpc_outgoing *message, struct cn_str data)
{
    return message->release && data.len >= BORROW_BYTES && data.ptr >= message->body.ptr &&
           data.ptr < message->body.ptr + message->body.len;
}

static char *
put(char *at, struct cn_str bytes)
{
    if (bytes.len)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

/* Makes a slice of everything that is copied from piece `from` on, up to a piece that is borrowed.
 * *end is the index of that piece, or n_pieces. */
static grpc_slice
copy_run(const struct cn_grpc_outgoing *message, uint32_t from, uint32_t *end)
{
    size_t len = from == 0 ? message->head.len : 0;
    grpc_slice slice;
    char *at;

    for (*end = from; *end < message->n_pieces; ++*end) {
        len += message->pieces[*end].head.len;
        if (is_borrowed(message, message->pieces[*end].data))
            break;
        len += message->pieces[*end].data.len;
    }
    slice = grpc_slice_malloc(len);
    at = (char *)GRPC_SLICE_START_PTR(slice);
    if (from == 0)
        at = put(at, message->head);
    for (uint32_t i = from; i < *end; i++)
        at = put(put(at, message->pieces[i].head), message->pieces[i].data);
    if (*end < message->n_pieces)
        put(at, message->pieces[*end].head);
    return slice;
}

/* Makes the message's bytes from its pieces. The borrowed pieces are parts of one slice, which is
 * released with the last of them. */
static grpc_byte_buffer *
pack_pieces(const struct cn_grpc_outgoing *message)
{
    grpc_slice *slices = cn_alloc(sizeof(*slices) * (2 * (size_t)message->n_pieces + 1));
    grpc_slice whole = grpc_empty_slice();
    bool has_whole = false;
    grpc_byte_buffer *bytes;
    uint32_t i = 0, end;
    size_t n = 0;

    do {
        slices[n++] = copy_run(message, i, &end);
        if (end < message->n_pieces) {
            size_t offset = (size_t)(message->pieces[end].data.ptr - message->body.ptr);

            if (!has_whole)
                whole = grpc_slice_new_with_user_data((void *)(uintptr_t)message->body.ptr,
                                                      message->body.len, message->release,
                                                      message->arg);
            has_whole = true;
            slices[n++] = grpc_slice_sub(whole, offset, offset + message->pieces[end].data.len);
        }
        i = end + 1;
    } while (i < message->n_pieces);
    if (message->release && !has_whole)
        message->release(message->arg);
    bytes = grpc_raw_byte_buffer_create(slices, n);
    while (n > 0)
        grpc_slice_unref(slices[--n]);
    grpc_slice_unref(whole);
    cn_free(slices);
    return bytes;
}

/* Makes the message's bytes from its head and body. */
static grpc_byte_buffer *
pack_body(const struct cn_grpc_outgoing *message)
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

/* Too many bytes wait for clients, and this client has been reading for the longest time. */
static void
drop_unread(struct cn_unread *unread)
{
    struct cn_grpc_call *call = cn_container_of(unread, struct cn_grpc_call, unread);

    grpc_call_cancel_with_status(call->core, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                 "all unread answers together are too large (max-unread-answers)",
                                 NULL);
}

/* Puts a message into the list, or drops it if the call has ended. */
static void
queue_message(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    struct cn_grpc_queued *out;

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
    out->bytes = message->pieces ? pack_pieces(message) : pack_body(message);
    cn_list_push_back(&call->out, &out->link);
    out->wire_bytes = grpc_byte_buffer_length(out->bytes);
    call->unread.drop = drop_unread;
    cn_unread_add(call->site->loop, &call->unread, out->wire_bytes);
}

void
cn_grpc_call_send(struct cn_grpc_call *call, const struct cn_grpc_outgoing *message)
{
    queue_message(call, message);
    cn_grpc_call_pump(call);
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

/* Adds metadata that is sent with the status. */
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
    if (call->key && call->method->administers)
        cn_key_audit(call->key, CN_STR("gRPC"), cn_str_from(call->method->path), status->code);
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
    cn_grpc_call_pump(call);
}

/* Allows the core to compress with what the client accepts, gzip or deflate; it sends uncompressed
 * if the client accepts neither. */
static void
allow_compression(struct cn_grpc_call *call, grpc_op *head)
{
    if (call->site->grpc->limits.compress_bytes == 0)
        return;
    head->data.send_initial_metadata.maybe_compression_level.is_set = 1;
    head->data.send_initial_metadata.maybe_compression_level.level = GRPC_COMPRESS_LEVEL_MED;
}

/* Compresses messages of a medium size only. */
static uint32_t
write_flags(const struct cn_grpc_call *call)
{
    size_t bytes = grpc_byte_buffer_length(call->out_now->bytes);
    uint64_t above = call->site->grpc->limits.compress_bytes;

    return above && bytes >= above && bytes <= COMPRESS_MAX_BYTES ? 0 : GRPC_WRITE_NO_COMPRESS;
}

/* Hands the core the next message, and with the last message the status. */
void
cn_grpc_call_pump(struct cn_grpc_call *call)
{
    struct cn_list *node;
    grpc_op ops[4] = {0}, *op = ops;

    if (call->writing || call->end_sent)
        return;
    node = cn_list_pop_front(&call->out);
    if (!node && !call->is_finishing)
        return;
    if (!call->head_sent) {
        op->op = GRPC_OP_SEND_INITIAL_METADATA;
        op->data.send_initial_metadata.count = call->n_head;
        op->data.send_initial_metadata.metadata = call->head;
        allow_compression(call, op);
        op++;
        call->head_sent = true;
    }
    if (node) {
        call->out_now = cn_container_of(node, struct cn_grpc_queued, link);
        op->op = GRPC_OP_SEND_MESSAGE;
        op->data.send_message.send_message = call->out_now->bytes;
        op->flags = write_flags(call);
        op++;
    }
    if (call->is_finishing && cn_list_empty(&call->out)) {
        op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        op->data.send_status_from_server.trailing_metadata_count = call->n_tail;
        op->data.send_status_from_server.trailing_metadata = call->tail;
        op->data.send_status_from_server.status = (grpc_status_code)call->code;
        op->data.send_status_from_server.status_details = &call->text;
        op++;
        if (!call->watched)
            *op++ = cn_grpc_watch_op(call);
        call->end_sent = true;
    }
    call->writing = true;
    cn_timer_set(cn_loop_wheel(call->site->loop), &call->write_timer,
                 cn_loop_now_ms(call->site->loop) + call->site->grpc->limits.write_ms);
    cn_grpc_start_batch(call, ops, (size_t)(op - ops), &call->wrote);
}

void
cn_grpc_on_wrote(struct cn_msg *msg)
{
    struct cn_grpc_call *call = cn_container_of(msg, struct cn_grpc_call, wrote.msg);
    struct cn_grpc_queued *out = call->out_now;

    call->n_busy--;
    call->writing = false;
    cn_timer_cancel(&call->write_timer);
    call->out_now = NULL;
    call->n_holds++;
    if (out)
        outgoing_done(call, out);
    cn_grpc_call_pump(call);
    cn_grpc_call_release(call);
}
