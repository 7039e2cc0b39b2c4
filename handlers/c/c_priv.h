/* handlers/c/c_priv.h - what the files of the C runtime share. Worker's thread. */
#ifndef CN_HANDLERS_C_C_PRIV_H
#define CN_HANDLERS_C_C_PRIV_H

#include <continuo/handler.h>
#include <jansson.h>

#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "handlers/open_item.h"
#include "handlers/runtime.h"

#define C_RUNTIME_MAGIC 0x43525431u
#define C_ITEM_MAGIC 0x43495431u
#define C_STATE_MAGIC 0x43535431u
#define C_STREAM_MAGIC 0x43534d31u

/* The model as the handler knows it. */
struct c_model {
    struct continuo_model handle; /* first */
    struct c_runtime *rt;
};

/* A request while it is with the handler. */
struct c_item {
    struct continuo_item handle; /* first */
    uint32_t magic;
    struct c_runtime *rt;
    struct cn_item *item;
    bool answered, fresh, json_tried;
    struct c_stream *stream; /* NULL: the handler has not asked for it */
    struct c_open *open;     /* the deferred item that represents this one; NULL: not deferred */
    json_t *json;            /* the body, parsed at the first call that needs it */
    /* The request's tensors, in the arena; made at the first call that needs them. */
    struct continuo_tensor *tensors;
    size_t n_tensors;
    struct cn_arena arena;
};

/* What an item keeps between two calls of the handler. */
struct c_stream {
    uint32_t magic;
    size_t bytes;
    void *data;          /* cn_alloc'ed; NULL: the handler needs none */
    struct c_open *open; /* the item is deferred */
};

/* A deferred item. */
struct c_open {
    struct c_item item; /* what the handler has */
    struct cn_open_item base;
    continuo_stop_fn stop;
    void *arg;
    bool told; /* the handler has been told that the item must end */
};

/* A sequence's state as the worker holds it. */
struct c_state {
    uint32_t magic;
    size_t bytes; /* size of the flat state; 0: it was not asked for yet */
    void *flat;   /* cn_alloc'ed */
    void *object; /* the handler's object, if the handler has create() */
};

struct c_writer {
    struct continuo_writer handle; /* first */
    struct cn_buf *out;
};

struct c_runtime {
    struct cn_runtime base; /* first */
    uint32_t magic;
    void *library;
    struct continuo_handler handler; /* a copy; members that the library does not know are zero */
    struct c_model model;
    char *name, *version, *dir, *file;
    unsigned worker_index;
    bool stateful;     /* the handler keeps a state */
    bool tensor_state; /* the YAML declares the state, so the handler has none of its own */
    bool batched;      /* the model's tensors have a batch dimension */
    size_t state_max_bytes;
    json_t *config;
    void *data;
    struct cn_buf load_error;
    struct c_item *items;
    struct continuo_item **handles;
    uint32_t cap_items;
    struct cn_list timers; /* the timers of continuo_after */
    uint32_t n_timers;
};

extern const struct continuo_api cn_c_api;

/* c_item.c: returns the item behind a handle. Panics if the handle is not one. */
struct c_item *cn_c_item(struct continuo_item *item);
bool cn_c_has_failed(const struct c_item *item);
/* Begins an answer. Returns -1 if the item has failed, or if it was answered already; the second
 * makes it fail. */
int cn_c_open_answer(struct c_item *item);
/* Fails the item because the handler made a mistake. */
void cn_c_fail(struct c_item *item, const char *message);
/* Fails the item with the HTTP status that the handler gave. Status 0 means that the handler
 * failed. */
void cn_c_refuse(struct c_item *item, long long status, const char *message);
/* Makes an empty state for a sequence. Free it with cn_c_state_destroy(). */
struct c_state *cn_c_state_create(void);
void cn_c_state_destroy(struct c_runtime *rt, struct c_state *state);

/* c_model.c: functions of the table, and two helpers for other files. */
const char *cn_c_model_name(struct continuo_model *model);
const char *cn_c_model_version(struct continuo_model *model);
const char *cn_c_from_version(struct continuo_model *model);
const char *cn_c_model_dir(struct continuo_model *model);
unsigned cn_c_worker(struct continuo_model *model);
void cn_c_set_model_data(struct continuo_model *model, void *data);
void *cn_c_model_data(struct continuo_model *model);
void cn_c_load_error(struct continuo_model *model, const char *fmt, va_list args);
void cn_c_log(struct continuo_model *model, enum continuo_log_level level, const char *fmt,
              va_list args);
const char *cn_c_config_string(struct continuo_model *model, const char *path,
                               const char *fallback);
int64_t cn_c_config_int(struct continuo_model *model, const char *path, int64_t fallback);
double cn_c_config_double(struct continuo_model *model, const char *path, double fallback);
int cn_c_config_bool(struct continuo_model *model, const char *path, int fallback);
int cn_c_metric(struct continuo_model *model, enum continuo_metric_type type, const char *name,
                const char *unit, double value, const struct continuo_dimension *dimensions,
                size_t n);
/* Like printf, but writes into `out` and cuts the text to its size. Returns out. */
const char *cn_c_format(char *out, size_t bytes, const char *fmt, va_list args);
/* Returns the value at the path "a.b.c" below `root`, or NULL if there is none. "" is the root
 * itself. */
json_t *cn_c_json_at(json_t *root, const char *path);

/* c_request.c: functions of the table. */
size_t cn_c_part_count(struct continuo_item *handle);
struct continuo_part cn_c_part_at(struct continuo_item *handle, size_t index);
struct continuo_bytes cn_c_part(struct continuo_item *handle, const char *name);
struct continuo_bytes cn_c_body(struct continuo_item *handle);
struct continuo_bytes cn_c_header(struct continuo_item *handle, const char *name);
struct continuo_bytes cn_c_sequence_id(struct continuo_item *handle);
struct continuo_bytes cn_c_request_id(struct continuo_item *handle);
int cn_c_is_start(struct continuo_item *handle);
int cn_c_is_end(struct continuo_item *handle);
int cn_c_is_cancelled(struct continuo_item *handle);
uint64_t cn_c_step(struct continuo_item *handle);
double cn_c_seconds_left(struct continuo_item *handle);
int cn_c_json_int(struct continuo_item *handle, const char *path, int64_t *out);
int cn_c_json_double(struct continuo_item *handle, const char *path, double *out);
struct continuo_bytes cn_c_json_string(struct continuo_item *handle, const char *path);

/* c_open.c: items that are answered later, what items keep between calls, and timers. */
struct c_stream *cn_c_stream_create(void);
void cn_c_stream_destroy(struct c_stream *stream);
struct continuo_item *cn_c_defer(struct continuo_item *handle, continuo_stop_fn stop, void *arg);
int cn_c_finish(struct continuo_item *handle);
int cn_c_after(struct continuo_model *model, double seconds, continuo_timer_fn fn, void *arg);
void cn_c_drop_timers(struct c_runtime *rt);
/* Frees the deferred item. Calls its stop function first if the handler has not ended it. */
void cn_c_open_destroy(struct c_open *open);
/* Call it at the beginning of a run: calls the stop function if the item must end. */
void cn_c_run_open(struct c_open *open, const struct cn_item *item);
/* Call it at the end of a run: moves what the handler has answered to the worker's item. */
void cn_c_settle_open(struct cn_item *item);

/* c_tensor.c */
int cn_c_respond(struct continuo_item *handle, const struct continuo_tensor *tensors, size_t n,
                 size_t tensor_bytes);
size_t cn_c_tensor_count(struct continuo_item *handle);
const struct continuo_tensor *cn_c_tensor_at(struct continuo_item *handle, size_t index);
const struct continuo_tensor *cn_c_tensor(struct continuo_item *handle, const char *name);
int cn_c_reply_tensors(struct continuo_item *handle, const struct continuo_tensor *tensors,
                       size_t n, size_t tensor_bytes);

/* c_stack.c */
const struct continuo_tensor *cn_c_stack(struct continuo_item *const *handles, size_t n,
                                         const char *name);
int cn_c_reply_stack(struct continuo_item *const *handles, size_t n,
                     const struct continuo_tensor *tensors, size_t n_tensors, size_t tensor_bytes);

#endif
