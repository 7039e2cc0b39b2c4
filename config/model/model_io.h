/* config/model/model_io.h - the tensors of a typed model, its inputs and outputs, from the model's
 * YAML.
 *
 *   maxBatchSize: 8            # 0 (default): tensors have no batch dimension
 *   inputs:
 *     - {name: INPUT, dataType: FP32, dims: [16]}
 *     - {name: BIAS, dataType: FP32, dims: [-1], optional: true}
 *   outputs:
 *     - {name: OUTPUT, dataType: FP32, dims: [16]}
 *   decoupled: true            # a request gets any number of responses
 *
 * dims are without the batch dimension; -1 is any size. The spellings of Triton's configuration are
 * accepted, too: input, output, data_type: TYPE_FP32, max_batch_size, allow_ragged_batch,
 * model_transaction_policy: {decoupled: true}. A model is typed if its YAML has inputs. Read only
 * once parsed; any thread. */
#ifndef CN_CONFIG_MODEL_MODEL_IO_H
#define CN_CONFIG_MODEL_MODEL_IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/yaml/yaml.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/state_tensors.h"
#include "proto/tensor.h"

#define CN_MODEL_TENSORS_MAX 256 /* of inputs, and of outputs, of one model */

/* One input or output. */
struct cn_tensor_spec {
    struct cn_str name; /* also ends with a NUL */
    enum cn_datatype type;
    uint32_t rank;
    int64_t dims[CN_TENSOR_RANK_MAX]; /* -1: any size; without the batch dimension */
    bool optional;                    /* inputs: a request may leave it out */
    bool ragged;                      /* inputs: rows of one batch may differ in shape */
    bool samples; /* inputs: samples of a stream in any number and encoding (stream_input.h) */
};

struct cn_batching;

struct cn_model_io {
    /* the model version has one, and each request whose answers may come after it is gone */
    atomic_uint refs;
    uint32_t max_batch_size; /* 0: no batch dimension; otherwise the first dimension is 1 to this */
    uint32_t n_inputs, n_outputs, n_required;
    bool decoupled; /* a request gets any number of responses; otherwise exactly one */
    struct cn_tensor_spec *inputs, *outputs;
    /* NULL, except where clients see other dims than the handler (stream_input.h): these are the
     * handler's. A configuration that is shown has them, so that it can be sent back. */
    struct cn_tensor_spec *own_inputs, *own_outputs;
    struct cn_state_specs state;  /* model_state.h */
    struct cn_batching *batching; /* NULL: no block says how batches are formed (batching.h) */
    struct cn_arena arena;        /* holds all of the above */
};

/* Reads the tensors of a document. `*out` has one reference, and is NULL if the document declares
 * no inputs. CN_E_CONFIG with name:line:column. */
int cn_model_io_parse(const struct cn_yaml_doc *doc, struct cn_model_io **out,
                      struct cn_error *err);
/* True for a key that is read here. */
bool cn_model_io_knows(struct cn_str key);
/* Take and give back a reference; the last one frees. NULL is allowed for unref. */
struct cn_model_io *cn_model_io_ref(const struct cn_model_io *io);
void cn_model_io_unref(struct cn_model_io *io);

/* The input or output of this name, or NULL. Number `from` is looked at first, then those behind
 * it: a caller with a list of names, which most often has the order of the declaration, gives the
 * position in its list. */
const struct cn_tensor_spec *cn_model_io_input(const struct cn_model_io *io, struct cn_str name,
                                               uint32_t from);
const struct cn_tensor_spec *cn_model_io_output(const struct cn_model_io *io, struct cn_str name,
                                                uint32_t from);

#endif
