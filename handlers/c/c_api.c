/* handlers/c/c_api.c - the table of the functions behind include/continuo/handler.h, and those of
 * them that give an item its state and answer it; c_request.c has those that read its request.
 * Worker's thread.
 *
 * A handler's mistake fails its item with a message; it never ends the worker where that can be
 * prevented. Handles that come back are checked by their magic number.
 *
 * The library of the handler is linked against nothing of the server. It gets the table at the end
 * of this file, with its size and version, when it is loaded; the inline functions of handler.h
 * call through it. New functions are added at the table's end, so that older handlers go on
 * working.
 *
 * Once an item has failed, calls that would change its answer do nothing and return an error. So a
 * handler need not check each call: the first mistake is what the client is told. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/c/c_priv.h"
#include "handlers/reply.h"

#define MORE_AFTER_MAX_S 86400.0

/* --- failing an item --- */

static void
api_fail(struct continuo_item *handle, int status, const char *fmt, va_list args)
{
    char text[800], told[900];

    cn_c_format(text, sizeof(text), fmt, args);
    if (status != 0 && (status < 400 || status > 599)) {
        snprintf(told, sizeof(told), "the status of a refusal must be from 400 to 599, got %d: %s",
                 status, text);
        cn_c_refuse(cn_c_item(handle), 0, told);
        return;
    }
    cn_c_refuse(cn_c_item(handle), status, text);
}

/* Fails the item and returns -1 if `rc` is an error; otherwise returns 0. */
static int
settle(struct c_item *item, int rc, const struct cn_error *err)
{
    if (rc == 0)
        return 0;
    cn_c_refuse(item, 0, err->message);
    return -1;
}

/* --- the state --- */

static const char no_own_state[] =
    "the model declares its state as tensors: read them with continuo_tensor(), and answer with "
    "the new ones in continuo_reply_tensors()";

/* The plain state: a block of bytes whose size the handler names at each call. At the first step it
 * is made and zeroed. A size that differs from the stored one is an error that asks for migrate():
 * the handler's struct has probably changed. */
static void *
api_state(struct continuo_item *handle, size_t size)
{
    struct c_item *item = cn_c_item(handle);
    struct c_runtime *rt = item->rt;
    struct c_state *state = item->item->state;
    char text[200];

    if (cn_c_has_failed(item))
        return NULL;
    if (rt->tensor_state) {
        cn_c_refuse(item, 0, no_own_state);
        return NULL;
    }
    if (!rt->stateful || rt->handler.create || size == 0) {
        cn_c_refuse(item, 0,
                    !rt->stateful ? "the model has no sequences (sequenceBatching: true)"
                    : size == 0   ? "a state of 0 bytes was asked for"
                                  : "the handler has create(): use continuo_object()");
        return NULL;
    }
    if (rt->handler.state_bytes && size != rt->handler.state_bytes) {
        snprintf(text, sizeof(text),
                 "the handler asks for a state of %zu bytes, but its state_bytes is %u", size,
                 rt->handler.state_bytes);
        cn_c_refuse(item, 0, text);
        return NULL;
    }
    if (!state)
        state = item->item->state = cn_c_state_create();
    if (state->bytes == 0 && (!rt->state_max_bytes || size <= rt->state_max_bytes)) {
        state->flat = cn_try_alloc(size);
        if (state->flat) {
            memset(state->flat, 0, size);
            state->bytes = size;
        }
    }
    if (state->bytes == size)
        return state->flat;
    if (state->bytes == 0)
        snprintf(text, sizeof(text), "a state of %zu bytes cannot be kept (state.maxBytes is %zu)",
                 size, rt->state_max_bytes);
    else
        snprintf(text, sizeof(text),
                 "the sequence has a state of %zu bytes, but the handler asks for %zu: increment "
                 "state_schema and add migrate()",
                 state->bytes, size);
    cn_c_refuse(item, 0, text);
    return NULL;
}

/* The state as an object of the handler's own, which its create() makes and its save and load
 * functions turn into bytes and back. */
static void *
api_object(struct continuo_item *handle)
{
    struct c_item *item = cn_c_item(handle);
    struct c_runtime *rt = item->rt;
    struct c_state *state = item->item->state;

    if (cn_c_has_failed(item))
        return NULL;
    if (rt->tensor_state) {
        cn_c_refuse(item, 0, no_own_state);
        return NULL;
    }
    if (!rt->stateful || !rt->handler.create) {
        cn_c_refuse(item, 0,
                    rt->stateful ? "the handler has no create(): use continuo_state()"
                                 : "the model has no sequences (sequenceBatching: true)");
        return NULL;
    }
    if (!state)
        state = item->item->state = cn_c_state_create();
    if (!state->object)
        state->object = rt->handler.create(&rt->model.handle);
    if (!state->object)
        cn_c_refuse(item, 0, "create() did not return a state");
    return state->object;
}

static int
api_write(struct continuo_writer *writer, const void *bytes, size_t len)
{
    return cn_buf_append(((struct c_writer *)writer)->out, bytes, len);
}

/* --- the answer --- */

static int
api_reply(struct continuo_item *handle, const void *bytes, size_t len)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_open_answer(item) < 0)
        return -1;
    item->answered = true;
    cn_buf_append(&item->item->reply.body, bytes, len);
    return settle(item, cn_reply_check_body(&item->item->reply, &err), &err);
}

/* The text is formatted twice: first to learn its length, then into the reply itself, without a
 * buffer in between. */
static int
api_replyf(struct continuo_item *handle, const char *fmt, va_list args)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_buf *body = &item->item->reply.body;
    struct cn_error err;
    va_list again;
    char *at;
    int len;

    if (cn_c_open_answer(item) < 0)
        return -1;
    item->answered = true;
    va_copy(again, args);
    len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (len < 0) {
        cn_c_refuse(item, 0, "continuo_replyf could not format the answer");
        return -1;
    }
    at = cn_buf_reserve(body, (size_t)len + 1);
    if (at) {
        vsnprintf(at, (size_t)len + 1, fmt, args);
        body->len += (size_t)len;
    }
    return settle(item, cn_reply_check_body(&item->item->reply, &err), &err);
}

static int
api_send(struct continuo_item *handle, const void *bytes, size_t len)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_open_answer(item) < 0)
        return -1;
    return settle(item, cn_reply_add_chunk(&item->item->reply, (struct cn_str){bytes, len}, &err),
                  &err);
}

static int
api_set_status(struct continuo_item *handle, int status)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_has_failed(item))
        return -1;
    return settle(item, cn_reply_set_status(&item->item->reply, status, &err), &err);
}

static int
api_set_header(struct continuo_item *handle, const char *name, const char *value)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_has_failed(item))
        return -1;
    return settle(
        item, cn_reply_put_header(&item->item->reply, cn_str_from(name), cn_str_from(value), &err),
        &err);
}

static int
api_set_content_type(struct continuo_item *handle, const char *content_type)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_error err;

    if (cn_c_has_failed(item))
        return -1;
    return settle(
        item, cn_reply_set_content_type(&item->item->reply, cn_str_from(content_type), &err), &err);
}

static void
api_end_sequence(struct continuo_item *handle)
{
    struct c_item *item = cn_c_item(handle);

    if (!cn_c_has_failed(item))
        item->item->reply.end_sequence = true;
}

/* --- an answer in pieces --- */

/* The handler is not done with this item: its pieces leave now, and it is called again after
 * `seconds`. */
static int
api_more(struct continuo_item *handle, double seconds)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_reply *reply = &item->item->reply;

    if (cn_c_open_answer(item) < 0)
        return -1;
    if (item->open) {
        cn_c_refuse(item, 0,
                    "continuo_more: the item is deferred, so it already continues by itself");
        return -1;
    }
    if (!(seconds >= 0 && seconds <= MORE_AFTER_MAX_S)) {
        cn_c_refuse(item, 0, "continuo_more: seconds must be from 0 to 86400");
        return -1;
    }
    item->answered = true;
    reply->more = true;
    reply->rest_ms = (uint64_t)ceil(seconds * 1000);
    return 0;
}

/* Memory of the handler's own for an item that is called several times. It lives as long as the
 * item, and is not saved. */
static void *
api_stream(struct continuo_item *handle, size_t size)
{
    struct c_item *item = cn_c_item(handle);
    struct c_stream *stream = item->stream;
    char text[160];

    if (cn_c_has_failed(item))
        return NULL;
    if (!stream)
        stream = item->stream = cn_c_stream_create();
    if (!stream->data && size > 0 && (stream->data = cn_try_alloc(size)) != NULL) {
        memset(stream->data, 0, size);
        stream->bytes = size;
    }
    if (stream->data && stream->bytes == size)
        return stream->data;
    if (stream->data)
        snprintf(text, sizeof(text), "continuo_stream: the item has %zu bytes, not %zu",
                 stream->bytes, size);
    else
        snprintf(text, sizeof(text), "continuo_stream: %s %zu bytes",
                 size ? "no memory for" : "asked for", size);
    cn_c_refuse(item, 0, text);
    return NULL;
}

static const char *
api_stop_reason(struct continuo_item *handle)
{
    enum cn_stop_reason reason = cn_c_item(handle)->item->stop;

    return reason == CN_STOP_NONE ? NULL : cn_stop_reason_word(reason);
}

static void
api_stop_streams(struct continuo_item *handle)
{
    struct c_item *item = cn_c_item(handle);

    if (!cn_c_has_failed(item))
        item->item->reply.stop_streams = true;
}

const struct continuo_api cn_c_api = {
    .abi = CONTINUO_HANDLER_ABI,
    .size = sizeof(struct continuo_api),
    .model_name = cn_c_model_name,
    .model_version = cn_c_model_version,
    .model_dir = cn_c_model_dir,
    .worker = cn_c_worker,
    .set_data = cn_c_set_model_data,
    .data = cn_c_model_data,
    .load_error = cn_c_load_error,
    .log = cn_c_log,
    .config_string = cn_c_config_string,
    .config_int = cn_c_config_int,
    .config_double = cn_c_config_double,
    .config_bool = cn_c_config_bool,
    .state = api_state,
    .object = api_object,
    .part_count = cn_c_part_count,
    .part_at = cn_c_part_at,
    .part = cn_c_part,
    .body = cn_c_body,
    .header = cn_c_header,
    .sequence_id = cn_c_sequence_id,
    .request_id = cn_c_request_id,
    .is_start = cn_c_is_start,
    .is_end = cn_c_is_end,
    .is_cancelled = cn_c_is_cancelled,
    .step = cn_c_step,
    .seconds_left = cn_c_seconds_left,
    .json_int = cn_c_json_int,
    .json_double = cn_c_json_double,
    .json_string = cn_c_json_string,
    .reply = api_reply,
    .replyf = api_replyf,
    .send = api_send,
    .set_status = api_set_status,
    .set_header = api_set_header,
    .set_content_type = api_set_content_type,
    .end_sequence = api_end_sequence,
    .fail = api_fail,
    .write = api_write,
    .more = api_more,
    .stream = api_stream,
    .stop_reason = api_stop_reason,
    .stop_streams = api_stop_streams,
    .from_version = cn_c_from_version,
    .tensor_count = cn_c_tensor_count,
    .tensor_at = cn_c_tensor_at,
    .tensor = cn_c_tensor,
    .reply_tensors = cn_c_reply_tensors,
    .metric = cn_c_metric,
    .respond = cn_c_respond,
    .defer = cn_c_defer,
    .finish = cn_c_finish,
    .after = cn_c_after,
    .stack = cn_c_stack,
    .reply_stack = cn_c_reply_stack,
};
