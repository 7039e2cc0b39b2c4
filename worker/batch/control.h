/* worker/batch/control.h - the control tensors of Triton's sequence_batching. For each row they say
 * whether its sequence starts or ends with it, the sequence's id, and whether the place holds a row
 * at all. Handlers get them as ordinary inputs. Worker's one thread.
 */
#ifndef CN_WORKER_BATCH_CONTROL_H
#define CN_WORKER_BATCH_CONTROL_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/message.h"

struct cn_model_io;

/* Returns a copy of the row with the control tensors behind its parts, allocated from the arena; or
 * `row` itself when the model declares none. `starts`: the row opens its sequence. Returns NULL
 * with CN_E_BAD_REQUEST when the sequence's id is of another kind (text or integer) than the
 * model's CORRID. */
const struct cn_row *cn_controls_add(const struct cn_model_io *io, const struct cn_row *row,
                                     bool starts, struct cn_arena *arena, struct cn_error *err);

/* Returns a row for an empty place of a batch: it has the parts of `like`, a row of the same batch,
 * filled with zeros and empty strings, and control tensors that say "not ready". NULL: there is not
 * enough memory. */
const struct cn_row *cn_controls_pad(const struct cn_model_io *io, const struct cn_row *like,
                                     struct cn_arena *arena);

#endif
