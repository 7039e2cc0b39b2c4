/* grpc/reflection.h - the services grpc.reflection.v1 and v1alpha, for the table in
 * grpc/grpc_methods.c. On the call's loop. */
#ifndef CN_GRPC_REFLECTION_H
#define CN_GRPC_REFLECTION_H

#include <stdbool.h>

#include "grpc/transport/grpc_call.h"

/* Callbacks of both services, which have the same messages. */
void cn_rpc_reflection_message(struct cn_grpc_call *call, const struct cn_grpc_message *message);
void cn_rpc_reflection_sent(struct cn_grpc_call *call, void *owner, size_t bytes);
void cn_rpc_reflection_half_close(struct cn_grpc_call *call);
void cn_rpc_reflection_drain(struct cn_grpc_call *call);

/* Return the FileDescriptorProto that defines `symbol` ("package.Message",
 * "package.Service.Method"), or the one with that file name. Empty: there is none. */
struct cn_str cn_rpc_descriptor_of_symbol(struct cn_str symbol);
struct cn_str cn_rpc_descriptor_of_file(struct cn_str name);

#endif
