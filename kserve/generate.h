/* kserve/generate.h - the generate extension: a JSON object of fields is a request, and another one
 * a response. Any thread.
 *
 * A field with the name of an input holds its values, a scalar or a list; any other field is a
 * parameter for the model. The fields of an object `parameters` count in the same way. Example:
 * {"text_input": "Hello", "temperature": 0.2}.
 */
#ifndef CN_KSERVE_GENERATE_H
#define CN_KSERVE_GENERATE_H

#include "kserve/infer_answer.h"
#include "kserve/request.h"

/* Reads a request. An input's shape follows from the declared one and the number of values: of
 * several open sizes the last one takes the values, and the others become 1. `id` is also the
 * request's id. The caller checks the result with cn_v2_check(). Returns CN_E_INTERNAL when the
 * body is not JSON or has values of a wrong type, and CN_E_BAD_REQUEST for what cannot be such a
 * tensor or parameter. */
int cn_v2_read_generate(struct cn_str body, const struct cn_model_io *io,
                        const struct cn_v2_limits *limits, struct cn_arena *arena,
                        struct cn_v2_request *out, struct cn_error *err);

/* Writes a response as one object: each output under its name, a single element as a scalar,
 * several as a flat list; besides them id, model_name and model_version; ordered by the bytes of
 * the names. Returns CN_E_BAD_REQUEST for a type that JSON cannot express. */
int cn_v2_write_generate(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                         struct cn_buf *out, struct cn_error *err);

#endif
