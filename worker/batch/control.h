/* worker/batch/control.h - the control tensors of a model's sequence_batching: they say of each row
 * whether its sequence starts or ends with it, which one it is, and whether there is a row at all.
 * Handlers get them as inputs like any other. Worker's one thread.
 */
#ifndef CN_WORKER_BATCH_CONTROL_H
#define CN_WORKER_BATCH_CONTROL_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/message.h"

struct cn_model_io;

/* The row with control tensors behind its parts; `row` itself where there are none. What it points
 * to lies in the arena. `starts`: the row opens its sequence. NULL and CN_E_BAD_REQUEST: the
 * sequence's id is of another kind than the model's CORRID. */
const struct cn_row *cn_controls_add(const struct cn_model_io *io, const struct cn_row *row,
                                     bool starts, struct cn_arena *arena, struct cn_error *err);

/* The row that stands for no row: the parts of `like`, a row of the same batch, as zeros and empty
 * strings, and control tensors that say no. NULL: no memory. */
const struct cn_row *cn_controls_pad(const struct cn_model_io *io, const struct cn_row *like,
                                     struct cn_arena *arena);

#endif
