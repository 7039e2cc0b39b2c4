/* handlers/modules/module_runtime.h - runs models without a handler: their library takes and
 * returns named tensors, and the worker keeps their state. Worker's thread.
 *
 * The model's YAML says which tensors go in and come out (handlers/modules/module_config.h). The
 * rows of a batch are gathered into tensors with a fixed number of rows, the model runs, and its
 * results are scattered to the rows. A struct cn_module_kind describes how libraries differ.
 * Each kind makes its struct cn_runtime_ops from the functions here.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_RUNTIME_H
#define CN_HANDLERS_MODULES_MODULE_RUNTIME_H

#include "handlers/modules/module_kind.h"
#include "handlers/runtime.h"

/* A kind's open() calls this function. */
int cn_module_open(const struct cn_runtime_ops *ops, const struct cn_module_kind *kind,
                   const struct cn_load *load, struct cn_runtime **out, struct cn_error *err);

/* These functions are the same for each kind. They are members of struct cn_runtime_ops. */
void cn_module_close(struct cn_runtime *rt);
const char *cn_module_describe(struct cn_runtime *rt);
uint32_t cn_module_state_schema(struct cn_runtime *rt);
void cn_module_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n);
void cn_module_drop(struct cn_runtime *rt, void *resume);
void cn_module_metadata(struct cn_runtime *rt, struct cn_item *item);
int cn_module_state_encode(struct cn_runtime *rt, void *state, struct cn_buf *out,
                           struct cn_error *err);
int cn_module_state_decode(struct cn_runtime *rt, struct cn_str bytes, uint32_t from_schema,
                           void **state, struct cn_error *err);
void cn_module_state_free(struct cn_runtime *rt, void *state);
void cn_module_on_close(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
                        enum cn_close_reason reason);
void cn_module_report(struct cn_runtime *rt);

/* Sets these members in a kind's struct cn_runtime_ops. */
#define CN_MODULE_OPS                                                                              \
    .close = cn_module_close, .describe = cn_module_describe,                                      \
    .state_schema = cn_module_state_schema, .run = cn_module_run, .drop = cn_module_drop,          \
    .metadata = cn_module_metadata, .state_encode = cn_module_state_encode,                        \
    .state_decode = cn_module_state_decode, .state_free = cn_module_state_free,                    \
    .on_close = cn_module_on_close, .report = cn_module_report

#endif
