/* continuo/handler.h - write a handler for Continuo in C (or C++). ABI 1.
 *
 * A handler is a shared library that exports one symbol, `continuo_handler`,
 * which describes it. It includes this header and links nothing of Continuo:
 * the functions below go through a table that the worker passes with each
 * object. docs/handlers.md has a tutorial.
 *
 * A worker process loads one handler and calls it from one thread. Objects and
 * bytes that it is given are valid until the call returns (an item that is to go
 * on comes again as another object). Per-sequence data
 * belongs in the sequence's state and nowhere else: that is what survives a
 * crash, and what is thrown away when a step fails.
 *
 * Changes
 *   1  first version
 *   1  describe, at the end of struct continuo_handler: `size` tells who has it
 *   1  answers in pieces: more, stream, stop_reason, stop_streams at the end of the table
 *   1  tensors: tensor_count, tensor_at, tensor, reply_tensors at the end of the table
 *   1  metrics: metric at the end of the table
 *   1  many responses, and later: respond, defer, finish, after at the end of the table
 *   1  stacks of a batch's rows: stack, reply_stack at the end of the table
 */
#ifndef CONTINUO_HANDLER_H
#define CONTINUO_HANDLER_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONTINUO_HANDLER_ABI 1

#if defined(__GNUC__)
#define CONTINUO_EXPORT __attribute__((visibility("default")))
#define CONTINUO_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#else
#define CONTINUO_EXPORT
#define CONTINUO_PRINTF(fmt_at, args_at)
#endif

struct continuo_api;

/* The loaded model, and one request with its sequence. Opaque but for the table. */
struct continuo_model {
    const struct continuo_api *api;
};
struct continuo_item {
    const struct continuo_api *api;
};
/* Where save() writes. */
struct continuo_writer {
    const struct continuo_api *api;
};

/* Borrowed bytes, not NUL-terminated. data is never NULL where the thing asked for is there, so
 * that NULL means "absent". */
struct continuo_bytes {
    const char *data;
    size_t len;
};

/* One part of a request. A plain body is one part named "body". */
struct continuo_part {
    struct continuo_bytes name, content_type, data; /* content_type may be absent */
};

/* Types of a tensor's elements. */
enum continuo_datatype {
    CONTINUO_BOOL = 1, /* one byte, 0 or 1 */
    CONTINUO_UINT8 = 2,
    CONTINUO_UINT16 = 3,
    CONTINUO_UINT32 = 4,
    CONTINUO_UINT64 = 5,
    CONTINUO_INT8 = 6,
    CONTINUO_INT16 = 7,
    CONTINUO_INT32 = 8,
    CONTINUO_INT64 = 9,
    CONTINUO_FP16 = 10,
    CONTINUO_FP32 = 11,
    CONTINUO_FP64 = 12,
    CONTINUO_BYTES = 13, /* strings: see continuo_next_string() */
    CONTINUO_BF16 = 14
};

/* A tensor of a typed model's request or answer. */
struct continuo_tensor {
    struct continuo_bytes name;
    enum continuo_datatype datatype;
    size_t rank;
    const int64_t *shape;       /* rank sizes; with the batch dimension where the model has one */
    struct continuo_bytes data; /* little-endian, row-major, packed */
};

enum continuo_log_level {
    CONTINUO_LOG_ERROR = 0,
    CONTINUO_LOG_WARN = 1,
    CONTINUO_LOG_INFO = 2,
    CONTINUO_LOG_DEBUG = 3
};

enum continuo_metric_type {
    CONTINUO_COUNTER = 0,  /* only goes up: the values are added */
    CONTINUO_GAUGE = 1,    /* the last value counts */
    CONTINUO_HISTOGRAM = 2 /* how many values lie where */
};
/* Says more closely what a metric's value is of: {"room", "kitchen"}. */
struct continuo_dimension {
    const char *name, *value;
};

/* What the library exports:
 *
 *   const struct continuo_handler continuo_handler = {
 *       .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = my_run};
 *
 * Only abi, size and run are required. */
struct continuo_handler {
    uint32_t abi;  /* CONTINUO_HANDLER_ABI */
    uint32_t size; /* sizeof(struct continuo_handler) */

    /* The version of the state's shape; stored with each state. Count it up when the shape
     * changes. 0 is read as 1. */
    uint32_t state_schema;
    /* Flat state: its size, which continuo_state() asks for. `migrate` needs it. A stored state of
     * this schema and another size is refused then; without it close() may get one. */
    uint32_t state_bytes;

    /* Once, before the first request. Nonzero: the model cannot run; say why with
     * continuo_load_error(). */
    int (*load)(struct continuo_model *model);
    void (*unload)(struct continuo_model *model);

    /* A batch of `n` requests, each of another sequence. Answer every item: reply, fail, or `more`.
     * Items that said `more` come again, together with new ones; a batch waits for none of them.
     * Nonzero: the whole batch failed and nothing of it is kept. */
    int (*run)(struct continuo_model *model, struct continuo_item *const *items, size_t n);

    /* The sequence is over. `state`: the flat state or the object, NULL when there is none.
     * A flat one has the size that it was stored with: see state_bytes.
     * `reason`: "ended", "idle", "lifetime", "evicted", "cancelled", "deleted", "unloaded", "moved", "reset". */
    void (*close)(struct continuo_model *model, struct continuo_bytes sequence_id, void *state,
                  const char *reason);

    /* Flat state of an older schema: fill `fresh` (state_bytes, zeroed) from `old`. Nonzero: it
     * cannot be read. */
    int (*migrate)(struct continuo_model *model, uint32_t from_schema, const void *old,
                   size_t old_bytes, void *fresh);

    /* State with pointers: give all four, and use continuo_object() instead of continuo_state().
     * create and restore return NULL when they cannot; save returns nonzero then. */
    void *(*create)(struct continuo_model *model);
    void (*destroy)(struct continuo_model *model, void *object);
    int (*save)(struct continuo_model *model, const void *object, struct continuo_writer *out);
    void *(*restore)(struct continuo_model *model, uint32_t from_schema, const void *bytes,
                     size_t len);

    /* GET /models/NAME?customized=true: reply with a JSON object about the model, which is shown as
     * customizedMetadata. The item is no request: it has no body, no sequence and no state. */
    int (*describe)(struct continuo_model *model, struct continuo_item *item);
};

extern CONTINUO_EXPORT const struct continuo_handler continuo_handler;

/* A deferred item is to end before its answer has: see continuo_defer(). */
typedef void (*continuo_stop_fn)(struct continuo_item *item, const char *reason, void *arg);
/* The time that continuo_after() was given has come. */
typedef void (*continuo_timer_fn)(struct continuo_model *model, void *arg);

/* The table behind the functions below; use those. It only grows at its end. */
struct continuo_api {
    uint32_t abi, size;

    const char *(*model_name)(struct continuo_model *);
    const char *(*model_version)(struct continuo_model *);
    const char *(*model_dir)(struct continuo_model *);
    unsigned (*worker)(struct continuo_model *);
    void (*set_data)(struct continuo_model *, void *);
    void *(*data)(struct continuo_model *);
    void (*load_error)(struct continuo_model *, const char *, va_list);
    void (*log)(struct continuo_model *, enum continuo_log_level, const char *, va_list);
    const char *(*config_string)(struct continuo_model *, const char *, const char *);
    int64_t (*config_int)(struct continuo_model *, const char *, int64_t);
    double (*config_double)(struct continuo_model *, const char *, double);
    int (*config_bool)(struct continuo_model *, const char *, int);

    void *(*state)(struct continuo_item *, size_t);
    void *(*object)(struct continuo_item *);
    size_t (*part_count)(struct continuo_item *);
    struct continuo_part (*part_at)(struct continuo_item *, size_t);
    struct continuo_bytes (*part)(struct continuo_item *, const char *);
    struct continuo_bytes (*body)(struct continuo_item *);
    struct continuo_bytes (*header)(struct continuo_item *, const char *);
    struct continuo_bytes (*sequence_id)(struct continuo_item *);
    struct continuo_bytes (*request_id)(struct continuo_item *);
    int (*is_start)(struct continuo_item *);
    int (*is_end)(struct continuo_item *);
    int (*is_cancelled)(struct continuo_item *);
    uint64_t (*step)(struct continuo_item *);
    double (*seconds_left)(struct continuo_item *);
    int (*json_int)(struct continuo_item *, const char *, int64_t *);
    int (*json_double)(struct continuo_item *, const char *, double *);
    struct continuo_bytes (*json_string)(struct continuo_item *, const char *);

    int (*reply)(struct continuo_item *, const void *, size_t);
    int (*replyf)(struct continuo_item *, const char *, va_list);
    int (*send)(struct continuo_item *, const void *, size_t);
    int (*set_status)(struct continuo_item *, int);
    int (*set_header)(struct continuo_item *, const char *, const char *);
    int (*set_content_type)(struct continuo_item *, const char *);
    void (*end_sequence)(struct continuo_item *);
    void (*fail)(struct continuo_item *, int, const char *, va_list);

    int (*write)(struct continuo_writer *, const void *, size_t);

    int (*more)(struct continuo_item *, double);
    void *(*stream)(struct continuo_item *, size_t);
    const char *(*stop_reason)(struct continuo_item *);
    void (*stop_streams)(struct continuo_item *);
    const char *(*from_version)(struct continuo_model *);

    size_t (*tensor_count)(struct continuo_item *);
    const struct continuo_tensor *(*tensor_at)(struct continuo_item *, size_t);
    const struct continuo_tensor *(*tensor)(struct continuo_item *, const char *);
    /* The last: sizeof(struct continuo_tensor) as the handler knows it. */
    int (*reply_tensors)(struct continuo_item *, const struct continuo_tensor *, size_t, size_t);

    int (*metric)(struct continuo_model *, enum continuo_metric_type, const char *, const char *,
                  double, const struct continuo_dimension *, size_t);

    int (*respond)(struct continuo_item *, const struct continuo_tensor *, size_t, size_t);
    struct continuo_item *(*defer)(struct continuo_item *, continuo_stop_fn, void *);
    int (*finish)(struct continuo_item *);
    int (*after)(struct continuo_model *, double, continuo_timer_fn, void *);
    const struct continuo_tensor *(*stack)(struct continuo_item *const *, size_t, const char *);
    int (*reply_stack)(struct continuo_item *const *, size_t, const struct continuo_tensor *,
                       size_t, size_t);
};

/* --- the model --- */

static inline const char *
continuo_model_name(struct continuo_model *model)
{
    return model->api->model_name(model);
}

static inline const char *
continuo_model_version(struct continuo_model *model)
{
    return model->api->model_version(model);
}

/* In migrate() and restore(): the model version that the state comes from, when a swap brings it from
 * another one; else NULL. Needs a server that has it: NULL on older ones. */
static inline const char *
continuo_from_version(struct continuo_model *model)
{
    if (model->api->size <= offsetof(struct continuo_api, from_version))
        return NULL;
    return model->api->from_version(model);
}

/* Where the archive's files are; absolute. */
static inline const char *
continuo_model_dir(struct continuo_model *model)
{
    return model->api->model_dir(model);
}

/* 1, 2, ... within the model version. */
static inline unsigned
continuo_worker(struct continuo_model *model)
{
    return model->api->worker(model);
}

/* A pointer of the handler's own, for what load() makes: weights, tables. Not for sequences. */
static inline void
continuo_set_data(struct continuo_model *model, void *data)
{
    model->api->set_data(model, data);
}

static inline void *
continuo_data(struct continuo_model *model)
{
    return model->api->data(model);
}

/* In load(): why the model cannot run, for the one who registers it. Returns -1, so that load can
 * `return continuo_load_error(model, "...")`. */
CONTINUO_PRINTF(2, 3)
static inline int
continuo_load_error(struct continuo_model *model, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    model->api->load_error(model, fmt, args);
    va_end(args);
    return -1;
}

/* A line in the server's log. */
CONTINUO_PRINTF(3, 4)
static inline void
continuo_log(struct continuo_model *model, enum continuo_log_level level, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    model->api->log(model, level, fmt, args);
    va_end(args);
}

/* A number that the handler measured, for /metrics or the metrics log: `name` and names of dimensions
 * are letters, digits and _; `unit` is a word, NULL is "Count". ModelName, Level and Hostname come by
 * themselves. 0, or -1 and it counts for nothing: it may not be called so (the log says why), the call
 * has given too many, or the server is too old to know metrics. */
static inline int
continuo_metric(struct continuo_model *model, enum continuo_metric_type type, const char *name,
                const char *unit, double value, const struct continuo_dimension *dimensions,
                size_t n_dimensions)
{
    if (model->api->size < offsetof(struct continuo_api, metric) + sizeof(model->api->metric))
        return -1;
    return model->api->metric(model, type, name, unit, value, dimensions, n_dimensions);
}

/* Values of the model's YAML by dotted path ("handler.threshold"); the fallback where there is
 * none or it is of another kind. */
static inline const char *
continuo_config_string(struct continuo_model *model, const char *path, const char *fallback)
{
    return model->api->config_string(model, path, fallback);
}

static inline int64_t
continuo_config_int(struct continuo_model *model, const char *path, int64_t fallback)
{
    return model->api->config_int(model, path, fallback);
}

static inline double
continuo_config_double(struct continuo_model *model, const char *path, double fallback)
{
    return model->api->config_double(model, path, fallback);
}

static inline int
continuo_config_bool(struct continuo_model *model, const char *path, int fallback)
{
    return model->api->config_bool(model, path, fallback);
}

/* --- the state --- */

/* The sequence's flat state: `size` bytes without pointers, zeroed in a new sequence, kept when the
 * item is answered and dropped when it fails. NULL (and the item has failed, go on to the next)
 * when the model is not stateful or the stored state has another size. */
static inline void *
continuo_state(struct continuo_item *item, size_t size)
{
    return item->api->state(item, size);
}

/* The sequence's object, made by create() or restore(). NULL, and the item has failed, when there
 * is none. */
static inline void *
continuo_object(struct continuo_item *item)
{
    return item->api->object(item);
}

/* In save(): appends bytes. Nonzero when the state is over its limit. */
static inline int
continuo_write(struct continuo_writer *out, const void *bytes, size_t len)
{
    return out->api->write(out, bytes, len);
}

/* --- the request --- */

/* The part named "body", or "data", or else the first; empty when there is none. */
static inline struct continuo_bytes
continuo_body(struct continuo_item *item)
{
    return item->api->body(item);
}

static inline size_t
continuo_part_count(struct continuo_item *item)
{
    return item->api->part_count(item);
}

/* `index` from 0; all absent past the end. */
static inline struct continuo_part
continuo_part_at(struct continuo_item *item, size_t index)
{
    return item->api->part_at(item, index);
}

/* The data of the last part of that name. */
static inline struct continuo_bytes
continuo_part(struct continuo_item *item, const char *name)
{
    return item->api->part(item, name);
}

/* Names are compared without case, and with `-` and `_` as one. */
static inline struct continuo_bytes
continuo_header(struct continuo_item *item, const char *name)
{
    return item->api->header(item, name);
}

/* Absent for stateless models. */
static inline struct continuo_bytes
continuo_sequence_id(struct continuo_item *item)
{
    return item->api->sequence_id(item);
}

static inline struct continuo_bytes
continuo_request_id(struct continuo_item *item)
{
    return item->api->request_id(item);
}

/* Is this the first step of the sequence? */
static inline int
continuo_is_start(struct continuo_item *item)
{
    return item->api->is_start(item);
}

/* Did the client say that the sequence ends with this step? */
static inline int
continuo_is_end(struct continuo_item *item)
{
    return item->api->is_end(item);
}

/* Is the client gone? */
static inline int
continuo_is_cancelled(struct continuo_item *item)
{
    return item->api->is_cancelled(item);
}

/* Steps of the sequence that succeeded before this one. */
static inline uint64_t
continuo_step(struct continuo_item *item)
{
    return item->api->step(item);
}

/* Until the request's deadline; infinity where there is none. */
static inline double
continuo_seconds_left(struct continuo_item *item)
{
    return item->api->seconds_left(item);
}

/* Values of a JSON body by dotted path; "" is the whole body. 0, or -1 when the body is no JSON or
 * has no such value of that kind. */
static inline int
continuo_json_int(struct continuo_item *item, const char *path, int64_t *out)
{
    return item->api->json_int(item, path, out);
}

/* Takes integers too. */
static inline int
continuo_json_double(struct continuo_item *item, const char *path, double *out)
{
    return item->api->json_double(item, path, out);
}

static inline struct continuo_bytes
continuo_json_string(struct continuo_item *item, const char *path)
{
    return item->api->json_string(item, path);
}

/* --- the answer: all return 0, or -1 when the item has failed (over answerMaxBytes, bad value) --- */

/* Answers the item. Once; a second reply fails it. */
static inline int
continuo_reply(struct continuo_item *item, const void *bytes, size_t len)
{
    return item->api->reply(item, bytes, len);
}

/* Answers with text as printf makes it. */
CONTINUO_PRINTF(2, 3)
static inline int
continuo_replyf(struct continuo_item *item, const char *fmt, ...)
{
    va_list args;
    int rc;

    va_start(args, fmt);
    rc = item->api->replyf(item, fmt, args);
    va_end(args);
    return rc;
}

/* A piece of the answer before the reply. */
static inline int
continuo_send(struct continuo_item *item, const void *bytes, size_t len)
{
    return item->api->send(item, bytes, len);
}

/* 200 to 599; 200 where it is not set. */
static inline int
continuo_set_status(struct continuo_item *item, int status)
{
    return item->api->set_status(item, status);
}

static inline int
continuo_set_header(struct continuo_item *item, const char *name, const char *value)
{
    return item->api->set_header(item, name, value);
}

static inline int
continuo_set_content_type(struct continuo_item *item, const char *content_type)
{
    return item->api->set_content_type(item, content_type);
}

/* The sequence ends with this step, whatever the client said. */
static inline void
continuo_end_sequence(struct continuo_item *item)
{
    item->api->end_sequence(item);
}

/* Refuses the item with a message: `status` 400 to 599, or 0 for "the handler failed" (500). Its
 * state stays as it was before the step. */
CONTINUO_PRINTF(3, 4)
static inline void
continuo_fail(struct continuo_item *item, int status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    item->api->fail(item, status, fmt, args);
    va_end(args);
}

/* --- an answer in pieces --- */

/* The item is not done: what was sent by continuo_send() leaves now, with status, headers and content
 * type if it is the first of it, and run() gets the item again, not before `seconds` have passed. Not
 * for items that are answered. Nonzero, and the item has failed, when it can't be.
 *
 * The step's state is stored with the answer that ends it; with continuousBatching: true it is stored
 * when the item says `more` for the first time, and what comes later changes nothing of it. */
static inline int
continuo_more(struct continuo_item *item, double seconds)
{
    return item->api->more(item, seconds);
}

/* `size` bytes that the item keeps from call to call until it is done: where its stream stands. Zeroed
 * at first; the same size each time. NULL, and the item has failed, when there is no memory. */
static inline void *
continuo_stream(struct continuo_item *item, size_t size)
{
    return item->api->stream(item, size);
}

/* NULL, or why the item must be done with this call: "gone" (its client), "deadline"
 * (stream.timeoutMSec), "ended" (its sequence ends), "cancelled" (continuo_stop_streams). Reply, and
 * the step stands; fail, or ask for more, and it does not. */
static inline const char *
continuo_stop_reason(struct continuo_item *item)
{
    return item->api->stop_reason(item);
}

/* With this step the streams of the sequence's earlier steps end: they hear "cancelled". */
static inline void
continuo_stop_streams(struct continuo_item *item)
{
    item->api->stop_streams(item);
}

/* --- tensors, of models whose YAML declares inputs and outputs --- */

/* "text" as bytes: for names. */
static inline struct continuo_bytes
continuo_text(const char *text)
{
    struct continuo_bytes bytes;

    bytes.data = text;
    bytes.len = strlen(text);
    return bytes;
}

/* The request's tensors: those that it has, in its order. Inputs are checked against the model's YAML
 * before the handler sees them; an optional one may be missing. */
static inline size_t
continuo_tensor_count(struct continuo_item *item)
{
    return item->api->tensor_count(item);
}

/* `index` from 0. Its data may be read as an array of its datatype: it is aligned for that. NULL past
 * the end. */
static inline const struct continuo_tensor *
continuo_tensor_at(struct continuo_item *item, size_t index)
{
    return item->api->tensor_at(item, index);
}

/* NULL: the request has none of that name. */
static inline const struct continuo_tensor *
continuo_tensor(struct continuo_item *item, const char *name)
{
    return item->api->tensor(item, name);
}

/* The product of the shape's sizes. */
static inline size_t
continuo_elements(const struct continuo_tensor *tensor)
{
    size_t elements = 1;

    for (size_t i = 0; i < tensor->rank; i++)
        elements *= (size_t)tensor->shape[i];
    return elements;
}

/* Walks the strings of a BYTES tensor: begin with a copy of its data. Each is a 32-bit length and that
 * many bytes; an answer's are written the same way. 0 at the end. */
static inline int
continuo_next_string(struct continuo_bytes *rest, struct continuo_bytes *out)
{
    uint32_t len;

    if (rest->len < sizeof(len))
        return 0;
    memcpy(&len, rest->data, sizeof(len));
    if (rest->len - sizeof(len) < len)
        return 0;
    out->data = rest->data + sizeof(len);
    out->len = len;
    rest->data += sizeof(len) + len;
    rest->len -= sizeof(len) + len;
    return 1;
}

/* Answers the item with tensors, copied; names and datatypes as the model's YAML declares its outputs.
 * Once, like continuo_reply(). -1, and the item has failed, when a tensor's data does not fit its shape
 * and datatype. */
static inline int
continuo_reply_tensors(struct continuo_item *item, const struct continuo_tensor *tensors, size_t n)
{
    return item->api->reply_tensors(item, tensors, n, sizeof(*tensors));
}

/* --- any number of responses, and later: of decoupled models (decoupled: true in the YAML) --- */

/* Is the server one that has them? The functions below fail on older ones. */
static inline int
continuo_has_responses(const struct continuo_api *api)
{
    return api->size >= offsetof(struct continuo_api, after) + sizeof(api->after);
}

/* One response, copied, before the end of the answer; it leaves with the item's next `more`, or with
 * the answer itself; a deferred item's at once. Otherwise as continuo_reply_tensors(), which is the last
 * response and the end. */
static inline int
continuo_respond(struct continuo_item *item, const struct continuo_tensor *tensors, size_t n)
{
    if (!continuo_has_responses(item->api))
        return -1;
    return item->api->respond(item, tensors, n, sizeof(*tensors));
}

/* That was all: no response, or no further one. */
static inline int
continuo_finish(struct continuo_item *item)
{
    return continuo_has_responses(item->api) ? item->api->finish(item) : -1;
}

/* The item is answered after run() has returned: in a call for other items, or from a timer. What comes
 * back stands for it from now on, in all functions but continuo_more(), until a reply, a failure or
 * continuo_finish() ends it; the item itself counts as answered. NULL, and the item has failed, when it
 * can't be.
 *
 * `stop` is called, once, when it is to end before: `reason` is as continuo_stop_reason() says it, or
 * "failed" when what it said could not be sent. What is not ended when `stop` returns is broken off: then
 * the item is gone. */
static inline struct continuo_item *
continuo_defer(struct continuo_item *item, continuo_stop_fn stop, void *arg)
{
    return continuo_has_responses(item->api) ? item->api->defer(item, stop, arg) : NULL;
}

/* Calls `fn` once, between two calls of run(), when `seconds` (0 to 86400) have passed; not any more
 * once the model is unloaded. Nonzero: not while it is loaded, or too many wait already (65536). */
static inline int
continuo_after(struct continuo_model *model, double seconds, continuo_timer_fn fn, void *arg)
{
    return continuo_has_responses(model->api) ? model->api->after(model, seconds, fn, arg) : -1;
}

/* --- a batch's rows as one tensor --- */

/* Is the server one that has them? The functions below fail on older ones. */
static inline int
continuo_has_stacks(const struct continuo_api *api)
{
    return api->size >= offsetof(struct continuo_api, reply_stack) + sizeof(api->reply_stack);
}

/* The tensor of that name of all items as one, row behind row: for models that compute a batch at once.
 * With a batch dimension (maxBatchSize) that one grows, without it there is a new one in front. NULL: an
 * item has none, or they differ in type or shape. Good until the call returns. */
static inline const struct continuo_tensor *
continuo_stack(struct continuo_item *const *items, size_t n, const char *name)
{
    return n && continuo_has_stacks(items[0]->api) ? items[0]->api->stack(items, n, name) : NULL;
}

/* Answers all items with their rows of these tensors, stacked as above. -1, and those items have failed
 * that have none or were answered before, when the rows are not as many as the items have. */
static inline int
continuo_reply_stack(struct continuo_item *const *items, size_t n,
                     const struct continuo_tensor *tensors, size_t n_tensors)
{
    if (n == 0)
        return 0;
    if (!continuo_has_stacks(items[0]->api))
        return -1;
    return items[0]->api->reply_stack(items, n, tensors, n_tensors, sizeof(*tensors));
}

#ifdef __cplusplus
}
#endif

#endif
