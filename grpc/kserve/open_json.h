/* grpc/kserve/open_json.h - the Open Inference Protocol for models without declared tensors, as
 * TorchServe's handlers know it: the request is one JSON body, and so is the answer. Any thread. */
#ifndef CN_GRPC_KSERVE_OPEN_JSON_H
#define CN_GRPC_KSERVE_OPEN_JSON_H

#include "kserve/infer_answer.h"

/* Makes {"id", "model_name", "inputs": [{"name", "shape", "datatype", "data"}]}, with strings of
 * BYTES as base64. Returns CN_E_BAD_REQUEST if data does not fit its shape, or if its type cannot
 * be written in JSON. */
int cn_rpc_open_body(const struct cn_v2_request *request, const char *model, struct cn_buf *out,
                     struct cn_error *err);
/* Reads the tensors of {"outputs": [{"name", "datatype", "shape", "data"}]} into the arena. An
 * element of BYTES becomes the text of its JSON value. Returns CN_E_HANDLER_FAILED if the answer is
 * not such an object. */
int cn_rpc_open_outputs(struct cn_str json, size_t max_tensor_bytes, struct cn_arena *arena,
                        struct cn_v2_answer *out, struct cn_error *err);

#endif
