/* grpc/kserve/infer_parameter.c - reads a parameter of a ModelInferRequest, and what the parameters
 * of a tensor say about its place in shared memory. Any thread. */
#include <string.h>

#include "grpc/kserve/infer_read_priv.h"
#include "grpc/protobuf_message.h"

enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };

/* Reads an InferParameter, which is a oneof: if several members were sent, the last one counts. */
static int
read_parameter(struct cn_str bytes, struct parameter *out, struct cn_error *err)
{
    struct cn_rpc_field field;
    int rc;

    *out = (struct parameter){.member = NONE};
    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        if (field.number > UINT64)
            continue;
        if (field.wire != (field.number == STRING   ? CN_RPC_WIRE_BYTES
                           : field.number == DOUBLE ? CN_RPC_WIRE_FIXED64
                                                    : CN_RPC_WIRE_VARINT))
            continue;
        out->member = (enum member)field.number;
        out->value = field.value;
        out->text = field.bytes;
        memcpy(&out->number, &field.value, sizeof(out->number));
    }
    return rc < 0 ? cn_rpc_infer_invalid(err)
                  : cn_rpc_infer_check_text(out->text, "a parameter", err);
}

int
cn_rpc_infer_entry(struct cn_str bytes, struct parameter *out, struct cn_error *err)
{
    struct cn_str key = {NULL, 0}, value = {NULL, 0};
    struct cn_rpc_field field;
    int rc;

    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        if (field.wire != CN_RPC_WIRE_BYTES)
            continue;
        if (field.number == ENTRY_KEY)
            key = field.bytes;
        else if (field.number == ENTRY_VALUE)
            value = field.bytes;
    }
    if (rc < 0)
        return cn_rpc_infer_invalid(err);
    if (cn_rpc_infer_check_text(key, "a parameter's name", err) || read_parameter(value, out, err))
        return err->code;
    out->key = key;
    return 0;
}

/* --- places in shared memory */

static int
wrong_window(const struct reader *reader, const char *key, struct cn_str tensor,
             const char *expected)
{
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "invalid value type for '%s' parameter for tensor '%.*s', expected %s.", key,
                   CN_STR_ARG(tensor), expected);
}

int
cn_rpc_infer_window(const struct reader *reader, const struct parameter *from, struct cn_str tensor,
                    struct window *window)
{
    if (cn_str_eq(from->key, CN_STR("shared_memory_region"))) {
        if (from->member != STRING)
            return wrong_window(reader, "shared_memory_region", tensor, "string_param");
        window->is_named = true;
        window->place.region = from->text;
    } else if (cn_str_eq(from->key, CN_STR("shared_memory_byte_size"))) {
        if (from->member != INT64)
            return wrong_window(reader, "shared_memory_byte_size", tensor, "int64_param");
        window->has_size = true;
        window->place.bytes = from->value;
    } else if (cn_str_eq(from->key, CN_STR("shared_memory_offset"))) {
        if (from->member != INT64)
            return wrong_window(reader, "shared_memory_offset", tensor, "int64_param");
        window->place.offset = from->value;
    }
    return 0;
}

int
cn_rpc_infer_window_check(const struct reader *reader, struct cn_str tensor, struct window *window)
{
    if (!window->is_named) {
        window->place = (struct cn_v2_window){.held = NULL};
        return 0;
    }
    if (window->place.region.len == 0)
        return cn_fail(reader->err, CN_E_NOT_FOUND, "Unable to find shared memory region: ''");
    if (window->has_size)
        return 0;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
                   "parameter for tensor '%.*s'",
                   CN_STR_ARG(tensor));
}
