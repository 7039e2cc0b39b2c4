/* grpc/protobuf_message.c - protobuf-c with a cap on memory, and single fields by hand. Any
 * thread. */
#include "grpc/protobuf_message.h"

#include "core/errors/panic.h"
#include "core/text/utf8.h"
#include "core/text/varint.h"

struct capped {
    struct cn_arena *arena;
    size_t left;
    bool is_full;
};

static void *
capped_alloc(void *ctx, size_t bytes)
{
    struct capped *capped = ctx;

    if (bytes > capped->left) {
        capped->is_full = true;
        return NULL;
    }
    capped->left -= bytes;
    return cn_arena_try_alloc(capped->arena, bytes);
}

/* Does nothing, because the arena frees everything at once. */
static void
capped_free(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr;
}

/* Returns the first value of a field and sets *n to the number of values; NULL: the field is empty.
 */
static const char *
field_values(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t *n)
{
    const char *base = (const char *)message, *at = base + field->offset;

    *n = 1;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        memcpy(n, base + field->quantifier_offset, sizeof(*n));
        memcpy(&at, base + field->offset, sizeof(at));
    } else if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
               *(const uint32_t *)(const void *)(base + field->quantifier_offset) != field->id) {
        *n = 0;
    }
    return at;
}

/* Returns the name of a string field, in this message or in those within it, that is not UTF-8;
 * NULL if all are. The recursion is bounded, since no type of our requests contains itself. */
static const char *
find_bad_string(const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const bool is_text = field->type == PROTOBUF_C_TYPE_STRING;
        const char *values, *bad;
        size_t n;

        if (!is_text && field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        values = field_values(message, field, &n);
        for (size_t k = 0; k < n; k++) {
            const void *value = ((void *const *)(const void *)values)[k];

            if (is_text && value && !cn_utf8_is_valid(cn_str_from(value)))
                return field->name;
            if (!is_text && value && (bad = find_bad_string(value)))
                return bad;
        }
    }
    return NULL;
}

void *
cn_rpc_unpack(const ProtobufCMessageDescriptor *type, struct cn_arena *arena, struct cn_str bytes,
              struct cn_error *err)
{
    struct capped capped = {arena, CN_RPC_UNPACK_BYTES, false};
    ProtobufCAllocator allocator = {capped_alloc, capped_free, &capped};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &allocator, bytes.len, (const uint8_t *)bytes.ptr);
    const char *bad;

    if (!message && capped.is_full)
        cn_fail(err, CN_E_TOO_LARGE,
                "decoding a %s of %zu bytes needs more than the limit of %d bytes of memory",
                type->short_name, bytes.len, CN_RPC_UNPACK_BYTES);
    else if (!message)
        cn_fail(err, CN_E_BAD_REQUEST, "the body (%zu bytes) is not a valid %s message", bytes.len,
                type->short_name);
    else if ((bad = find_bad_string(message))) {
        cn_fail(err, CN_E_BAD_REQUEST, "%s is not UTF-8", bad);
        message = NULL;
    }
    return message;
}

struct cn_str
cn_rpc_pack(const ProtobufCMessage *message, struct cn_arena *arena)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    char *out = cn_arena_alloc(arena, len ? len : 1);

    cn_assert(protobuf_c_message_pack(message, (uint8_t *)out) == len);
    return (struct cn_str){out, len};
}

/* --- fields by hand */

static bool
take_fixed(struct cn_str *rest, unsigned n, uint64_t *out)
{
    uint64_t value = 0;
    unsigned i;

    if (rest->len < n)
        return false;
    for (i = 0; i < n; i++)
        value |= (uint64_t)(unsigned char)rest->ptr[i] << (8 * i);
    rest->ptr += n;
    rest->len -= n;
    *out = value;
    return true;
}

int
cn_rpc_next_field(struct cn_str *rest, struct cn_rpc_field *out)
{
    uint64_t tag, len;

    if (rest->len == 0)
        return 0;
    *out = (struct cn_rpc_field){0};
    if (!cn_take_varint(rest, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return -1;
    out->number = (uint32_t)(tag >> 3);
    out->wire = (enum cn_rpc_wire)(tag & 7);
    switch (tag & 7) {
    case 0:
        return cn_take_varint(rest, &out->value) ? 1 : -1;
    case 1:
        return take_fixed(rest, 8, &out->value) ? 1 : -1;
    case 5:
        return take_fixed(rest, 4, &out->value) ? 1 : -1;
    case 2:
        if (!cn_take_varint(rest, &len) || len > rest->len)
            return -1;
        out->has_bytes = true;
        out->bytes = (struct cn_str){rest->ptr, (size_t)len};
        rest->ptr += len;
        rest->len -= (size_t)len;
        return 1;
    default:
        return -1;
    }
}

char *
cn_rpc_put_head(char *at, uint32_t number, size_t len)
{
    return cn_put_varint(len, cn_put_varint((uint64_t)number << 3 | 2, at));
}
