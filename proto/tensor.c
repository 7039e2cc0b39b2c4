/* proto/tensor.c - tensors as parts of a row and as the packed body of an answer. Any thread.
 *
 * A request's tensors and an answer's tensors have different forms, because their bytes come and go
 * in different ways. A request's bytes lie in the memory of the HTTP or gRPC message; as a part
 * they can be sent to the worker from there, and only the datatype and the shape have to be
 * written, as the content type. An answer's tensors are made by the handler and must be stored
 * with the record for a replay; packed behind each other they are one string that can be stored
 * and sent as it is.
 *
 * Shapes come from clients and handlers. Each product of dimensions is checked for overflow, and a
 * tensor is used only after cn_tensor_check has compared the shape with the number of bytes.
 */
#include "proto/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "core/text/number.h"

#define PART_PREFIX "tensor/"
/* Room for "tensor/UINT64[]" and the dimensions with their commas. */
#define TYPE_TEXT_MAX(rank) (16 + (rank) * (1 + CN_NUMBER_MAX))

static const struct datatype {
    enum cn_datatype type;
    struct cn_str word, config_word;
    unsigned bytes;
} datatypes[] = {
    {CN_DATATYPE_NONE, {NULL, 0}, {NULL, 0}, 0},
#define CN_DATATYPE(name, number, word, config_word, bytes)                                        \
    {CN_DATATYPE_##name, {word, sizeof(word) - 1}, {config_word, sizeof(config_word) - 1}, bytes},
#include "proto/datatypes.def"
#undef CN_DATATYPE
};
#define N_DATATYPES (sizeof(datatypes) / sizeof(datatypes[0]))

static const struct datatype *
datatype_of(enum cn_datatype type)
{
    return &datatypes[(unsigned)type < N_DATATYPES ? (unsigned)type : 0];
}

const char *
cn_datatype_word(enum cn_datatype type)
{
    return datatype_of(type)->word.ptr;
}

const char *
cn_datatype_config_word(enum cn_datatype type)
{
    return datatype_of(type)->config_word.ptr;
}

enum cn_datatype
cn_datatype_parse(struct cn_str word)
{
    for (size_t i = 1; i < N_DATATYPES; i++) {
        if (cn_str_eq(word, datatypes[i].word) || cn_str_eq(word, datatypes[i].config_word))
            return datatypes[i].type;
    }
    return CN_DATATYPE_NONE;
}

unsigned
cn_datatype_bytes(enum cn_datatype type)
{
    return datatype_of(type)->bytes;
}

bool
cn_shape_elements(const int64_t *shape, uint32_t rank, uint64_t *out)
{
    uint64_t elements = 1;
    bool fits = true, empty = false;

    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return false;
        empty |= shape[i] == 0;
        if (fits && __builtin_mul_overflow(elements, (uint64_t)shape[i], &elements))
            fits = false;
    }
    *out = empty ? 0 : elements;
    return empty || (fits && elements <= INT64_MAX);
}

const char *
cn_shape_text(struct cn_arena *arena, const int64_t *shape, uint32_t rank)
{
    const char *text = "[";

    for (uint32_t i = 0; i < rank; i++)
        text = cn_arena_printf(arena, "%s%s%" PRId64, text, i ? "," : "", shape[i]);
    return cn_arena_printf(arena, "%s]", text);
}

bool
cn_tensor_next(struct cn_reader *reader, struct cn_str *out)
{
    if (cn_reader_left(reader) == 0)
        return false;
    *out = cn_read_str32(reader);
    return !reader->bad;
}

static int
check_strings(const struct cn_tensor *tensor, uint64_t elements, struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_str element;
    uint64_t n = 0;

    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (cn_tensor_next(&reader, &element))
        n++;
    if (reader.bad)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "tensor %.*s: element %" PRIu64 " of BYTES is truncated",
                       CN_STR_ARG(tensor->name), n);
    if (n != elements)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "tensor %.*s: %" PRIu64 " elements of BYTES, but its shape has %" PRIu64,
                       CN_STR_ARG(tensor->name), n, elements);
    return 0;
}

int
cn_tensor_check(const struct cn_tensor *tensor, struct cn_error *err)
{
    unsigned bytes = cn_datatype_bytes(tensor->type);
    uint64_t elements, want;

    if (!cn_datatype_word(tensor->type) || tensor->rank > CN_TENSOR_RANK_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "tensor %.*s: unknown datatype %u or rank %u out of range",
                       CN_STR_ARG(tensor->name), (unsigned)tensor->type, tensor->rank);
    if (!cn_shape_elements(tensor->shape, tensor->rank, &elements))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "tensor %.*s: its shape has a negative size or too many elements",
                       CN_STR_ARG(tensor->name));
    if (tensor->type == CN_DATATYPE_BYTES)
        return check_strings(tensor, elements, err);
    if (__builtin_mul_overflow(elements, bytes, &want) || want != tensor->data.len)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "tensor %.*s: %zu bytes, %" PRIu64 " elements of %s need %u bytes each",
                       CN_STR_ARG(tensor->name), tensor->data.len, elements,
                       cn_datatype_word(tensor->type), bytes);
    return 0;
}

struct cn_part
cn_tensor_part(const struct cn_tensor *tensor, struct cn_arena *arena)
{
    struct cn_part part = {.name = tensor->name, .data = tensor->data};
    char *text = cn_arena_alloc(arena, TYPE_TEXT_MAX(tensor->rank));
    char *at = stpcpy(stpcpy(text, PART_PREFIX), cn_datatype_word(tensor->type));

    *at++ = '[';
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (i)
            *at++ = ',';
        at = cn_put_int(tensor->shape[i], at);
    }
    *at++ = ']';
    part.content_type = (struct cn_str){text, (size_t)(at - text)};
    return part;
}

/* Reads the digits at *at, and moves *at behind them. Returns false when there is no digit or the
 * number does not fit. */
static bool
read_dimension(const char **at, const char *end, int64_t *out)
{
    const char *from = *at;
    int64_t value = 0;

    while (*at < end && **at >= '0' && **at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, **at - '0', &value))
            return false;
        ++*at;
    }
    *out = value;
    return *at > from;
}

bool
cn_tensor_of_part(const struct cn_part *part, struct cn_tensor *out)
{
    const size_t prefix = sizeof(PART_PREFIX) - 1;
    const char *at = part->content_type.ptr, *end, *open;

    if (part->content_type.len <= prefix || memcmp(at, PART_PREFIX, prefix) != 0)
        return false;
    end = at + part->content_type.len;
    at += prefix;
    open = memchr(at, '[', (size_t)(end - at));
    if (!open)
        return false;
    *out = (struct cn_tensor){.name = part->name, .data = part->data};
    out->type = cn_datatype_parse((struct cn_str){at, (size_t)(open - at)});
    if (out->type == CN_DATATYPE_NONE)
        return false;
    at = open + 1;
    if (at + 1 == end && *at == ']')
        return true;
    while (out->rank < CN_TENSOR_RANK_MAX) {
        if (!read_dimension(&at, end, &out->shape[out->rank++]) || at == end)
            return false;
        if (*at == ']')
            return at + 1 == end;
        if (*at++ != ',')
            return false;
    }
    return false;
}

uint32_t
cn_tensor_batch(const struct cn_row *row, uint64_t max_batch_size)
{
    struct cn_tensor tensor;

    if (max_batch_size == 0 || row->n_parts == 0 || !cn_tensor_of_part(&row->parts[0], &tensor) ||
        tensor.rank == 0 || tensor.shape[0] < 1 || (uint64_t)tensor.shape[0] > max_batch_size)
        return 1;
    return (uint32_t)tensor.shape[0];
}

bool
cn_tensor_stack(struct cn_tensor *all, const struct cn_tensor *more, bool batched)
{
    /* a row alone lacks the dimension in which rows are stacked */
    const uint32_t skip = batched ? 0 : 1;

    if (more->rank + skip > CN_TENSOR_RANK_MAX || (batched && more->rank == 0))
        return false;
    if (all->type == CN_DATATYPE_NONE) {
        all->type = more->type;
        all->name = more->name;
        all->rank = more->rank + skip;
        all->shape[0] = 0;
        for (uint32_t i = 1; i < all->rank; i++)
            all->shape[i] = more->shape[i - skip];
    }
    if (all->type != more->type || all->rank != more->rank + skip)
        return false;
    for (uint32_t i = 1; i < all->rank; i++)
        if (all->shape[i] != more->shape[i - skip])
            return false;
    all->shape[0] += batched ? more->shape[0] : 1;
    return true;
}

/* Returns the size of the first `elements` elements in bytes. Elements of BYTES have to be walked
 * through for that. */
static size_t
bytes_of_first(const struct cn_tensor *tensor, uint64_t elements)
{
    struct cn_reader reader;
    struct cn_str element;

    if (cn_datatype_bytes(tensor->type))
        return (size_t)elements * cn_datatype_bytes(tensor->type);
    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (elements > 0 && cn_tensor_next(&reader, &element))
        elements--;
    return tensor->data.len - cn_reader_left(&reader);
}

bool
cn_tensor_take(struct cn_tensor *rest, uint64_t rows, bool batched, struct cn_tensor *out)
{
    uint64_t elements;

    if (rest->rank == 0 || (uint64_t)rest->shape[0] < rows || (!batched && rows != 1) ||
        !cn_shape_elements(rest->shape + 1, rest->rank - 1, &elements))
        return false;
    *out = *rest;
    out->data.len = bytes_of_first(rest, elements * rows);
    rest->data.ptr += out->data.len;
    rest->data.len -= out->data.len;
    rest->shape[0] -= (int64_t)rows;
    out->shape[0] = (int64_t)rows;
    if (batched)
        return true;
    out->rank--;
    memmove(out->shape, out->shape + 1, sizeof(out->shape[0]) * out->rank);
    return true;
}

static inline char *
put_number(char *at, uint64_t value, unsigned bytes)
{
    value = htole64(value);
    memcpy(at, &value, bytes);
    return at + bytes;
}

static inline char *
put_bytes(char *at, struct cn_str bytes)
{
    if (bytes.len)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

size_t
cn_tensors_head_bytes(size_t name_len, uint32_t rank)
{
    return 2 + name_len + 2 + 8 * (size_t)rank + 4;
}

/* A set is a u32 number of tensors, then for each tensor str16 name, u8 datatype, u8 rank, a u64
 * for each dimension, str32 data. The room is reserved once and filled without further checks,
 * because the answer of each row of a batch is written here. */
char *
cn_tensors_put_head(struct cn_buf *buf, const struct cn_tensor *tensor)
{
    const size_t head = cn_tensors_head_bytes(tensor->name.len, tensor->rank);
    char *at;

    if (tensor->name.len > UINT16_MAX || tensor->data.len > UINT32_MAX) {
        buf->failed = 1;
        return NULL;
    }
    at = cn_buf_reserve(buf, head + tensor->data.len);
    if (!at)
        return NULL;
    at = put_number(at, tensor->name.len, 2);
    at = put_bytes(at, tensor->name);
    at = put_number(at, (uint64_t)tensor->type, 1);
    at = put_number(at, tensor->rank, 1);
    for (uint32_t d = 0; d < tensor->rank; d++)
        at = put_number(at, (uint64_t)tensor->shape[d], 8);
    at = put_number(at, tensor->data.len, 4);
    buf->len += head + tensor->data.len;
    return at;
}

void
cn_tensors_put_one(struct cn_buf *buf, const struct cn_tensor *tensor)
{
    char *at = cn_tensors_put_head(buf, tensor);

    if (at)
        put_bytes(at, tensor->data);
}

void
cn_tensors_put(struct cn_buf *buf, const struct cn_tensor *tensors, uint32_t n)
{
    cn_write_u32(buf, n);
    for (uint32_t i = 0; i < n; i++)
        cn_tensors_put_one(buf, &tensors[i]);
}

static int
read_tensor(struct cn_reader *reader, struct cn_tensor *out, struct cn_error *err)
{
    struct cn_error why;

    *out = (struct cn_tensor){.name = cn_read_str16(reader)};
    out->type = (enum cn_datatype)cn_read_u8(reader);
    out->rank = cn_read_u8(reader);
    if (out->rank > CN_TENSOR_RANK_MAX)
        return cn_fail(err, CN_E_PROTOCOL, "a tensor has rank %u; the limit is %d", out->rank,
                       CN_TENSOR_RANK_MAX);
    for (uint32_t d = 0; d < out->rank; d++)
        out->shape[d] = (int64_t)cn_read_u64(reader);
    out->data = cn_read_str32(reader);
    if (reader->bad)
        return cn_fail(err, CN_E_PROTOCOL, "a set of tensors is truncated");
    if (cn_tensor_check(out, &why))
        return cn_fail(err, CN_E_PROTOCOL, "%s", why.message);
    return 0;
}

int
cn_tensors_get(struct cn_str bytes, struct cn_arena *arena, struct cn_tensor **out, uint32_t *n,
               struct cn_error *err)
{
    struct cn_reader reader;
    int rc;

    cn_reader_init(&reader, bytes.ptr, bytes.len);
    *n = cn_read_u32(&reader);
    if (reader.bad || *n > CN_TENSORS_MAX)
        return cn_fail(err, CN_E_PROTOCOL, "a set has %u tensors; the limit is %d", *n,
                       CN_TENSORS_MAX);
    *out = cn_arena_alloc(arena, sizeof(**out) * *n);
    for (uint32_t i = 0; i < *n; i++)
        if ((rc = read_tensor(&reader, &(*out)[i], err)))
            return rc;
    if (cn_reader_left(&reader))
        return cn_fail(err, CN_E_PROTOCOL, "%zu bytes follow a set of tensors",
                       cn_reader_left(&reader));
    return 0;
}
