/* grpc/kserve/open_json.h - the Open Inference Protocol for models without declared tensors, as
 * TorchServe's handlers know it: the request as one JSON body, the answer as JSON again. Any
 * thread. */
#ifndef CN_GRPC_KSERVE_OPEN_JSON_H
#define CN_GRPC_KSERVE_OPEN_JSON_H

#include "kserve/infer_answer.h"

/* {"id", "model_name", "inputs": [{"name", "shape", "datatype", "data"}]}; strings of BYTES as
 * base64. CN_E_BAD_REQUEST: data that doesn't fit its shape, or of a type that JSON can't carry. */
int cn_rpc_open_body(const struct cn_v2_request *request, const char *model, struct cn_buf *out,
                     struct cn_error *err);
/* The tensors of {"outputs": [{"name", "datatype", "shape", "data"}]}, in the arena; an element of
 * BYTES is the JSON of what stands there. CN_E_HANDLER_FAILED: no such answer. */
int cn_rpc_open_outputs(struct cn_str json, size_t max_tensor_bytes, struct cn_arena *arena,
                        struct cn_v2_answer *out, struct cn_error *err);

#endif
