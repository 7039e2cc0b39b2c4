/* continuo/handler.h - write a handler for Continuo in C (or C++). ABI 1.0.
 *
 * A handler is a shared library that exports one symbol, `continuo_handler`, which describes it. It
 * includes this header and links no library of Continuo: the functions below call through a table
 * that the worker passes with each object. docs/handlers-c.md begins with a tutorial.
 *
 * These rules hold for every function, unless its comment says otherwise:
 *
 *   Thread     A worker process loads one handler and calls it from one thread. Call the functions
 *              from that thread only, and only while the worker is calling the handler: from
 *              load(), run(), close() and the other members of struct continuo_handler, or from a
 *              function that was given to continuo_defer() or continuo_after(). None of them
 *              blocks.
 *   Ownership  Objects, strings and bytes that the handler gets belong to the worker. They are
 *              valid until the handler returns from the call in which it got them; copy what must
 *              live longer. Bytes that the handler passes are copied before the function returns.
 *   Errors     A function that can fail returns -1 or NULL. If it concerns an item, that item has
 *              failed then: its client gets the reason, its state stays as it was before the step,
 *              and further calls for it do nothing. Go on with the next item.
 *
 * The data of a sequence belongs in the sequence's state and nowhere else: the state is what
 * survives a crash, and what is restored when a step fails.
 *
 * Versions: the worker compares the ABI once, when it loads the library. The major number changes
 * when a handler has to be built again; a library of another major number is refused. The minor
 * number grows when something is added at the end of a struct; a library that was built for a newer
 * minor number than the server's is refused, an older one runs.
 *
 *   1.0  the first release
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

#define CONTINUO_HANDLER_ABI_MAJOR 1
#define CONTINUO_HANDLER_ABI_MINOR 0
/* What a handler puts into continuo_handler.abi: major in the upper 16 bits, minor in the lower. */
#define CONTINUO_HANDLER_ABI                                                                       \
    ((uint32_t)CONTINUO_HANDLER_ABI_MAJOR << 16 | (uint32_t)CONTINUO_HANDLER_ABI_MINOR)

#if defined(__GNUC__)
#define CONTINUO_EXPORT __attribute__((visibility("default")))
#define CONTINUO_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#else
#define CONTINUO_EXPORT
#define CONTINUO_PRINTF(fmt_at, args_at)
#endif

struct continuo_api;

/* The loaded model, and one request with its sequence. Their only public member is the table. */
struct continuo_model {
    const struct continuo_api *api;
};
struct continuo_item {
    const struct continuo_api *api;
};
/* The destination that save() writes to with continuo_write(). */
struct continuo_writer {
    const struct continuo_api *api;
};

/* Borrowed bytes, not NUL-terminated. `data` is NULL if the thing asked for is absent, and never
 * NULL if it exists, even if it is empty. */
struct continuo_bytes {
    const char *data;
    size_t len;
};

/* One part of a request. A request with a plain body has one part, named "body". */
struct continuo_part {
    struct continuo_bytes name, content_type, data; /* content_type may be absent */
};

/* The type of a tensor's elements. */
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
    const int64_t *shape;       /* `rank` sizes, the batch dimension included */
    struct continuo_bytes data; /* little-endian, row-major, packed */
};

enum continuo_log_level {
    CONTINUO_LOG_ERROR = 0,
    CONTINUO_LOG_WARN = 1,
    CONTINUO_LOG_INFO = 2,
    CONTINUO_LOG_DEBUG = 3
};

enum continuo_metric_type {
    CONTINUO_COUNTER = 0,  /* the values are added; they may not be negative */
    CONTINUO_GAUGE = 1,    /* the last value counts */
    CONTINUO_HISTOGRAM = 2 /* the values are counted in buckets */
};
/* A label of a metric, such as {"room", "kitchen"}. */
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

    /* The version of the state's layout, which is stored with each state. Increment it when the
     * layout changes. 0 means 1. */
    uint32_t state_schema;
    /* The size of a flat state, as passed to continuo_state(). If it is set, a stored state of the
     * same schema but another size is refused. If it is 0, the size is not checked, and close() may
     * get a state that an older build of the handler stored with another size. A handler with
     * migrate() must set it. */
    uint32_t state_bytes;

    /* Called once, before the first request. Return nonzero if the model cannot run, and say why
     * with continuo_load_error(): whoever registers the model gets that message. */
    int (*load)(struct continuo_model *model);
    /* Called once, when the worker ends. Free here what load() allocated. */
    void (*unload)(struct continuo_model *model);

    /* Called with a batch of `n` requests; no two are of the same sequence. Answer every item:
     * reply to it, fail it, defer it, or ask for another turn with continuo_more(). Items with
     * another turn come again, together with new ones. Return nonzero if the whole batch failed;
     * then no state is changed. */
    int (*run)(struct continuo_model *model, struct continuo_item *const *items, size_t n);

    /* Called when a sequence has ended. `state` is the flat state (with the size that it was stored
     * with) or the object; it is NULL if there is none. `reason` is "ended", "idle", "lifetime",
     * "evicted", "cancelled", "deleted", "unloaded", "moved" or "reset". */
    void (*close)(struct continuo_model *model, struct continuo_bytes sequence_id, void *state,
                  const char *reason);

    /* Called for a flat state of an older schema. Fill `fresh` (state_bytes bytes, zeroed) from
     * `old`. Return nonzero if the old state cannot be read. */
    int (*migrate)(struct continuo_model *model, uint32_t from_schema, const void *old,
                   size_t old_bytes, void *fresh);

    /* A state with pointers is an object. Set all four functions, and call continuo_object()
     * instead of continuo_state(). create() makes the object of a new sequence, save() writes it
     * with continuo_write(), restore() makes it again from those bytes, destroy() frees it.
     * create() and restore() return NULL, and save() returns nonzero, if they fail. */
    void *(*create)(struct continuo_model *model);
    void (*destroy)(struct continuo_model *model, void *object);
    int (*save)(struct continuo_model *model, const void *object, struct continuo_writer *out);
    void *(*restore)(struct continuo_model *model, uint32_t from_schema, const void *bytes,
                     size_t len);

    /* Called for GET /models/NAME?customized=true. Reply with a JSON object that describes the
     * model; it is shown as customizedMetadata. The item is not a request: it has no body, no
     * sequence and no state. Return nonzero if it fails. */
    int (*describe)(struct continuo_model *model, struct continuo_item *item);
};

extern CONTINUO_EXPORT const struct continuo_handler continuo_handler;

/* Called when a deferred item must end before its answer is complete: see continuo_defer(). */
typedef void (*continuo_stop_fn)(struct continuo_item *item, const char *reason, void *arg);
/* Called when the time that was given to continuo_after() has passed. */
typedef void (*continuo_timer_fn)(struct continuo_model *model, void *arg);

/* The table behind the functions below; call those instead. It grows only at its end. */
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
    /* The last argument is sizeof(struct continuo_tensor) in the handler's build. */
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

/* Returns the name of the model. It stays valid until unload() returns.
 *
 *   continuo_log(model, CONTINUO_LOG_INFO, "loading %s", continuo_model_name(model)); */
static inline const char *
continuo_model_name(struct continuo_model *model)
{
    return model->api->model_name(model);
}

/* Returns the version of the model as text, such as "1.0". It stays valid until unload() returns.
 *
 *   if (strcmp(continuo_model_version(model), "1.0") == 0) ... */
static inline const char *
continuo_model_version(struct continuo_model *model)
{
    return model->api->model_version(model);
}

/* Call it in migrate() or restore(). Returns the version of the model that wrote the state, if a
 * version swap brings the state here from another version; otherwise NULL.
 *
 *   const char *from = continuo_from_version(model);  -> "1.0", or NULL */
static inline const char *
continuo_from_version(struct continuo_model *model)
{
    return model->api->from_version(model);
}

/* Returns the absolute path of the folder with the archive's files. It stays valid until unload()
 * returns; the files stay there as long.
 *
 *   snprintf(path, sizeof(path), "%s/weights.bin", continuo_model_dir(model)); */
static inline const char *
continuo_model_dir(struct continuo_model *model)
{
    return model->api->model_dir(model);
}

/* Returns the number of this worker among those of the model version: 1, 2, ...
 *
 *   srand(continuo_worker(model)); */
static inline unsigned
continuo_worker(struct continuo_model *model)
{
    return model->api->worker(model);
}

/* Stores a pointer of the handler, typically to what load() made: weights, tables. The handler
 * owns what it points to and frees it in unload(). It is not a place for data of a sequence.
 *
 *   continuo_set_data(model, weights); */
static inline void
continuo_set_data(struct continuo_model *model, void *data)
{
    model->api->set_data(model, data);
}

/* Returns the pointer that continuo_set_data() stored, or NULL if there is none.
 *
 *   const struct weights *weights = continuo_data(model); */
static inline void *
continuo_data(struct continuo_model *model)
{
    return model->api->data(model);
}

/* Call it in load(). Sets the message that says why the model cannot run, formatted like printf.
 * It returns -1, so that load() can return its result.
 *
 *   return continuo_load_error(model, "weights.bin has %zu bytes, expected %zu", found, expected);
 */
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

/* Writes a line, formatted like printf, into the server's log. Lines beyond the server's limits
 * are dropped and counted; it never fails.
 *
 *   continuo_log(model, CONTINUO_LOG_WARN, "no calibration for sensor %u", sensor); */
CONTINUO_PRINTF(3, 4)
static inline void
continuo_log(struct continuo_model *model, enum continuo_log_level level, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    model->api->log(model, level, fmt, args);
    va_end(args);
}

/* Reports a number that the handler measured; it appears in /metrics or in the metrics log. The
 * name and the names of dimensions have letters, digits and _ and do not begin with a digit.
 * `unit` is one word; NULL means "Count". The server adds the dimensions ModelName, Level and
 * Hostname. Returns 0, or -1 if the value is not counted: a name is not allowed (the log says
 * which), or the call has reported too many values (handler.metrics.samples).
 *
 *   const struct continuo_dimension room = {"room", "kitchen"};
 *   continuo_metric(model, CONTINUO_GAUGE, "temperature", "C", 21.5, &room, 1); */
static inline int
continuo_metric(struct continuo_model *model, enum continuo_metric_type type, const char *name,
                const char *unit, double value, const struct continuo_dimension *dimensions,
                size_t n_dimensions)
{
    return model->api->metric(model, type, name, unit, value, dimensions, n_dimensions);
}

/* Returns the text at a dotted path in the model's YAML, or `fallback` if the YAML has no text
 * there. The text stays valid until unload() returns.
 *
 *   const char *mode = continuo_config_string(model, "handler.mode", "fast"); */
static inline const char *
continuo_config_string(struct continuo_model *model, const char *path, const char *fallback)
{
    return model->api->config_string(model, path, fallback);
}

/* Returns the integer at a dotted path in the model's YAML, or `fallback` if the YAML has none
 * there.
 *
 *   int64_t window = continuo_config_int(model, "handler.window", 16); */
static inline int64_t
continuo_config_int(struct continuo_model *model, const char *path, int64_t fallback)
{
    return model->api->config_int(model, path, fallback);
}

/* Returns the number at a dotted path in the model's YAML, or `fallback` if the YAML has none
 * there.
 *
 *   double threshold = continuo_config_double(model, "handler.threshold", 0.5); */
static inline double
continuo_config_double(struct continuo_model *model, const char *path, double fallback)
{
    return model->api->config_double(model, path, fallback);
}

/* Returns 1 or 0 for true or false at a dotted path in the model's YAML, or `fallback` if the YAML
 * has neither there.
 *
 *   if (continuo_config_bool(model, "handler.verbose", 0)) ... */
static inline int
continuo_config_bool(struct continuo_model *model, const char *path, int fallback)
{
    return model->api->config_bool(model, path, fallback);
}

/* --- the state --- */

/* Returns the flat state of the item's sequence: `size` bytes without pointers, which the handler
 * changes in place. They are zeroed in a new sequence, stored when the item is answered, and
 * restored when it fails. Returns NULL, and the item has failed, if the model is not stateful or
 * the stored state has another size.
 *
 *   struct counter *state = continuo_state(item, sizeof(*state));
 *   if (!state)
 *       continue;
 *   state->count++; */
static inline void *
continuo_state(struct continuo_item *item, size_t size)
{
    return item->api->state(item, size);
}

/* Returns the object of the item's sequence, which create() or restore() made and the worker owns.
 * The handler changes it in place; save() is called when the item is answered. Returns NULL, and
 * the item has failed, if there is none.
 *
 *   struct track *track = continuo_object(item); */
static inline void *
continuo_object(struct continuo_item *item)
{
    return item->api->object(item);
}

/* Call it in save(). Appends bytes to the stored state. Returns -1 if the state is then larger
 * than state.maxBytes.
 *
 *   return continuo_write(out, &track->n, sizeof(track->n)); */
static inline int
continuo_write(struct continuo_writer *out, const void *bytes, size_t len)
{
    return out->api->write(out, bytes, len);
}

/* --- the request --- */

/* Returns the data of the part named "body"; if there is none, of the part named "data"; if there
 * is none either, of the first part. It is absent if the request has no part.
 *
 *   struct continuo_bytes body = continuo_body(item);
 *   float *samples = decode(body.data, body.len); */
static inline struct continuo_bytes
continuo_body(struct continuo_item *item)
{
    return item->api->body(item);
}

/* Returns the number of parts of the request.
 *
 *   for (size_t i = 0; i < continuo_part_count(item); i++) ... */
static inline size_t
continuo_part_count(struct continuo_item *item)
{
    return item->api->part_count(item);
}

/* Returns the part number `index`, counted from 0. All its members are absent if there is none.
 *
 *   struct continuo_part part = continuo_part_at(item, 0); */
static inline struct continuo_part
continuo_part_at(struct continuo_item *item, size_t index)
{
    return item->api->part_at(item, index);
}

/* Returns the data of the last part of that name. It is absent if there is none.
 *
 *   struct continuo_bytes image = continuo_part(item, "image");
 *   if (!image.data) {
 *       continuo_fail(item, 400, "the part image is missing");
 *       continue;
 *   } */
static inline struct continuo_bytes
continuo_part(struct continuo_item *item, const char *name)
{
    return item->api->part(item, name);
}

/* Returns the value of a header of the request. Case does not matter in the name, and - and _ are
 * equal. It is absent if there is none.
 *
 *   struct continuo_bytes language = continuo_header(item, "accept-language"); */
static inline struct continuo_bytes
continuo_header(struct continuo_item *item, const char *name)
{
    return item->api->header(item, name);
}

/* Returns the id of the item's sequence. It is absent in a stateless model.
 *
 *   struct continuo_bytes id = continuo_sequence_id(item);
 *   continuo_log(model, CONTINUO_LOG_DEBUG, "step of %.*s", (int)id.len, id.data); */
static inline struct continuo_bytes
continuo_sequence_id(struct continuo_item *item)
{
    return item->api->sequence_id(item);
}

/* Returns the id of the request.
 *
 *   struct continuo_bytes id = continuo_request_id(item); */
static inline struct continuo_bytes
continuo_request_id(struct continuo_item *item)
{
    return item->api->request_id(item);
}

/* Returns whether this is the first step of the sequence.
 *
 *   if (continuo_is_start(item)) ... */
static inline int
continuo_is_start(struct continuo_item *item)
{
    return item->api->is_start(item);
}

/* Returns whether the client said that the sequence ends with this step.
 *
 *   if (continuo_is_end(item)) ... */
static inline int
continuo_is_end(struct continuo_item *item)
{
    return item->api->is_end(item);
}

/* Returns whether the client has disconnected, so that an answer would reach nobody.
 *
 *   while (more_work && !continuo_is_cancelled(item)) ... */
static inline int
continuo_is_cancelled(struct continuo_item *item)
{
    return item->api->is_cancelled(item);
}

/* Returns how many steps of the sequence succeeded before this one.
 *
 *   uint64_t step = continuo_step(item);  -> 0 in the first step */
static inline uint64_t
continuo_step(struct continuo_item *item)
{
    return item->api->step(item);
}

/* Returns the time in seconds until the request's deadline, or infinity if it has none.
 *
 *   if (continuo_seconds_left(item) < 0.1) ... */
static inline double
continuo_seconds_left(struct continuo_item *item)
{
    return item->api->seconds_left(item);
}

/* Reads an integer at a dotted path of a JSON body into `out`; "" means the whole body. Returns 0,
 * or -1 if the body is not valid JSON or has no integer there; then `out` is not changed and the
 * item has not failed.
 *
 *   int64_t n;
 *   if (continuo_json_int(item, "options.n", &n))
 *       n = 1; */
static inline int
continuo_json_int(struct continuo_item *item, const char *path, int64_t *out)
{
    return item->api->json_int(item, path, out);
}

/* Like continuo_json_int(), but reads any number.
 *
 *   double x;
 *   if (continuo_json_double(item, "x", &x)) {
 *       continuo_fail(item, 400, "x must be a number");
 *       continue;
 *   } */
static inline int
continuo_json_double(struct continuo_item *item, const char *path, double *out)
{
    return item->api->json_double(item, path, out);
}

/* Returns the string at a dotted path of a JSON body. It is absent if there is none; the item has
 * not failed then.
 *
 *   struct continuo_bytes name = continuo_json_string(item, "user.name"); */
static inline struct continuo_bytes
continuo_json_string(struct continuo_item *item, const char *path)
{
    return item->api->json_string(item, path);
}

/* --- the answer --- */

/* Answers the item. Returns -1, and the item has failed, if it was answered before or the answer
 * is larger than answerMaxBytes.
 *
 *   continuo_reply(item, "ok", 2); */
static inline int
continuo_reply(struct continuo_item *item, const void *bytes, size_t len)
{
    return item->api->reply(item, bytes, len);
}

/* Answers the item with text that is formatted like printf. Fails like continuo_reply().
 *
 *   continuo_replyf(item, "{\"count\": %u}", state->count); */
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

/* Appends a piece to the answer; it is sent at the next continuo_more() or with the reply. Fails
 * like continuo_reply().
 *
 *   continuo_send(item, word, strlen(word));
 *   continuo_more(item, 0); */
static inline int
continuo_send(struct continuo_item *item, const void *bytes, size_t len)
{
    return item->api->send(item, bytes, len);
}

/* Sets the status of the answer, from 200 to 599; the default is 200. Returns -1, and the item has
 * failed, for another value or if a piece of the answer has already been sent.
 *
 *   continuo_set_status(item, 201); */
static inline int
continuo_set_status(struct continuo_item *item, int status)
{
    return item->api->set_status(item, status);
}

/* Sets a header of the answer. Returns -1, and the item has failed, if the server sets this header
 * itself, if a character is not allowed, or if a piece of the answer has already been sent.
 *
 *   continuo_set_header(item, "x-model-mood", "good"); */
static inline int
continuo_set_header(struct continuo_item *item, const char *name, const char *value)
{
    return item->api->set_header(item, name, value);
}

/* Sets the content type of the answer. Fails like continuo_set_header().
 *
 *   continuo_set_content_type(item, "application/json"); */
static inline int
continuo_set_content_type(struct continuo_item *item, const char *content_type)
{
    return item->api->set_content_type(item, content_type);
}

/* Ends the sequence with this step, even if the client did not say so. It takes effect with the
 * answer; if the item fails, the sequence stays open.
 *
 *   if (state->n == limit)
 *       continuo_end_sequence(item); */
static inline void
continuo_end_sequence(struct continuo_item *item)
{
    item->api->end_sequence(item);
}

/* Refuses the item with a message, formatted like printf. `status` is from 400 to 599, or 0 for
 * "the handler failed" (500). The sequence's state stays as it was before the step.
 *
 *   continuo_fail(item, 400, "expected %zu samples, got %zu", expected, found); */
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

/* Asks for another turn: what continuo_send() appended is sent now (with status, headers and
 * content type, if it is the first piece), and run() gets the item again, after at least `seconds`
 * (0 to 86400). Returns -1, and the item has failed, if it was answered or deferred.
 *
 * The step's state is stored together with the end of its answer. With continuousBatching: true it
 * is stored at the first continuo_more(), and later changes of the state are lost.
 *
 *   continuo_send(item, token, len);
 *   continuo_more(item, 0); */
static inline int
continuo_more(struct continuo_item *item, double seconds)
{
    return item->api->more(item, seconds);
}

/* Returns `size` bytes that the item keeps from turn to turn until its answer is complete. They
 * are zeroed in the first turn; pass the same size in each. Returns NULL, and the item has failed,
 * if the size differs or there is not enough memory.
 *
 *   struct progress *progress = continuo_stream(item, sizeof(*progress)); */
static inline void *
continuo_stream(struct continuo_item *item, size_t size)
{
    return item->api->stream(item, size);
}

/* Returns NULL, or the reason why the item must be completed in this turn: "gone" (the client
 * disconnected), "deadline" (stream.timeoutMSec), "ended" (the sequence ends) or "cancelled"
 * (continuo_stop_streams()). If the handler replies, the step is kept; if it fails the item or
 * asks for another turn, the step is dropped.
 *
 *   if (continuo_stop_reason(item)) {
 *       continuo_reply(item, "", 0);
 *       continue;
 *   } */
static inline const char *
continuo_stop_reason(struct continuo_item *item)
{
    return item->api->stop_reason(item);
}

/* Stops the answers that earlier steps of the sequence still stream: continuo_stop_reason()
 * returns "cancelled" for them. It takes effect when this item is answered.
 *
 *   continuo_stop_streams(item);  -> the user interrupts */
static inline void
continuo_stop_streams(struct continuo_item *item)
{
    item->api->stop_streams(item);
}

/* --- tensors, for models whose YAML declares inputs and outputs --- */

/* Returns the bytes of a NUL-terminated text, for names of tensors. They belong to the caller. Any
 * thread may call it.
 *
 *   tensor.name = continuo_text("OUTPUT0"); */
static inline struct continuo_bytes
continuo_text(const char *text)
{
    struct continuo_bytes bytes;

    bytes.data = text;
    bytes.len = strlen(text);
    return bytes;
}

/* Returns the number of tensors that the request has. They were checked against the inputs of the
 * model's YAML; an optional input may be missing.
 *
 *   size_t n = continuo_tensor_count(item); */
static inline size_t
continuo_tensor_count(struct continuo_item *item)
{
    return item->api->tensor_count(item);
}

/* Returns the tensor number `index`, counted from 0 in the order of the request, or NULL if there
 * is none. Its data is aligned, so it can be read as an array of its datatype.
 *
 *   const struct continuo_tensor *tensor = continuo_tensor_at(item, 0); */
static inline const struct continuo_tensor *
continuo_tensor_at(struct continuo_item *item, size_t index)
{
    return item->api->tensor_at(item, index);
}

/* Returns the tensor of that name, or NULL if the request has none. Its data is aligned, so it can
 * be read as an array of its datatype.
 *
 *   const struct continuo_tensor *x = continuo_tensor(item, "X");
 *   const float *values = (const float *)(const void *)x->data.data; */
static inline const struct continuo_tensor *
continuo_tensor(struct continuo_item *item, const char *name)
{
    return item->api->tensor(item, name);
}

/* Returns the number of elements of a tensor: the product of its sizes. Any thread may call it.
 *
 *   for (size_t i = 0; i < continuo_elements(x); i++) ... */
static inline size_t
continuo_elements(const struct continuo_tensor *tensor)
{
    size_t elements = 1;

    for (size_t i = 0; i < tensor->rank; i++)
        elements *= (size_t)tensor->shape[i];
    return elements;
}

/* Walks through the strings of a BYTES tensor: `rest` begins as a copy of the tensor's data. Each
 * call stores the next string in `out` and returns 1; it returns 0 at the end. The strings point
 * into the tensor. Each is stored as a 32-bit length and its bytes; write an answer's strings the
 * same way. Any thread may call it.
 *
 *   struct continuo_bytes rest = tensor->data, text;
 *   while (continuo_next_string(&rest, &text)) ... */
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

/* Answers the item with tensors, whose names and datatypes are those of the outputs in the model's
 * YAML. Returns -1, and the item has failed, if it was answered before, or if a tensor's data does
 * not fit its shape and datatype.
 *
 *   struct continuo_tensor y = *x;
 *   y.name = continuo_text("Y");
 *   continuo_reply_tensors(item, &y, 1); */
static inline int
continuo_reply_tensors(struct continuo_item *item, const struct continuo_tensor *tensors, size_t n)
{
    return item->api->reply_tensors(item, tensors, n, sizeof(*tensors));
}

/* --- any number of responses, also later, for models with decoupled: true in their YAML --- */

/* Sends one response of a decoupled model before the end of the answer. It leaves at the item's
 * next continuo_more(), together with the answer, or, if the item is deferred, at once. Fails like
 * continuo_reply_tensors(), which sends the last response and ends the answer.
 *
 *   continuo_respond(item, &y, 1);
 *   continuo_more(item, 0); */
static inline int
continuo_respond(struct continuo_item *item, const struct continuo_tensor *tensors, size_t n)
{
    return item->api->respond(item, tensors, n, sizeof(*tensors));
}

/* Ends the answer without another response. Returns -1, and the item has failed, if it was
 * answered before.
 *
 *   continuo_finish(item); */
static inline int
continuo_finish(struct continuo_item *item)
{
    return item->api->finish(item);
}

/* Defers the answer: the item is answered after run() has returned, in a later run() or by a
 * timer. Use the returned item from now on; it stays valid until a reply, a failure or
 * continuo_finish() ends it, or until `stop` has returned. The original item counts as answered,
 * and continuo_more() does not work for the new one. Returns NULL, and the item has failed, if it
 * was answered or deferred before, or has been told to stop.
 *
 * `stop` is required. It is called at most once, when the item must end early: `reason` is one of
 * continuo_stop_reason(), or "failed" if a response could not be sent. If `stop` does not end the
 * answer, the worker breaks it off.
 *
 *   struct continuo_item *open = continuo_defer(item, on_stop, job);
 *   if (open)
 *       job->item = open; */
static inline struct continuo_item *
continuo_defer(struct continuo_item *item, continuo_stop_fn stop, void *arg)
{
    return item->api->defer(item, stop, arg);
}

/* Calls `fn` once with `arg`, between two calls of run(), when `seconds` (0 to 86400) have passed.
 * The call is dropped when the model is unloaded. Returns -1 if it is called in load(), if
 * `seconds` is out of range, or if 65536 calls are already waiting. `arg` belongs to the handler.
 *
 *   continuo_after(model, 0.5, flush, job); */
static inline int
continuo_after(struct continuo_model *model, double seconds, continuo_timer_fn fn, void *arg)
{
    return model->api->after(model, seconds, fn, arg);
}

/* --- a batch's rows as one tensor --- */

/* Returns the tensors of that name of all items as one tensor, row by row, for models that compute
 * a whole batch at once. If the model has a batch dimension (maxBatchSize), that dimension grows;
 * if not, a new first dimension is added. Returns NULL if an item has no such tensor or they
 * differ in datatype or shape.
 *
 *   const struct continuo_tensor *x = continuo_stack(items, n, "X"); */
static inline const struct continuo_tensor *
continuo_stack(struct continuo_item *const *items, size_t n, const char *name)
{
    return n ? items[0]->api->stack(items, n, name) : NULL;
}

/* Answers all items with their rows of these tensors, which are stacked like those of
 * continuo_stack(). Returns -1 if the number of rows is not that of the items together; then the
 * items without rows, and those that were answered before, have failed.
 *
 *   continuo_reply_stack(items, n, &y, 1); */
static inline int
continuo_reply_stack(struct continuo_item *const *items, size_t n,
                     const struct continuo_tensor *tensors, size_t n_tensors)
{
    if (n == 0)
        return 0;
    return items[0]->api->reply_stack(items, n, tensors, n_tensors, sizeof(*tensors));
}

#ifdef __cplusplus
}
#endif

#endif
