/* grpc/kserve/infer_contents.h - InferTensorContents: a tensor's elements in the field of its
 * datatype. Any thread. */
#ifndef CN_GRPC_KSERVE_INFER_CONTENTS_H
#define CN_GRPC_KSERVE_INFER_CONTENTS_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "proto/tensor.h"

/* `input`: an InferInputTensor. */
bool cn_rpc_has_contents(struct cn_str input);
/* tensor->data of an input that has contents; its name and type are set. Borrowed where the wire
 * has the tensor's own bytes, else in the arena. CN_E_BAD_REQUEST: a field that is not the
 * datatype's, or over max_bytes. */
int cn_rpc_read_contents(struct cn_str input, const char *model, size_t max_bytes,
                         struct cn_arena *arena, struct cn_tensor *tensor, struct cn_error *err);

/* Appends the fields of an InferTensorContents; nothing for FP16 and BF16, which have none. */
void cn_rpc_put_contents(const struct cn_tensor *tensor, struct cn_buf *out);

#endif
