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

/* A tensor of one row, without the batch dimension, in the bytes of its state. */
struct module_place {
    size_t at, bytes;
    uint32_t rank;
    bool none; /* the state is None (`init: none`), so it has no data */
    int64_t dims[CN_TENSOR_RANK_MAX];
};

/* Where the tensors of a state lie in its bytes. States of the same shapes share one layout, so a
 * model without open sizes has one for all of its sequences. */
struct module_layout {
    uint32_t refs, n;
    size_t bytes;                 /* size of the whole state */
    struct module_place places[]; /* in the order of the declaration */
};

/* A sequence's state as the worker holds it: the bytes that are stored (proto/state_tensors.h). So
 * a step copies each tensor out of them and into them, and a commit copies all of them at once. */
struct module_state {
    uint32_t magic;
    struct module_layout *layout;
    char *bytes; /* layout->bytes; cn_try_alloc'ed */
    size_t cap;
};

/* An output of a request, with all rows of the request. It lies in the arena, like its dimensions.
 */
struct module_output {
    char *data; /* NULL: no run has filled it yet */
    size_t bytes;
    const int64_t *dims; /* dimensions of one row */
    uint32_t rank;
};

/* The rows of one tensor, one behind the other along its batch axis. Its memory grows when it must
 * and is kept for later batches. */
struct module_batch {
    char *data;
    size_t cap;
};

/* A tensor of a run. Each row has `outer` pieces of `inner` bytes of it: the row's own bytes are
 * these pieces one behind the other, and the tensor has the pieces of all rows side by side. */
struct module_piece {
    char *all; /* the rows of the run */
    size_t outer, inner;
    /* from a row's first piece to the next row's: `inner`; 0: all rows have the same */
    size_t step;
    int32_t input; /* the input that has the rows' data; -1: their states have it */
    int32_t state; /* if input is -1: which of the states has it */
    size_t at;     /* if input is -1: where that state begins in the bytes of the states */
};

/* A request while its batch runs. */
struct module_item {
    struct cn_item *item;
    uint32_t n_rows;
    bool failed;
    /* names, types and shapes; requests in which they are equal share one array */
    const struct cn_tensor *inputs;
    const char **data; /* the data of each input, borrowed from the request */
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
    bool apart;  /* each row runs alone, with copies of itself if the bucket has more rows */
    struct module_probe_result probe;

    struct module_spent *spent; /* one for each bucket of the plan; counted since the last report */
    /* the joined rows of attributes; those of an argument lie in the library's memory */
    struct module_batch *batches;
    struct cn_str *types; /* one for each input: its type in the last row of this batch, borrowed */
    struct ctt_value *arguments, *values; /* values: of the attributes */
    struct ctt_tensor *results, *kept;    /* kept: of attributes */
    /* the tensors of the run: its inputs, and after it its results */
    struct module_piece *pieces;
    uint32_t n_pieces;
    /* the layout of the states after the last run; NULL: there was none */
    struct module_layout *layout;
    /* the layout that is being made for new states; nobody else uses it */
    struct module_layout *draft;

    /* These members belong to the batch that runs. */
    struct cn_arena arena;
    struct module_item *items;
    struct module_row *rows;
    uint32_t n_items, cap_items, n_rows, cap_rows;
};

/* module_state.c */
struct module_layout *cn_module_layout_create(uint32_t n);
void cn_module_layout_unref(struct module_layout *layout); /* NULL is allowed */
/* Returns in *out the layout of the places in rt->draft, of which all members but `at` are set. It
 * is rt->layout, and a state that keeps it takes a reference. CN_E_STATE_TOO_LARGE: a tensor has
 * too many bytes to be stored. */
int cn_module_layout_settle(struct module_runtime *rt, struct module_layout **out,
                            struct cn_error *err);
void cn_module_state_destroy(struct module_state *state);
/* Makes room for this many bytes, and keeps what the tensor holds. Returns 0 or CN_E_OUT_OF_MEMORY.
 */
int cn_module_state_reserve(struct module_state *state, size_t bytes, struct cn_error *err);
/* Gives the state another layout, for which it has room. The data of its tensors is not set. */
void cn_module_state_lay_out(const struct module_runtime *rt, struct module_state *state,
                             struct module_layout *layout);
struct module_state *cn_module_state_copy(const struct module_state *from, struct cn_error *err);
/* Makes the state with which a sequence begins. `row` may have the first values; it is NULL when
 * the model is tried at load. */
int cn_module_state_begin(struct module_runtime *rt, const struct cn_row *row,
                          struct module_state **out, struct cn_error *err);

/* module_rows.c */
/* Describes a tensor whose rows have these dimensions, with the batch dimension at `axis`. */
struct module_piece cn_module_piece_of(enum cn_datatype type, uint32_t rank, const int64_t *dims,
                                       uint32_t axis);
/* Puts `k` rows into the tensors of rt->pieces, and fills them up to `bucket` rows with copies of
 * the first one. */
void cn_module_rows_gather(struct module_runtime *rt, const uint32_t *rows, uint32_t k,
                           uint32_t bucket);
/* Takes the outputs and the states of `k` rows out of the results of a run. On failure no state has
 * changed. Rows with a `no_number` keep their states. */
int cn_module_rows_scatter(struct module_runtime *rt, const uint32_t *rows, uint32_t k,
                           uint32_t bucket, struct cn_error *err);
/* Marks the rows with a NaN or an infinity in an output or a state of the run, for nanPolicy. */
void cn_module_rows_mark(struct module_runtime *rt, const uint32_t *rows, uint32_t k,
                         uint32_t bucket);

/* module_batch.c */
/* Runs `k` rows (indices into rt->rows, whose items are filled) as a batch of `bucket`. On failure
 * no state and no output has changed. If it returns CN_E_HANDLER_FAILED, rt->error has the whole
 * message. */
int cn_module_batch_run(struct module_runtime *rt, const uint32_t *rows, uint32_t k,
                        uint32_t bucket, struct cn_error *err);

/* module_run.c: returns true if the present inputs and states of two rows allow them in one run. */
bool cn_module_same_shape(const struct module_runtime *rt, const struct module_row *a,
                          const struct module_row *b);

/* module_runtime.c: chooses the CUDA device of this worker. Workers use the devices in turn: those
 * that the YAML names, or all devices of the machine, which the library in rt->api counts. Returns
 * CN_E_LOAD_FAILED if there is no device. */
int cn_module_choose_device(struct module_runtime *rt, uint32_t *device, struct cn_error *err);

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

static inline bool
cn_module_is_batched(const struct module_runtime *rt)
{
    return rt->config.io->max_batch_size > 0;
}

/* The dimension of the batch in this state's tensors. */
static inline uint32_t
cn_module_axis_of(const struct module_runtime *rt, int32_t state)
{
    return cn_module_is_batched(rt) ? rt->config.io->state.items[state].batch_axis : 0;
}

static inline struct module_state *
cn_module_state_of(const struct module_runtime *rt, uint32_t row)
{
    return rt->items[rt->rows[row].item].item->state;
}

static inline const struct module_place *
cn_module_place(const struct module_state *state, int32_t i)
{
    return &state->layout->places[i];
}

static inline char *
cn_module_place_data(const struct module_state *state, int32_t i)
{
    return state->bytes + state->layout->places[i].at;
}

static inline struct module_runtime *
module_rt(struct cn_runtime *rt)
{
    return (struct module_runtime *)rt;
}

/* Like module_rt(), for a pointer that comes from outside this folder: it is checked. */
static inline struct module_runtime *
cn_module_checked(struct cn_runtime *rt)
{
    return cn_cast(struct module_runtime, module_rt(rt), MODULE_RUNTIME_MAGIC);
}

#endif
