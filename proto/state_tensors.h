/* proto/state_tensors.h - the state of a sequence as tensors that the model's YAML declares.
 *
 * A declared state tensor is an input of the handler (what the step before left) and an output of
 * it (what this step leaves). The declaration is parsed by config/model/model_state.h; what is here
 * is what the worker and the runtimes need: which tensors there are, how they begin, and how those
 * of one sequence become the bytes that the store keeps.
 *
 * Stored tensors have no batch dimension. A row of a model with one has a 1 at `batch_axis`: the
 * bytes are the same. Nothing here allocates but from the arena. Any thread.
 */
#ifndef CN_PROTO_STATE_TENSORS_H
#define CN_PROTO_STATE_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "proto/tensor.h"

/* What the bytes begin with: u32 magic, u16 version, u16 zero; then a set of tensors (tensor.h),
 * named as inputs, in the order of the declaration. */
#define CN_STATE_TENSORS_MAGIC 0x53544e43u /* "CNTS" */
#define CN_STATE_TENSORS_VERSION 1

enum cn_state_init {
    CN_STATE_ZEROS,
    CN_STATE_FILE,   /* bytes of a file of the archive, as a tensor's data is packed */
    CN_STATE_CALLER, /* an input of the sequence's first request; zeros where it has none */
    CN_STATE_NONE    /* Python's None, which it may be later, too */
};

struct cn_state_spec {
    struct cn_str input, output; /* names; both may be one. NUL-terminated too */
    enum cn_datatype type;
    uint32_t rank;
    int64_t dims[CN_TENSOR_RANK_MAX]; /* -1: any size; without the batch dimension */
    uint32_t batch_axis;              /* where rows are joined to a batch: 0 to rank */
    enum cn_state_init init;
    struct cn_str init_from;               /* the file, or the input; NUL-terminated too */
    int64_t init_dims[CN_TENSOR_RANK_MAX]; /* of a new one: dims, with -1 replaced */
    bool visible;                          /* the model declares it as an output, too */
    bool unsaid;                           /* dims has -1, and nobody says how it begins */
};

struct cn_state_specs {
    uint32_t n;   /* 0: the model declares no state */
    bool batched; /* the model's tensors have a batch dimension */
    struct cn_state_spec *items;
};

/* NULL when no state has that input, or output. */
const struct cn_state_spec *cn_state_of_input(const struct cn_state_specs *specs,
                                              struct cn_str name);
const struct cn_state_spec *cn_state_of_output(const struct cn_state_specs *specs,
                                               struct cn_str name);

/* The tensor that a sequence begins with, named as the input. `bytes`: the file's content with
 * CN_STATE_FILE; else it is not looked at and the tensor is zeros (BYTES: empty strings), from the
 * arena. CN_E_CONFIG: the file's size does not fit; CN_E_OUT_OF_MEMORY. */
int cn_state_initial(const struct cn_state_spec *spec, struct cn_str bytes, struct cn_arena *arena,
                     struct cn_tensor *out, struct cn_error *err);

/* None among stored tensors: of a rank that none can be declared with, and without elements. */
struct cn_tensor cn_state_none(const struct cn_state_spec *spec);
bool cn_state_is_none(const struct cn_tensor *tensor);

/* A stored tensor as the row's input, and back: takes what a handler or a client gave, checks it
 * against the declaration and takes its batch dimension away; `*out` is named as the input and
 * borrows the data. `who` begins the message: "the handler gave state output". Fails with `code`.
 */
void cn_state_to_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                     struct cn_tensor *tensor);
int cn_state_from_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                      const struct cn_tensor *tensor, const char *who, int code,
                      struct cn_tensor *out, struct cn_error *err);

/* Appends the bytes of one sequence's state; `tensors`: specs->n, in the order of the declaration.
 * out->failed when they did not fit. */
void cn_state_pack(const struct cn_state_specs *specs, const struct cn_tensor *tensors,
                   struct cn_buf *out);
/* The same by hand: what they begin with, then each tensor, named as the input, by
 * cn_tensors_put_one. */
void cn_state_pack_begin(const struct cn_state_specs *specs, struct cn_buf *out);
/* `out`: specs->n, in the order of the declaration whatever the order of the bytes; data is
 * borrowed from `bytes`. CN_E_STATE_STORE, naming the tensor, when the bytes are no such state or
 * not one of this declaration: another version of the model wrote them. */
int cn_state_unpack(const struct cn_state_specs *specs, struct cn_str bytes, struct cn_arena *arena,
                    struct cn_tensor *out, struct cn_error *err);

#endif
