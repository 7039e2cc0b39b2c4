/* grpc/json_message.h - protobuf messages from JSON: what the v2 protocol says of models over HTTP
 * is what it says over gRPC. Any thread.
 */
#ifndef CN_GRPC_JSON_MESSAGE_H
#define CN_GRPC_JSON_MESSAGE_H

#include <jansson.h>

#include "grpc/protobuf_message.h"

/* A message of `type` from an object, in the arena: members go to the fields of their names,
 * objects to messages or maps, names to enums, numbers to any number field that holds them. Members
 * without a field, nulls, and values of another kind are left out. */
ProtobufCMessage *cn_rpc_message_of_json(const ProtobufCMessageDescriptor *type, const json_t *json,
                                         struct cn_arena *arena);

#endif
