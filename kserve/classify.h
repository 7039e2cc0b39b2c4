/* kserve/classify.h - an output's largest values with their places, in place of the output. Any
 * thread. */
#ifndef CN_KSERVE_CLASSIFY_H
#define CN_KSERVE_CLASSIFY_H

#include "kserve/request.h"

#define CN_V2_CLASSIFY_MAX 1000000 /* elements of such an output */

/* Each of the tensors for which the request wants `classes` becomes BYTES "value:index", the
 * largest first, as many as there are at most; one row for each of the batch. Its bytes lie in the
 * arena. CN_E_BAD_REQUEST: too large, or a type without an order. */
int cn_v2_classify(const struct cn_v2_request *request, const struct cn_model_io *io,
                   struct cn_arena *arena, struct cn_tensor *tensors, uint32_t n,
                   struct cn_error *err);

/* BYTES have no order, and the values of FP16 and BF16 are not read here. */
bool cn_v2_has_classes(enum cn_datatype type);
/* CN_E_BAD_REQUEST. */
int cn_v2_refuse_classes(struct cn_str output, enum cn_datatype type, struct cn_error *err);

#endif
