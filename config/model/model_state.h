/* config/model/model_state.h - the state tensors that a model's YAML declares
 * (proto/state_tensors.h).
 *
 *   state:
 *     - {name: h, dataType: FP32, dims: [2, 64]}                  # begins as zeros
 *     - {input: C_IN, output: C_OUT, dataType: FP32, dims: [-1], init: {dims: [8]}}
 *     - {name: w, dataType: FP32, dims: [3], init: {file: weights.bin}}
 *     - {name: x, dataType: FP32, dims: [3], init: {caller: X0}}  # X0: an input of the model
 *
 * If `state` is a map already (state.durability ...), the list is its key `tensors`. Triton's
 * spelling is accepted, too: sequence_batching.state with input_name, output_name, data_type, dims
 * and initial_state. Any thread. */
#ifndef CN_CONFIG_MODEL_MODEL_STATE_H
#define CN_CONFIG_MODEL_MODEL_STATE_H

#include "config/model/model_io.h"
#include "core/memory/buf.h"

/* the most bytes of one initial tensor, which is also the limit of state.maxBytes */
#define CN_STATE_INITIAL_MAX 1073741824

/* True for the list of state tensors in the map `prefix` ("" or "state."). */
bool cn_model_state_owns(const char *prefix, const struct cn_yaml *value);

/* Reads the file with the first value of a state (spec->init is CN_STATE_FILE) from the unpacked
 * archive. CN_E_CONFIG: there is no such file, or it does not fit the declaration. It blocks, so it
 * must not run on a loop. */
int cn_model_state_read_file(const struct cn_state_spec *spec, const char *dir, struct cn_buf *out,
                             struct cn_error *err);
/* Checks the files of all states. */
int cn_model_state_check_files(const struct cn_model_io *io, const char *dir, struct cn_error *err);

#endif
