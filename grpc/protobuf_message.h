/* grpc/protobuf_message.h - protobuf messages in and out: protobuf-c within limits, and a reader by
 * hand.
 *
 * protobuf-c makes up to 76 bytes of memory out of one on the wire, so it unpacks only into an
 * arena with a cap. None of our messages is recursive. Any thread.
 */
#ifndef CN_GRPC_PROTOBUF_MESSAGE_H
#define CN_GRPC_PROTOBUF_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

/* A message of `type` in the arena, which it shares with what it was read from; NULL and
 * CN_E_BAD_REQUEST when the bytes are none, or CN_E_TOO_LARGE when it needs over
 * CN_RPC_UNPACK_BYTES of memory. Its strings are checked to be UTF-8. */
#define CN_RPC_UNPACK_BYTES 262144
void *cn_rpc_unpack(const ProtobufCMessageDescriptor *type, struct cn_arena *arena,
                    struct cn_str bytes, struct cn_error *err);
/* Its bytes, in the arena. */
struct cn_str cn_rpc_pack(const ProtobufCMessage *message, struct cn_arena *arena);

enum cn_rpc_wire {
    CN_RPC_WIRE_VARINT = 0,
    CN_RPC_WIRE_FIXED64 = 1,
    CN_RPC_WIRE_BYTES = 2,
    CN_RPC_WIRE_FIXED32 = 5
};

/* One field on the wire. */
struct cn_rpc_field {
    uint32_t number;
    enum cn_rpc_wire wire;
    bool has_bytes; /* length-delimited: `bytes`; else `value` */
    uint64_t value;
    struct cn_str bytes;
};
/* Takes the next field from the front of `rest`. 1: there was one; 0: at the end; -1: the bytes are
 * no protobuf message. Groups, which proto3 doesn't have, are none. */
int cn_rpc_next_field(struct cn_str *rest, struct cn_rpc_field *out);

/* Writes tag and length of a length-delimited field; room for CN_RPC_FIELD_MAX. Returns the end. */
#define CN_RPC_FIELD_MAX 20
char *cn_rpc_put_head(char *at, uint32_t number, size_t len);

#endif
