/* kserve/plain.h - tensors without the v2 protocol's JSON around them: one raw tensor, or {name:
 * values}. Any thread.
 *
 * The protocol defines the raw form; /predictions of a typed model takes both forms and answers
 * with {name: values}. The caller checks the result with cn_v2_check(), like any other request.
 */
#ifndef CN_KSERVE_PLAIN_H
#define CN_KSERVE_PLAIN_H

#include "core/memory/buf.h"
#include "kserve/request.h"

/* Reads a body that is the data of the model's one input. The shape is the declared one with batch
 * size 1; one open size is computed from the number of bytes. BYTES is one string without its
 * length. Outputs are wanted as binary data. Returns CN_E_BAD_REQUEST when the model has several
 * inputs or several open sizes. */
int cn_v2_read_raw(struct cn_str body, const struct cn_model_io *io, const char *model,
                   struct cn_arena *arena, struct cn_v2_request *out, struct cn_error *err);

/* Reads the body of a repository index request: empty, or {"ready": true}. */
int cn_v2_read_index(struct cn_str body, bool *ready_only, struct cn_error *err);

/* Reads {"X": [[1, 2], [3, 4]], "Y": 5}. Each input's shape is the nesting of its values; if the
 * model declares more dimensions, ones are added in front. Returns CN_E_BAD_REQUEST when the body
 * is not such an object. */
int cn_v2_read_named(struct cn_str body, const struct cn_model_io *io, const char *model,
                     const struct cn_v2_limits *limits, struct cn_arena *arena,
                     struct cn_v2_request *out, struct cn_error *err);
/* Writes an answer as {name: values}, nested according to the shapes. Returns CN_E_BAD_REQUEST for
 * FP16 and BF16. */
int cn_v2_write_named(const struct cn_tensor *tensors, uint32_t n, struct cn_buf *out,
                      struct cn_error *err);
/* Checks, before a step of a model that keeps state, that all its outputs can be written in this
 * form. Returns CN_E_BAD_REQUEST for FP16 and BF16. */
int cn_v2_check_named(const struct cn_model_io *io, struct cn_error *err);

#endif
