/* config/model/model_io.h - what a typed model takes and gives: its tensors, from the model's YAML.
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
 * taken too: input, output, data_type: TYPE_FP32, max_batch_size, allow_ragged_batch,
 * model_transaction_policy: {decoupled: true}.
 * A model is typed when its YAML has inputs. Read only once parsed; any thread.
 */
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

#define CN_MODEL_TENSORS_MAX 256 /* inputs, and outputs, of one model */

/* One input or output. */
struct cn_tensor_spec {
    struct cn_str name; /* NUL-terminated too */
    enum cn_datatype type;
    uint32_t rank;
    int64_t dims[CN_TENSOR_RANK_MAX]; /* -1: any size; without the batch dimension */
    bool optional;                    /* inputs: a request may leave it out */
    bool ragged;                      /* inputs: rows of one batch may differ in shape */
};

struct cn_batching;

struct cn_model_io {
    atomic_uint refs; /* the model version, and requests whose answers may come after it is gone */
    uint32_t max_batch_size; /* 0: no batch dimension; else the first one, from 1 to this */
    uint32_t n_inputs, n_outputs, n_required;
    bool decoupled; /* 0, 1 or more responses for a request; else it is one */
    struct cn_tensor_spec *inputs, *outputs;
    struct cn_state_specs state;  /* model_state.h */
    struct cn_batching *batching; /* NULL: no block says how batches are formed (batching.h) */
    struct cn_arena arena;        /* holds the above */
};

/* `*out` is NULL when the document declares no inputs. CN_E_CONFIG with name:line:column. */
int cn_model_io_parse(const struct cn_yaml_doc *doc, struct cn_model_io **out,
                      struct cn_error *err);
/* Is it one of the keys that are read here? */
bool cn_model_io_knows(struct cn_str key);
/* Parsed with one reference; the last one frees. NULL is harmless. */
struct cn_model_io *cn_model_io_ref(const struct cn_model_io *io);
void cn_model_io_unref(struct cn_model_io *io);

/* NULL when there is none of that name. */
const struct cn_tensor_spec *cn_model_io_input(const struct cn_model_io *io, struct cn_str name);
const struct cn_tensor_spec *cn_model_io_output(const struct cn_model_io *io, struct cn_str name);

#endif
