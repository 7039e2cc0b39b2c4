/* kserve/generate.h - the generate extension: an object of fields is a request, and so is a
 * response. Any thread.
 *
 * Each field that is named as an input is its values, a scalar or a list of them; any other is a
 * parameter of the model's own. The fields of an object `parameters` count the same.
 */
#ifndef CN_KSERVE_GENERATE_H
#define CN_KSERVE_GENERATE_H

#include "kserve/infer_answer.h"
#include "kserve/request.h"

/* The shape of an input is what its number of values makes of the declared one: of the sizes that
 * are left open the last one takes them, the others are 1. `id` is also the request's id. To be
 * held against the model by cn_v2_check(). CN_E_INTERNAL: no JSON, or values of a wrong type;
 * CN_E_BAD_REQUEST: what can't be such a tensor or parameter. */
int cn_v2_read_generate(struct cn_str body, const struct cn_model_io *io,
                        const struct cn_v2_limits *limits, struct cn_arena *arena,
                        struct cn_v2_request *out, struct cn_error *err);

/* One object: each output under its name, one element as a scalar, others as a flat list; beside
 * them id, model_name and model_version; in the order of the names' bytes. CN_E_BAD_REQUEST: a type
 * that JSON can't carry. */
int cn_v2_write_generate(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                         struct cn_buf *out, struct cn_error *err);

#endif
