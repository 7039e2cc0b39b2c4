/* grpc/kserve/infer_contents.h - InferTensorContents: a tensor's elements in the field of its
 * datatype. Any thread. */
#ifndef CN_GRPC_KSERVE_INFER_CONTENTS_H
#define CN_GRPC_KSERVE_INFER_CONTENTS_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "proto/tensor.h"

/* Returns true if the input, an InferInputTensor, has typed contents. */
bool cn_rpc_has_contents(struct cn_str input);
/* Sets tensor->data from the contents of the input; the tensor's name and type are already set. The
 * data is borrowed if the message has the tensor's own bytes, and lies in the arena otherwise.
 * Returns CN_E_BAD_REQUEST if the contents belong to another datatype or exceed max_bytes. */
int cn_rpc_read_contents(struct cn_str input, const char *model, size_t max_bytes,
                         struct cn_arena *arena, struct cn_tensor *tensor, struct cn_error *err);

/* Appends the fields of an InferTensorContents. Appends nothing for FP16 and BF16, which have no
 * field. */
void cn_rpc_put_contents(const struct cn_tensor *tensor, struct cn_buf *out);

#endif
