/* grpc/kserve/infer_contents.c - reads and writes InferTensorContents, the typed form of a tensor's
 * elements. Any thread.
 *
 * The message has a list for each kind of number and one for bytes. Which list belongs to a
 * datatype stands in `of_type`: for example all signed integers of at most 32 bits use
 * int_contents. FP16 and BF16 have none, so they can only be sent raw. Data in the list of another
 * datatype is an error that names both.
 *
 * On the wire, a list may be packed, sent one element at a time, or both; and the submessage itself
 * may be sent in several parts that count as one. So the contents are gone through twice: `count`
 * finds how many elements each list has, and after the check against the shape `fill` writes them
 * into a block of the right size. Packed floats in one piece are already in the tensor's form. */
#include "grpc/kserve/infer_contents.h"

#include "core/text/varint.h"
#include "grpc/protobuf_message.h"
#include "proto/wire.h"

enum { INPUT_CONTENTS = 5 };

/* The fields, in the order in which they are searched. */
enum {
    BOOLS = 1,
    INTS = 2,
    INT64S = 3,
    UINTS = 4,
    UINT64S = 5,
    FLOATS = 6,
    DOUBLES = 7,
    TEXTS = 8
};
#define N_FIELDS 9

static const struct {
    unsigned field; /* 0: none */
    bool is_signed;
} of_type[] = {
    [CN_DATATYPE_BOOL] = {BOOLS, false},     [CN_DATATYPE_INT8] = {INTS, true},
    [CN_DATATYPE_INT16] = {INTS, true},      [CN_DATATYPE_INT32] = {INTS, true},
    [CN_DATATYPE_INT64] = {INT64S, true},    [CN_DATATYPE_UINT8] = {UINTS, false},
    [CN_DATATYPE_UINT16] = {UINTS, false},   [CN_DATATYPE_UINT32] = {UINTS, false},
    [CN_DATATYPE_UINT64] = {UINT64S, false}, [CN_DATATYPE_FP32] = {FLOATS, false},
    [CN_DATATYPE_FP64] = {DOUBLES, false},   [CN_DATATYPE_BYTES] = {TEXTS, false},
    [CN_DATATYPE_FP16] = {0, false},         [CN_DATATYPE_BF16] = {0, false},
};

/* The datatype in which a field is read, if that is not the datatype of the input. */
static const char *const field_words[N_FIELDS] = {NULL,     "BOOL", "INT32", "INT64", "UINT32",
                                                  "UINT64", "FP32", "FP64",  "BYTES"};

/* Returns the size of an element on the wire if it is fixed, or 0 for a varint and for a text. */
static unsigned
fixed_bytes(unsigned field)
{
    return field == FLOATS ? 4 : field == DOUBLES ? 8 : 0;
}

/* --- reading */

/* The contents of each field in a message. */
struct counts {
    uint64_t elements[N_FIELDS];
    uint64_t text_bytes;
    unsigned pieces[N_FIELDS];
    struct cn_str piece[N_FIELDS]; /* the last packed list */
};

/* Takes the next field of the contents. Returns 1; 0 at the end; -1 if it is not a valid message. A
 * submessage that was sent in several parts counts as one, so the search goes on in `input`. */
static int
next_field(struct cn_str *input, struct cn_str *contents, struct cn_rpc_field *out)
{
    int rc;

    for (;;) {
        if (contents->len > 0)
            return cn_rpc_next_field(contents, out);
        if ((rc = cn_rpc_next_field(input, out)) <= 0)
            return rc;
        if (out->number == INPUT_CONTENTS && out->wire == CN_RPC_WIRE_BYTES)
            *contents = out->bytes;
    }
}

/* Returns true for an element, or a packed list of elements, of a field that this file knows. */
static bool
is_ours(const struct cn_rpc_field *field)
{
    const unsigned bytes = field->number < N_FIELDS ? fixed_bytes(field->number) : 0;

    if (field->number >= N_FIELDS)
        return false;
    if (field->wire == CN_RPC_WIRE_BYTES)
        return true;
    return field->number != TEXTS && field->wire == (bytes == 4   ? CN_RPC_WIRE_FIXED32
                                                     : bytes == 8 ? CN_RPC_WIRE_FIXED64
                                                                  : CN_RPC_WIRE_VARINT);
}

/* Counts the elements of a packed list. Returns false if the last one is cut off. */
static bool
count_packed(unsigned field, struct cn_str bytes, uint64_t *out)
{
    const unsigned fixed = fixed_bytes(field);

    if (fixed) {
        *out = bytes.len / fixed;
        return bytes.len % fixed == 0;
    }
    *out = 0;
    for (size_t i = 0; i < bytes.len; i++)
        *out += ((unsigned char)bytes.ptr[i] & 0x80) == 0;
    return bytes.len == 0 || ((unsigned char)bytes.ptr[bytes.len - 1] & 0x80) == 0;
}

static bool
count(struct cn_str input, struct counts *out)
{
    struct cn_str contents = {NULL, 0};
    struct cn_rpc_field field;
    uint64_t n;
    int rc;

    memset(out, 0, sizeof(*out));
    while ((rc = next_field(&input, &contents, &field)) > 0) {
        if (!is_ours(&field))
            continue;
        n = 1;
        if (field.number == TEXTS)
            out->text_bytes += field.bytes.len;
        else if (field.wire == CN_RPC_WIRE_BYTES && !count_packed(field.number, field.bytes, &n))
            return false;
        out->elements[field.number] += n;
        out->pieces[field.number]++;
        out->piece[field.number] = field.bytes;
    }
    return rc == 0;
}

/* Writes the low bytes of the value, as many as the datatype has. */
static char *
put_value(char *at, enum cn_datatype type, uint64_t value)
{
    const unsigned bytes = cn_datatype_bytes(type);

    if (type == CN_DATATYPE_BOOL)
        value = value != 0;
    memcpy(at, &value, bytes); /* little-endian, as this machine */
    return at + bytes;
}

static bool
fill(struct cn_str input, unsigned wanted, enum cn_datatype type, char *at)
{
    struct cn_str contents = {NULL, 0}, packed;
    struct cn_rpc_field field;
    uint64_t value;
    uint32_t len;

    while (next_field(&input, &contents, &field) > 0) {
        if (field.number != wanted || !is_ours(&field))
            continue;
        packed = field.bytes;
        if (wanted == TEXTS) {
            len = (uint32_t)packed.len;
            memcpy(at, &len, sizeof(len));
            if (len)
                memcpy(at + sizeof(len), packed.ptr, len);
            at += sizeof(len) + len;
        } else if (field.wire != CN_RPC_WIRE_BYTES) {
            at = put_value(at, type, field.value);
        } else if (fixed_bytes(wanted)) {
            if (packed.len)
                memcpy(at, packed.ptr, packed.len);
            at += packed.len;
        } else {
            while (packed.len > 0) {
                if (!cn_take_varint(&packed, &value))
                    return false;
                at = put_value(at, type, value);
            }
        }
    }
    return true;
}

/* Checks that only the field of the tensor's datatype has elements. */
static int
check_fields(const struct counts *counts, const char *model, const struct cn_tensor *tensor,
             struct cn_error *err)
{
    const unsigned wanted = of_type[tensor->type].field;
    bool has_data = false;

    for (unsigned i = 1; i < N_FIELDS; i++) {
        if (counts->elements[i] == 0)
            continue;
        if (has_data)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "unexpected explicit tensor data for input tensor '%.*s' for model "
                           "'%s', binary data was already supplied.",
                           CN_STR_ARG(tensor->name), model);
        if (i != wanted)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "unexpected explicit tensor data for input tensor '%.*s' for model "
                           "'%s' of type '%s', expected datatype '%s'",
                           CN_STR_ARG(tensor->name), model, field_words[i],
                           cn_datatype_word(tensor->type));
        has_data = true;
    }
    return 0;
}

bool
cn_rpc_has_contents(struct cn_str input)
{
    struct cn_rpc_field field;

    while (cn_rpc_next_field(&input, &field) > 0)
        if (field.number == INPUT_CONTENTS && field.wire == CN_RPC_WIRE_BYTES)
            return true;
    return false;
}

int
cn_rpc_read_contents(struct cn_str input, const char *model, size_t max_bytes,
                     struct cn_arena *arena, struct cn_tensor *tensor, struct cn_error *err)
{
    const unsigned wanted = of_type[tensor->type].field;
    struct counts counts;
    uint64_t bytes;
    char *room;

    if (!count(input, &counts))
        return cn_fail(err, CN_E_BAD_REQUEST, "the body is not a valid ModelInferRequest message");
    if (check_fields(&counts, model, tensor, err))
        return err->code;
    if (fixed_bytes(wanted) && counts.pieces[wanted] == 1 && counts.piece[wanted].len) {
        tensor->data = counts.piece[wanted];
        return 0;
    }
    bytes = wanted == TEXTS ? counts.text_bytes + 4 * counts.elements[wanted]
                            : counts.elements[wanted] * cn_datatype_bytes(tensor->type);
    if (bytes > max_bytes)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "input '%.*s' has a byte_size (%llu bytes) that exceeds the maximum allowed "
                       "value of %zu bytes. Use --max-v2-request-size to increase the limit.",
                       CN_STR_ARG(tensor->name), (unsigned long long)bytes, max_bytes);
    room = cn_arena_try_alloc(arena, bytes ? (size_t)bytes : 1);
    if (!room)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for input '%.*s'",
                       CN_STR_ARG(tensor->name));
    if (!fill(input, wanted, tensor->type, room))
        return cn_fail(err, CN_E_BAD_REQUEST, "the body is not a valid ModelInferRequest message");
    tensor->data = (struct cn_str){room, (size_t)bytes};
    return 0;
}

/* --- writing */

static uint64_t
value_at(enum cn_datatype type, const char *at)
{
    const unsigned bytes = cn_datatype_bytes(type), shift = 64 - 8 * bytes;
    uint64_t value = 0;

    memcpy(&value, at, bytes);
    return of_type[type].is_signed ? (uint64_t)((int64_t)(value << shift) >> shift) : value;
}

static void
put_varints(const struct cn_tensor *tensor, struct cn_buf *out)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);
    const char *end = tensor->data.ptr + tensor->data.len, *at;
    char head[CN_RPC_FIELD_MAX];
    size_t len = 0;

    for (at = tensor->data.ptr; at < end; at += bytes)
        len += (size_t)(cn_put_varint(value_at(tensor->type, at), head) - head);
    cn_buf_append(out, head,
                  (size_t)(cn_rpc_put_head(head, of_type[tensor->type].field, len) - head));
    for (at = tensor->data.ptr; at < end; at += bytes)
        cn_buf_append(out, head, (size_t)(cn_put_varint(value_at(tensor->type, at), head) - head));
}

static void
put_bytes(unsigned field, struct cn_str bytes, struct cn_buf *out)
{
    char head[CN_RPC_FIELD_MAX];

    cn_buf_append(out, head, (size_t)(cn_rpc_put_head(head, field, bytes.len) - head));
    cn_buf_append_str(out, bytes);
}

void
cn_rpc_put_contents(const struct cn_tensor *tensor, struct cn_buf *out)
{
    const unsigned field = of_type[tensor->type].field;
    struct cn_reader reader;
    struct cn_str element;

    if (field == TEXTS) {
        cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
        while (cn_tensor_next(&reader, &element))
            put_bytes(TEXTS, element, out);
    } else if (field && fixed_bytes(field)) {
        put_bytes(field, tensor->data, out);
    } else if (field && tensor->data.len) {
        put_varints(tensor, out);
    }
}
