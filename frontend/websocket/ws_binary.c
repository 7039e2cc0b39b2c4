/* frontend/websocket/ws_binary.c - steps and answers as a head and tensors, little-endian. Any
 * thread, no state. */
#include "frontend/websocket/ws_binary.h"

#include <inttypes.h>
#include <string.h>

#include "proto/wire.h"

#define KIND_STEP 1
#define KIND_ANSWER 2
#define FLAG_START 1u
#define FLAG_END 2u
#define FLAG_FINAL 4u
#define FLAG_REPLAYED 8u
#define FLAG_BYTES 16u
#define HEAD_BYTES 16
#define TENSOR_HEAD_BYTES 16

/* --- reading */

/* Reads bytes and the zeros behind them, up to a multiple of 8. */
static struct cn_str
read_padded(struct cn_reader *reader, uint64_t len)
{
    struct cn_str bytes = cn_read_bytes(reader, (size_t)len);

    cn_read_bytes(reader, (size_t)(8 - len % 8) % 8);
    return bytes;
}

static int
bad_tensor(uint32_t i, const char *what, uint64_t value, const char *allowed, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "tensor %u of the message has %s %" PRIu64 "; %s", i + 1,
                   what, value, allowed);
}

static int
read_tensor(struct cn_reader *reader, uint32_t i, struct cn_tensor *out, struct cn_error *err)
{
    const uint8_t type = cn_read_u8(reader), rank = cn_read_u8(reader);
    const uint16_t name_len = cn_read_u16(reader);
    uint64_t data_len;

    cn_read_u32(reader);
    data_len = cn_read_u64(reader);
    *out = (struct cn_tensor){.type = (enum cn_datatype)type, .rank = rank};
    if (!cn_datatype_word(out->type))
        return bad_tensor(i, "the datatype", type, "the datatypes are 1 to 14 (docs/streams.md)",
                          err);
    if (rank > CN_TENSOR_RANK_MAX)
        return bad_tensor(i, "this number of dimensions:", rank, "at most 16 are allowed", err);
    for (uint32_t k = 0; k < rank; k++) {
        const uint64_t size = cn_read_u64(reader);

        if (size > INT64_MAX)
            return bad_tensor(i, "a dimension of", size, "at most 2^63 - 1 is allowed", err);
        out->shape[k] = (int64_t)size;
    }
    out->name = read_padded(reader, name_len);
    out->data = read_padded(reader, data_len);
    if (reader->bad)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the message ends within tensor %u; the head announces longer data", i + 1);
    return cn_tensor_check(out, err);
}

int
cn_ws_binary_read(struct cn_str message, struct cn_arena *arena, struct cn_ws_request *out,
                  struct cn_error *err)
{
    struct cn_reader reader;
    uint8_t kind, flags;
    uint16_t n;
    int rc;

    cn_reader_init(&reader, message.ptr, message.len);
    kind = cn_read_u8(&reader);
    flags = cn_read_u8(&reader);
    n = cn_read_u16(&reader);
    cn_read_u32(&reader);
    out->step = cn_read_u64(&reader);
    if (reader.bad || kind != KIND_STEP || (flags & ~(FLAG_START | FLAG_END | FLAG_BYTES)))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a binary message of continuo.v1.binary begins with a head of 16 bytes, "
                       "with the kind 1 and no flags but 1, 2 and 16");
    if (out->step > INT64_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the step's number is %" PRIu64 "; at most 2^63 - 1 is allowed", out->step);
    if (n > CN_TENSORS_MAX || (n && (flags & FLAG_BYTES)))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the message has %u tensors; at most %d are allowed, and none with the "
                       "flag 16",
                       n, CN_TENSORS_MAX);
    out->has_step = out->step != 0;
    out->start = flags & FLAG_START;
    out->end = flags & FLAG_END;
    if (flags & FLAG_BYTES) {
        out->has_body = true;
        out->body = cn_read_bytes(&reader, cn_reader_left(&reader));
        out->content_type = CN_STR("application/octet-stream");
        return 0;
    }
    out->has_tensors = true;
    out->n_tensors = n;
    out->tensors = cn_arena_alloc(arena, sizeof(*out->tensors) * (n ? n : 1u));
    for (uint32_t i = 0; i < n; i++)
        if ((rc = read_tensor(&reader, i, &out->tensors[i], err)))
            return rc;
    if (cn_reader_left(&reader))
        return cn_fail(err, CN_E_BAD_REQUEST, "%zu bytes follow the last tensor of the message",
                       cn_reader_left(&reader));
    return 0;
}

/* --- writing */

static void
write_padded(struct cn_buf *out, struct cn_str bytes)
{
    static const char zeros[8] = {0};

    cn_buf_append_str(out, bytes);
    cn_buf_append(out, zeros, (8 - bytes.len % 8) % 8);
}

static void
write_tensor(const struct cn_tensor *tensor, struct cn_buf *out)
{
    cn_write_u8(out, (uint8_t)tensor->type);
    cn_write_u8(out, (uint8_t)tensor->rank);
    cn_write_u16(out, (uint16_t)tensor->name.len);
    cn_write_u32(out, 0);
    cn_write_u64(out, tensor->data.len);
    for (uint32_t k = 0; k < tensor->rank; k++)
        cn_write_u64(out, (uint64_t)tensor->shape[k]);
    write_padded(out, tensor->name);
    write_padded(out, tensor->data);
}

static void
write_head(const struct cn_ws_piece *piece, unsigned flags, uint32_t n, struct cn_buf *out)
{
    flags |= piece->final ? FLAG_FINAL : 0u;
    flags |= piece->answer->flags & CN_ANSWER_REPLAYED ? FLAG_REPLAYED : 0u;
    flags |= piece->answer->flags & CN_ANSWER_ENDED ? FLAG_END : 0u;
    cn_write_u8(out, KIND_ANSWER);
    cn_write_u8(out, (uint8_t)flags);
    cn_write_u16(out, (uint16_t)n);
    cn_write_u32(out, piece->answer->status);
    cn_write_u64(out, piece->step);
}

int
cn_ws_binary_write(const struct cn_ws_piece *piece, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_str body = piece->answer->body;
    struct cn_tensor *tensors;
    struct cn_arena arena;
    uint32_t n;
    int rc;

    if (piece->kind != CN_WS_BODY_TENSORS) {
        write_head(piece, FLAG_BYTES, 0, out);
        cn_buf_append_str(out, body);
        return 0;
    }
    if (body.len == 0) {
        write_head(piece, 0, 0, out);
        return 0;
    }
    cn_arena_init(&arena);
    rc = cn_tensors_get(body, &arena, &tensors, &n, err);
    if (!rc)
        write_head(piece, 0, n, out);
    for (uint32_t i = 0; !rc && i < n; i++)
        write_tensor(&tensors[i], out);
    cn_arena_fini(&arena);
    return rc;
}
