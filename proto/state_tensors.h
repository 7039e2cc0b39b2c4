/* proto/state_tensors.h - implicit state: a sequence's state as tensors that the YAML declares.
 *
 * A declared state tensor is an input of the handler (the value that the last step left) and an
 * output of it (the value that this step leaves). config/model/model_state.h parses the
 * declaration. This header has what the worker and the runtimes need: which tensors there are, with
 * which values they begin, and how the tensors of one sequence become the bytes in the store.
 *
 * Stored tensors have no batch dimension. When the model's tensors have one, a row's tensor has an
 * additional dimension of 1 at `batch_axis`; its bytes are the same. Memory comes from the caller's
 * arena only. Any thread.
 */
#ifndef CN_PROTO_STATE_TENSORS_H
#define CN_PROTO_STATE_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "proto/tensor.h"

/* The bytes in the store are u32 magic, u16 version, u16 zero; then a set of tensors (tensor.h),
 * which are named like the inputs, in the order of the declaration. */
#define CN_STATE_TENSORS_MAGIC 0x53544e43u /* "CNTS" */
#define CN_STATE_TENSORS_VERSION 1
#define CN_STATE_TENSORS_HEAD_BYTES 12 /* includes the number of tensors, with which a set begins */

enum cn_state_init {
    CN_STATE_ZEROS,
    CN_STATE_FILE,   /* the bytes of a file in the archive, in the format of tensor data */
    CN_STATE_CALLER, /* an input of the sequence's first request; zeros if it does not have it */
    CN_STATE_NONE    /* Python's None; later steps may leave None, too */
};

struct cn_state_spec {
    struct cn_str input, output; /* names, which may be equal; also NUL-terminated */
    enum cn_datatype type;
    uint32_t rank;
    int64_t dims[CN_TENSOR_RANK_MAX]; /* -1: any size; without the batch dimension */
    uint32_t batch_axis;              /* the dimension in which rows are joined: 0 to rank */
    enum cn_state_init init;
    struct cn_str init_from;               /* the file or the input; also NUL-terminated */
    int64_t init_dims[CN_TENSOR_RANK_MAX]; /* the first value's shape: dims with -1 replaced */
    bool visible;                          /* the model declares it as an output, too */
    bool unsaid;                           /* dims has -1, and the first value is not declared */
};

struct cn_state_specs {
    uint32_t n;   /* 0: the model declares no state */
    bool batched; /* the model's tensors have a batch dimension */
    struct cn_state_spec *items;
};

/* Return the state with that input or output; NULL when there is none. */
const struct cn_state_spec *cn_state_of_input(const struct cn_state_specs *specs,
                                              struct cn_str name);
const struct cn_state_spec *cn_state_of_output(const struct cn_state_specs *specs,
                                               struct cn_str name);

/* Sets *out to the tensor with which a sequence begins, named like the input. With CN_STATE_FILE
 * its data is `bytes`, the file's content, which it borrows. Otherwise `bytes` is ignored, and the
 * tensor has zeros (BYTES: empty strings) from the arena. Returns 0, CN_E_CONFIG when the file's
 * size does not fit, or CN_E_OUT_OF_MEMORY. */
int cn_state_initial(const struct cn_state_spec *spec, struct cn_str bytes, struct cn_arena *arena,
                     struct cn_tensor *out, struct cn_error *err);

/* How None is stored: as a tensor without elements. Its rank is CN_TENSOR_RANK_MAX, which no
 * declared state has. */
struct cn_tensor cn_state_none(const struct cn_state_spec *spec);
bool cn_state_is_none(const struct cn_tensor *tensor);

/* cn_state_to_row turns a stored tensor into a row's input: it adds the batch dimension, if the
 * model has one. cn_state_from_row is the reverse for a tensor that a handler or a client gave: it
 * checks the tensor against the declaration and removes the batch dimension. *out is named like the
 * input and borrows the data. Returns 0 or `code`; `who` begins the message, for example "the
 * handler gave state output". */
void cn_state_to_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                     struct cn_tensor *tensor);
int cn_state_from_row(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                      const struct cn_tensor *tensor, const char *who, int code,
                      struct cn_tensor *out, struct cn_error *err);

/* Appends the bytes of one sequence's state: specs->n tensors in the order of the declaration.
 * out->failed is set when they do not fit. */
void cn_state_pack(const struct cn_state_specs *specs, const struct cn_tensor *tensors,
                   struct cn_buf *out);
/* For a caller without an array: appends the header. The caller then appends each tensor, named
 * like its input, with cn_tensors_put_one. */
void cn_state_pack_begin(const struct cn_state_specs *specs, struct cn_buf *out);
/* Fills `out` with specs->n tensors in the order of the declaration, whatever their order in
 * `bytes`, from which the data is borrowed. Returns 0, or CN_E_STATE_STORE with a message that
 * names the tensor: `bytes` is not such a state, or does not fit the declaration, as when another
 * version of the model wrote it. */
int cn_state_unpack(const struct cn_state_specs *specs, struct cn_str bytes, struct cn_arena *arena,
                    struct cn_tensor *out, struct cn_error *err);

#endif
