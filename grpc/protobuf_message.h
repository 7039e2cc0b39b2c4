/* grpc/protobuf_message.h - reads and writes protobuf messages: protobuf-c with a memory limit, and
 * a reader of single fields.
 *
 * protobuf-c needs up to 76 bytes of memory for one byte of input, so it unpacks only into an arena
 * with a limit. None of our messages is recursive. Any thread.
 */
#ifndef CN_GRPC_PROTOBUF_MESSAGE_H
#define CN_GRPC_PROTOBUF_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

/* Unpacks a message of `type` into the arena, which it shares with its input. Returns NULL with
 * CN_E_BAD_REQUEST when the bytes are not such a message or a string in it is not UTF-8, or with
 * CN_E_TOO_LARGE when it needs more than CN_RPC_UNPACK_BYTES of memory. */
#define CN_RPC_UNPACK_BYTES 262144
void *cn_rpc_unpack(const ProtobufCMessageDescriptor *type, struct cn_arena *arena,
                    struct cn_str bytes, struct cn_error *err);
/* Packs a message; its bytes lie in the arena. */
struct cn_str cn_rpc_pack(const ProtobufCMessage *message, struct cn_arena *arena);

enum cn_rpc_wire {
    CN_RPC_WIRE_VARINT = 0,
    CN_RPC_WIRE_FIXED64 = 1,
    CN_RPC_WIRE_BYTES = 2,
    CN_RPC_WIRE_FIXED32 = 5
};

/* One field as it was sent. */
struct cn_rpc_field {
    uint32_t number;
    enum cn_rpc_wire wire;
    bool has_bytes; /* length-delimited: the value is in `bytes`, else in `value` */
    uint64_t value;
    struct cn_str bytes;
};
/* Takes the next field off the front of `rest`. Returns 1 when there was one, 0 at the end, and -1
 * when the bytes are not a protobuf message; groups, which proto3 does not have, count as
 * malformed. */
int cn_rpc_next_field(struct cn_str *rest, struct cn_rpc_field *out);

/* Writes tag and length of a length-delimited field to `at`, which needs room for CN_RPC_FIELD_MAX
 * bytes. Returns the position after them. */
#define CN_RPC_FIELD_MAX 20
char *cn_rpc_put_head(char *at, uint32_t number, size_t len);

#endif
