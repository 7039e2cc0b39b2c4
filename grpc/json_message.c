/* grpc/json_message.c - fills a message from a JSON object, guided by the message's descriptor. Any
 * thread.
 *
 * protobuf-c has no reader for JSON. Its descriptors say for each field the name, type and place in
 * the C struct, so one recursive walk can fill any message. Messages are ours and the JSON is
 * written by this server, so a value that does not fit is skipped and not reported.
 */
#include "grpc/json_message.h"

#include <stdlib.h>
#include <string.h>

#include "kserve/json/json_words.h"

/* Bytes of a field's value in the C struct. */
static size_t
size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 4;
    }
}

/* Reads any integer that fits into 64 bits, signed or not. */
static bool
integer_of(const json_t *json, uint64_t *out)
{
    if (cn_v2_json_uint(json, out))
        return true;
    *out = (uint64_t)json_integer_value(json);
    return json_is_integer(json);
}

static bool
put_text(const json_t *json, struct cn_arena *arena, char **out)
{
    if (!cn_v2_json_is_string(json))
        return false;
    *out = cn_arena_strndup(arena, cn_v2_json_text(json).ptr, cn_v2_json_text(json).len);
    return true;
}

static bool
put_enum(const ProtobufCEnumDescriptor *type, const json_t *json, int *out)
{
    const ProtobufCEnumValue *value =
        cn_v2_json_is_string(json)
            ? protobuf_c_enum_descriptor_get_value_by_name(type, json_string_value(json))
            : NULL;

    if (value)
        *out = value->value;
    return value != NULL;
}

/* Writes one value to `at`, which has the field's type. Returns false when the value is of another
 * kind. */
static bool
put_value(const ProtobufCFieldDescriptor *field, const json_t *json, struct cn_arena *arena,
          void *at)
{
    uint64_t integer;
    uint32_t half;
    double number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = json_is_true(json);
        return json_is_boolean(json);
    case PROTOBUF_C_TYPE_STRING:
        return put_text(json, arena, at);
    case PROTOBUF_C_TYPE_ENUM:
        return put_enum(field->descriptor, json, at);
    case PROTOBUF_C_TYPE_MESSAGE:
        if (json_is_object(json))
            *(ProtobufCMessage **)at = cn_rpc_message_of_json(field->descriptor, json, arena);
        return json_is_object(json);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        if (!cn_v2_json_number(json, &number))
            return false;
        if (field->type == PROTOBUF_C_TYPE_DOUBLE)
            *(double *)at = number;
        else
            *(float *)at = (float)number;
        return true;
    case PROTOBUF_C_TYPE_BYTES:
        return false;
    default:
        if (!integer_of(json, &integer))
            return false;
        half = (uint32_t)integer;
        memcpy(at, size_of(field->type) == 8 ? (void *)&integer : (void *)&half,
               size_of(field->type));
        return true;
    }
}

/* Makes an entry of a map, which is a message with a key and a value. In JSON every key is a
 * text. */
static ProtobufCMessage *
make_entry(const ProtobufCMessageDescriptor *type, const char *key, const json_t *value,
           struct cn_arena *arena)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(type, "key");
    json_t *name = field->type == PROTOBUF_C_TYPE_STRING ? json_string(key)
                                                         : json_integer(strtoll(key, NULL, 10));
    json_t *entry = json_pack("{s:o, s:O}", "key", name, "value", value);
    ProtobufCMessage *message = cn_rpc_message_of_json(type, entry, arena);

    json_decref(entry);
    return message;
}

static void
put_map(const ProtobufCFieldDescriptor *field, const json_t *json, struct cn_arena *arena,
        size_t *n, void **list)
{
    ProtobufCMessage **entries =
        cn_arena_alloc(arena, sizeof(*entries) * (json_object_size(json) + 1));
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)json, key, value) entries[(*n)++] =
        make_entry(field->descriptor, key, value, arena);
    *list = entries;
}

static void
put_list(const ProtobufCFieldDescriptor *field, const json_t *json, struct cn_arena *arena,
         size_t *n, void **list)
{
    const size_t bytes = size_of(field->type);
    char *values = cn_arena_alloc(arena, bytes * (json_array_size(json) + 1));

    for (size_t i = 0; i < json_array_size(json); i++)
        if (put_value(field, json_array_get(json, i), arena, values + *n * bytes))
            ++*n;
    *list = values;
}

static void
put_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const json_t *json,
          struct cn_arena *arena)
{
    char *base = (char *)message;
    void *quantifier = base + field->quantifier_offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED && json_is_object(json))
        put_map(field, json, arena, quantifier, (void **)(void *)(base + field->offset));
    else if (field->label == PROTOBUF_C_LABEL_REPEATED)
        put_list(field, json, arena, quantifier, (void **)(void *)(base + field->offset));
    else if (put_value(field, json, arena, base + field->offset) &&
             (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        *(uint32_t *)quantifier = field->id;
}

ProtobufCMessage *
cn_rpc_message_of_json(const ProtobufCMessageDescriptor *type, const json_t *json,
                       struct cn_arena *arena)
{
    ProtobufCMessage *message = cn_arena_alloc(arena, type->sizeof_message);

    protobuf_c_message_init(type, message);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const json_t *value = json_object_get(json, type->fields[i].name);

        if (value)
            put_field(message, &type->fields[i], value, arena);
    }
    return message;
}
