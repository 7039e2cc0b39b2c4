/* grpc/kserve/infer_read.h - ModelInferRequest's bytes as a request of the v2 protocol. Any thread.
 *
 * Read by hand, in two passes over the message: large tensors stay where they are, and nothing is
 * made of a message but what it says. Both packages (inference, openinference) have the same
 * fields.
 */
#ifndef CN_GRPC_KSERVE_INFER_READ_H
#define CN_GRPC_KSERVE_INFER_READ_H

#include "kserve/request.h"

#define CN_RPC_INFER_PARAMETERS_MAX 1024 /* of the request, and of each of its tensors */

/* What is known of a message before its model is. */
struct cn_rpc_infer_head {
    struct cn_str model, version, id;
    uint32_t n_parameters, n_inputs, n_outputs, n_raw;
};

/* CN_E_BAD_REQUEST: no such message, a text that is not UTF-8, or more of something than there may
 * be. */
int cn_rpc_infer_scan(struct cn_str bytes, struct cn_rpc_infer_head *out, struct cn_error *err);

/* The rest of a message that was scanned, into the arena; bytes of tensors are borrowed from
 * `bytes` where the wire has them as tensors do. `model`: for messages. Each tensor that must be
 * decoded is at most max_tensor_bytes large. CN_E_BAD_REQUEST in the protocol's words. */
int cn_rpc_infer_read(struct cn_str bytes, const struct cn_rpc_infer_head *head, const char *model,
                      size_t max_tensor_bytes, struct cn_arena *arena, struct cn_v2_request *out,
                      struct cn_error *err);

#endif
