/* grpc/kserve/infer_read.h - reads the bytes of a ModelInferRequest as a request of the v2
 * protocol. Any thread.
 *
 * The message is read by hand in two passes. Large tensors stay where they are, and memory is only
 * allocated for fields that the message has. Both packages (inference, openinference) have the same
 * fields.
 */
#ifndef CN_GRPC_KSERVE_INFER_READ_H
#define CN_GRPC_KSERVE_INFER_READ_H

#include "kserve/request.h"

#define CN_RPC_INFER_PARAMETERS_MAX 1024 /* for the request, and for each of its tensors */

/* What is known of a message before its model is found. */
struct cn_rpc_infer_head {
    struct cn_str model, version, id;
    uint32_t n_parameters, n_inputs, n_outputs, n_raw;
};

/* Reads the head of a message. Returns CN_E_BAD_REQUEST if the bytes are not such a message, if a
 * text is not UTF-8, or if there are more fields than allowed. */
int cn_rpc_infer_scan(struct cn_str bytes, struct cn_rpc_infer_head *out, struct cn_error *err);

/* Reads the rest of a message that was scanned, into the arena. The bytes of a tensor are borrowed
 * from `bytes` if the wire format is the tensor's own. `model` is used in error messages. A tensor
 * that must be decoded may have at most max_tensor_bytes. Returns CN_E_BAD_REQUEST with the
 * protocol's message. */
int cn_rpc_infer_read(struct cn_str bytes, const struct cn_rpc_infer_head *head, const char *model,
                      size_t max_tensor_bytes, struct cn_arena *arena, struct cn_v2_request *out,
                      struct cn_error *err);

#endif
