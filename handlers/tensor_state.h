/* handlers/tensor_state.h - sequences whose state is tensors that the model's YAML declares.
 *
 * Laid over any runtime: its handler gets each sequence's state as further inputs, and outputs of
 * those names become the state. The runtime itself is opened as if the model had no state
 * (load->state), and the worker sees one whose states are bytes. Worker's thread.
 *
 * A row's first step in a sequence begins with what the declaration says. What a step does not put
 * out stays as it was. State outputs leave the answer, unless the model declares them as outputs,
 * too.
 */
#ifndef CN_HANDLERS_TENSOR_STATE_H
#define CN_HANDLERS_TENSOR_STATE_H

#include "handlers/runtime.h"

/* Lays it over `rt`, which is open; its close takes it away again. `load` (with load->state) must
 * outlive it. `files`: load->state->n, the content of the files that states begin with, empty for
 * the others; taken. */
void cn_tensor_state_attach(struct cn_runtime *rt, const struct cn_load *load,
                            struct cn_buf *files);

#endif
