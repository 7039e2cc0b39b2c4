/* handlers/tensor_state.h - implicit state: tensors that the model's YAML declares. Worker's
 * thread.
 *
 * This layer lies over any runtime. The handler gets each sequence's state as additional inputs,
 * and its outputs of the declared names become the next state. The runtime below runs the model as
 * if it had no state, and the worker above sees a runtime whose states are bytes.
 *
 * The first step of a sequence begins with the values that the declaration gives. A state tensor
 * that a step does not return stays as it was. State outputs are removed from the answer, unless
 * the model declares them as outputs, too.
 */
#ifndef CN_HANDLERS_TENSOR_STATE_H
#define CN_HANDLERS_TENSOR_STATE_H

#include "handlers/runtime.h"

/* Lays the layer over the open runtime `rt`, whose close removes it again. `load`, with its
 * `state`, must outlive it. `files` is an array of load->state->n buffers, which it takes: the
 * contents of the files with the first values, empty for states without a file. */
void cn_tensor_state_attach(struct cn_runtime *rt, const struct cn_load *load,
                            struct cn_buf *files);

#endif
