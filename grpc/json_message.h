/* grpc/json_message.h - makes protobuf messages from JSON, so that the v2 protocol reports the same
 * about models over HTTP and over gRPC. Any thread. */
#ifndef CN_GRPC_JSON_MESSAGE_H
#define CN_GRPC_JSON_MESSAGE_H

#include <jansson.h>

#include "grpc/protobuf_message.h"

/* Makes a message of `type` from a JSON object, in the arena. Members go to the fields of the same
 * name: objects to messages or maps, texts to enumerations, numbers to any number field. Members
 * without a field, nulls, and values of another kind are left out. */
ProtobufCMessage *cn_rpc_message_of_json(const ProtobufCMessageDescriptor *type, const json_t *json,
                                         struct cn_arena *arena);

#endif
