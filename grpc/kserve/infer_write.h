/* grpc/kserve/infer_write.h - responses of the v2 protocol as gRPC messages. On the call's loop. */
#ifndef CN_GRPC_KSERVE_INFER_WRITE_H
#define CN_GRPC_KSERVE_INFER_WRITE_H

#include "grpc/transport/grpc_call.h"
#include "kserve/infer_answer.h"

/* Which message a response becomes. */
struct cn_rpc_infer_form {
    bool in_stream; /* write a ModelStreamInferResponse, with the next members */
    bool is_final;  /* triton_final_response; used with in_stream */
    bool is_typed;  /* openinference: typed contents, raw where a type has none */
};

/* Writes the response with the tensors that the request wants. The head is in the arena, and the
 * tensors' data stays where `answer` points to. The caller sets body, release and owner. Returns 0
 * or CN_E_OUT_OF_MEMORY. */
int cn_rpc_infer_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                       const struct cn_rpc_infer_form *form, struct cn_arena *arena,
                       struct cn_grpc_outgoing *out, struct cn_error *err);

/* A message of a stream for a request that did not become a job, or whose job failed. */
struct cn_rpc_infer_failure {
    const char *message; /* UTF-8, not empty */
    struct cn_str id;
    const char *model, *version; /* NULL: the model did not get the request */
    bool is_final;               /* sent together with `model` */
};
void cn_rpc_infer_write_failure(const struct cn_rpc_infer_failure *failure, struct cn_arena *arena,
                                struct cn_grpc_outgoing *out);

#endif
