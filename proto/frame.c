/* proto/frame.c - frames between server and worker: their header, and the parts that several kinds
 * of frames share. Any thread.
 *
 * The payloads are in frame_worker.c (loading, forking, statistics), frame_orders.c (closing,
 * cancelling, credit), frame_batch.c (rows), frame_answer.c (answers, reports) and query.c. Each
 * layout is described above its encoder. Numbers are little-endian; str16 and str32 are a length of
 * 2 or 4 bytes followed by that many bytes.
 *
 * Server and worker come from one build, because the server starts the worker's program that lies
 * beside its own. So a payload may change as long as both sides change together, and there are no
 * optional fields. The version number in the header catches an installation that is half replaced.
 *
 * A worker runs the model's own code, so the server treats each frame from it as data from outside.
 * All decoders follow these rules, and tests/fuzz holds them to it:
 * - A count is compared with the bytes that are left before anything is allocated for it. The
 *   constants named ..._BYTES_MIN are the smallest encoding of one entry.
 * - Enumerations, lengths of ids and combinations of flags are checked here, so that no other code
 *   has to doubt them.
 * - The whole payload must be used: a byte too many is as wrong as one too few.
 * - Strings are not copied. They point into the frame, which the caller keeps as long as it needs
 *   them.
 */
#include "proto/frame.h"

#include "proto/frame_priv.h"

#define HEADER_BYTES_MIN (2 + 4)

static bool
type_known(unsigned type)
{
    return (type >= CN_FRAME_LOAD && type <= CN_FRAME_MEMORY) ||
           (type >= CN_FRAME_LOADED && type <= CN_FRAME_PROGRESS);
}

/* Does the header fit the frame's type? Only frames that carry a list have a count, and STOP has
 * no payload. */
static bool
shape_fits(unsigned type, uint32_t payload, uint32_t count)
{
    bool counts = type == CN_FRAME_BATCH || type == CN_FRAME_CLOSE || type == CN_FRAME_CANCEL ||
                  type == CN_FRAME_CREDIT || type == CN_FRAME_CLOSED || type == CN_FRAME_RESULT ||
                  type == CN_FRAME_REPORT;

    return (counts || count == 0) && (type != CN_FRAME_STOP || payload == 0);
}

long
cn_frame_next(const void *bytes, size_t len, size_t max_payload_bytes, struct cn_frame *out,
              struct cn_error *err)
{
    struct cn_reader reader;
    uint32_t payload, type, version, zero;

    if (len < CN_FRAME_HEADER_BYTES)
        return 0;
    cn_reader_init(&reader, bytes, CN_FRAME_HEADER_BYTES);
    payload = cn_read_u32(&reader);
    type = cn_read_u8(&reader);
    version = cn_read_u8(&reader);
    zero = cn_read_u16(&reader);
    out->count = cn_read_u32(&reader);
    out->body_memory = NULL;
    if (version != CN_FRAME_VERSION)
        return cn_fail(err, CN_E_PROTOCOL, "frame of version %u, expected %u", version,
                       CN_FRAME_VERSION);
    if (!type_known(type) || zero != 0)
        return cn_fail(err, CN_E_PROTOCOL, "frame of unknown type %u", type);
    if (!shape_fits(type, payload, out->count))
        return cn_fail(err, CN_E_PROTOCOL, "frame of type %u with %u bytes and count %u", type,
                       payload, out->count);
    if (payload > max_payload_bytes)
        return cn_fail(err, CN_E_PROTOCOL, "frame of %u bytes exceeds the limit of %zu bytes",
                       payload, max_payload_bytes);
    if (len - CN_FRAME_HEADER_BYTES < payload)
        return 0;
    out->type = (enum cn_frame_type)type;
    out->payload = (struct cn_str){(const char *)bytes + CN_FRAME_HEADER_BYTES, payload};
    return (long)CN_FRAME_HEADER_BYTES + (long)payload;
}

void
cn_frame_write_headers(struct cn_buf *buf, const struct cn_header *headers, uint32_t count)
{
    uint32_t i;

    cn_write_u32(buf, count);
    for (i = 0; i < count; i++) {
        cn_write_str16(buf, headers[i].name);
        cn_write_str32(buf, headers[i].value);
    }
}

int
cn_frame_read_headers(struct cn_reader *reader, struct cn_arena *arena, struct cn_header **out,
                      uint32_t *count_out, struct cn_error *err)
{
    uint32_t count = cn_read_u32(reader), i;
    struct cn_header *headers = NULL;

    if (reader->bad || count > cn_reader_left(reader) / HEADER_BYTES_MIN)
        return bad_payload(err, "header list of a");
    if (count) {
        headers = cn_arena_try_alloc(arena, count * sizeof(*headers));
        if (!headers)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u headers", count);
    }
    for (i = 0; i < count; i++) {
        headers[i].name = cn_read_str16(reader);
        headers[i].value = cn_read_str32(reader);
    }
    *out = headers;
    *count_out = count;
    return 0;
}

/* Puts the text into the body memory, and writes where it lies. Returns false when it has no place
 * there. */
static bool
write_placed(struct cn_buf *buf, struct cn_body_memory *body_memory, struct cn_str text)
{
    struct cn_body_place place;

    if (!body_memory || buf->failed ||
        !(cn_body_memory_pays(text.len) || cn_body_memory_is_written(body_memory, text.ptr)) ||
        !cn_body_memory_put(body_memory, text, &place))
        return false;
    cn_write_u32(buf, CN_FRAME_PLACED);
    cn_write_u32(buf, place.slot);
    cn_write_u32(buf, place.number);
    cn_write_u64(buf, place.at);
    cn_write_u32(buf, place.bytes);
    return true;
}

void
cn_frame_write_large(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                     struct cn_body_memory *body_memory, uint32_t *unsent, struct cn_str text)
{
    if (write_placed(buf, body_memory, text))
        return;
    if (!borrowed || !cn_borrow_pays(text.len) || text.len >= CN_FRAME_PLACED) {
        cn_write_str32(buf, text);
        return;
    }
    cn_write_u32(buf, (uint32_t)text.len);
    if (!buf->failed)
        cn_borrowed_output_add(borrowed, buf, text, unsent);
}

struct cn_str
cn_frame_read_large(struct cn_reader *reader, struct cn_body_memory *body_memory)
{
    const uint32_t len = cn_read_u32(reader);
    struct cn_body_place place;
    struct cn_str text = {NULL, 0};

    if (len != CN_FRAME_PLACED)
        return cn_read_bytes(reader, len);
    place.slot = cn_read_u32(reader);
    place.number = cn_read_u32(reader);
    place.at = cn_read_u64(reader);
    place.bytes = cn_read_u32(reader);
    if (reader->bad || !body_memory || !cn_body_memory_find(body_memory, &place, &text))
        reader->bad = true;
    return text;
}
