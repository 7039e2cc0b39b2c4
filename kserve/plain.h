/* kserve/plain.h - tensors without the v2 protocol's envelope: one raw tensor, or {name: values}.
 * Any thread.
 *
 * The protocol has the raw form itself; /predictions of a typed model takes both, and answers with
 * {name: values}. What is read is held against the model by cn_v2_check() as any other request.
 */
#ifndef CN_KSERVE_PLAIN_H
#define CN_KSERVE_PLAIN_H

#include "core/memory/buf.h"
#include "kserve/request.h"

/* The body is the data of the model's one input. Its shape is the declared one, with batch size 1
 * and a size that is left open taken from the number of bytes; BYTES is one string without its
 * length. Outputs are wanted binary. CN_E_BAD_REQUEST: several inputs, or sizes left open. */
int cn_v2_read_raw(struct cn_str body, const struct cn_model_io *io, const char *model,
                   struct cn_arena *arena, struct cn_v2_request *out, struct cn_error *err);

/* The body of a repository index: empty, or {"ready": true}. */
int cn_v2_read_index(struct cn_str body, bool *ready_only, struct cn_error *err);

/* {"X": [[1, 2], [3, 4]], "Y": 5}: each input's shape is the nesting of its values; where the model
 * declares more dimensions than there are, they are 1, in front. CN_E_BAD_REQUEST: no such object.
 */
int cn_v2_read_named(struct cn_str body, const struct cn_model_io *io, const char *model,
                     const struct cn_v2_limits *limits, struct cn_arena *arena,
                     struct cn_v2_request *out, struct cn_error *err);
/* {name: values} of an answer, nested as its shapes are. CN_E_BAD_REQUEST: FP16 and BF16. */
int cn_v2_write_named(const struct cn_tensor *tensors, uint32_t n, struct cn_buf *out,
                      struct cn_error *err);
/* Before the step of a model that keeps state: can all the outputs that it declares be written so?
 * CN_E_BAD_REQUEST: FP16 and BF16. */
int cn_v2_check_named(const struct cn_model_io *io, struct cn_error *err);

#endif
