/* kserve/classify.h - replaces an output by its largest values and their indexes (the
 * classification extension). Any thread. */
#ifndef CN_KSERVE_CLASSIFY_H
#define CN_KSERVE_CLASSIFY_H

#include "kserve/request.h"

#define CN_V2_CLASSIFY_MAX 1000000 /* most elements of such an output */

/* Replaces each tensor for which the request wants `classes` by BYTES of the form "value:index",
 * the largest value first, at most `classes` for each row of the batch. The bytes lie in the arena.
 * Returns CN_E_BAD_REQUEST when a tensor is too large or its type has no order. */
int cn_v2_classify(const struct cn_v2_request *request, const struct cn_model_io *io,
                   struct cn_arena *arena, struct cn_tensor *tensors, uint32_t n,
                   struct cn_error *err);

/* Can the type be classified? BYTES have no order, and FP16 and BF16 are not decoded here. */
bool cn_v2_has_classes(enum cn_datatype type);
/* Returns CN_E_BAD_REQUEST with the message for such a type. */
int cn_v2_refuse_classes(struct cn_str output, enum cn_datatype type, struct cn_error *err);

#endif
