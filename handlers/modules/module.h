/* handlers/modules/module.h - declares what the files of this folder and the kinds of modules
 * share. Worker's thread. */
#ifndef CN_HANDLERS_MODULES_MODULE_H
#define CN_HANDLERS_MODULES_MODULE_H

#include <stdio.h>

#include "core/errors/panic.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "handlers/modules/module_config.h"
#include "handlers/modules/module_kind.h"
#include "handlers/modules/module_plan.h"
#include "handlers/modules/module_probe.h"
#include "handlers/modules/module_runtime.h"
#include "handlers/torchlib/torch_abi.h"
#include "handlers/torchlib/torch_message.h"

#define MODULE_RUNTIME_MAGIC 0x54525431u
#define MODULE_STATE_MAGIC 0x54535431u

/* A tensor of one row, without a batch dimension. The members that each step reads come first, in
 * one cache line, because a run of the model pushes our data out of the processor's caches. */
struct module_tensor {
    char *data; /* cn_try_alloc'ed */
    size_t bytes, cap;
    uint32_t rank;
    bool none; /* it holds None and no data */
    int64_t dims[CN_TENSOR_RANK_MAX];
};

/* An output of a request, with all rows of the request. It lies in the arena, like its dimensions.
 */
struct module_output {
    char *data; /* NULL: no run has filled it yet */
    size_t bytes;
    const int64_t *dims; /* dimensions of one row */
    uint32_t rank;
};

/* A sequence's state as the worker holds it. */
struct module_state {
    uint32_t magic, n;
    struct module_tensor tensors[]; /* in the order of the declaration */
};

/* The rows of one tensor, one behind the other along its batch axis. Its memory grows when it must
 * and is kept for later batches. */
struct module_batch {
    char *data;
    size_t cap;
};

/* A request while its batch runs. */
struct module_item {
    struct cn_item *item;
    uint32_t n_rows;
    bool failed;
    const struct cn_tensor
        *inputs;       /* shared by requests with the same names, types and shapes; the data */
    const char **data; /* of this request is here, borrowed from it */
    struct module_output *outputs;
};

struct module_row {
    uint32_t item, index; /* index: which row of the item */
    bool taken;
    const char *no_number; /* nanPolicy refuses the row: the output or state with a NaN */
};

/* Counts the runs of a bucket, and adds up the method's own time of those that were timed. */
struct module_spent {
    uint64_t runs, timed, ns;
};

struct module_runtime {
    struct cn_runtime base; /* first */
    uint32_t magic;
    const struct cn_load *load;
    const struct ctt_api *api;
    struct ctt_model *model;
    struct cn_module_config config;
    struct cn_module_plan plan;
    struct cn_buf *init_files; /* contents of the files with first values of states */
    char device[16];           /* "cpu", "cuda:0" */
    char *describe;
    char *error; /* CTT_ERROR_BYTES, for the library's messages */
    bool fixed;  /* no -1 in dims */
    bool alike;  /* any rows fit together: fixed, and no state holds None or a number */
    struct module_probe_result probe;

    struct module_spent *spent; /* by the plan's buckets; counted since the last report */
    struct module_batch
        *batches;         /* for attributes; an argument is joined in the library's memory */
    struct cn_str *types; /* by input: the type in the last row of this batch, borrowed */
    struct ctt_value *arguments;
    struct ctt_tensor *results, *kept; /* kept: what was read from attributes */

    /* These members belong to the batch that runs. */
    struct cn_arena arena;
    struct module_item *items;
    struct module_row *rows;
    uint32_t n_items, cap_items, n_rows, cap_rows;
};

/* module_state.c */
struct module_state *cn_module_state_create(const struct module_runtime *rt);
void cn_module_state_destroy(struct module_state *state);
/* Makes room for this many bytes, and keeps what the tensor holds. Returns 0 or CN_E_OUT_OF_MEMORY.
 */
int cn_module_tensor_reserve(struct module_tensor *tensor, size_t bytes, struct cn_error *err);
/* Makes the state with which a sequence begins. `row` may have the first values; it is NULL when
 * the model is tried at load. */
int cn_module_state_begin(struct module_runtime *rt, const struct cn_row *row,
                          struct module_state **out, struct cn_error *err);

/* module_batch.c */
/* Runs `k` rows (indices into rt->rows, whose items are filled) as a batch of `bucket`. On failure
 * no state and no output has changed. If it returns CN_E_HANDLER_FAILED, rt->error has the whole
 * message. */
int cn_module_batch_run(struct module_runtime *rt, const uint32_t *rows, uint32_t k,
                        uint32_t bucket, struct cn_error *err);

/* module_run.c: returns true if the present inputs and states of two rows allow them in one run. */
bool cn_module_same_shape(const struct module_runtime *rt, const struct module_row *a,
                          const struct module_row *b);

/* module_warmup.c */
/* Makes a zeroed tensor of one row for the declaration, in `arena`. `open` is the size where the
 * declaration says -1. */
int cn_module_input_of(const struct cn_tensor_spec *spec, bool batched, int64_t open,
                       struct cn_arena *arena, struct cn_tensor *out, struct cn_error *err);
/* Tries each bucket with zeros, which shows what does not fit the model, and measures the time. */
int cn_module_warm_up(struct module_runtime *rt, struct cn_error *err);

/* Writes rt->error to the log. The event is the kind's name and `what`, such as torch_load_failed.
 */
static inline void
cn_module_log_error(const struct module_runtime *rt, const char *what)
{
    char event[64];

    snprintf(event, sizeof(event), "%s_%s", rt->config.kind->runtime, what);
    cn_torch_log(event, rt->load->model_name, rt->load->model_version, rt->error);
}

/* Reports how far loading has come, if somebody has asked for it. */
static inline void
cn_module_progress(const struct module_runtime *rt, const char *what, uint32_t done, uint32_t total)
{
    if (rt->load->progress)
        rt->load->progress(rt->load->progress_ctx, what, done, total);
}

static inline struct module_runtime *
module_rt(struct cn_runtime *rt)
{
    return (struct module_runtime *)rt;
}

/* Like module_of(), for a pointer that comes from outside this folder. */
static inline struct module_runtime *
cn_module_checked(struct cn_runtime *rt)
{
    return cn_cast(struct module_runtime, module_rt(rt), MODULE_RUNTIME_MAGIC);
}

#endif
