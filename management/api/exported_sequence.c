/* management/api/exported_sequence.c - encodes and decodes exported sequences. Any thread.
 *
 * The file comes from outside, so decoding trusts nothing in this order: the magic bytes, the
 * format, the length, the checksum, and only then the fields. The message of an error says which of
 * these was wrong, because a truncated download needs something else than a file of a newer server.
 */
#include "management/api/exported_sequence.h"

#include <sodium/crypto_generichash.h>
#include <string.h>

#include "proto/message.h"
#include "proto/wire.h"

#define MAGIC_BYTES 8
#define SUM_BYTES 32
#define LENGTH_AT (MAGIC_BYTES + 4)
#define HEAD_BYTES (LENGTH_AT + 8)

void
cn_exported_sequence_encode(const struct cn_exported_sequence *envelope, struct cn_buf *out)
{
    size_t begun = out->len;
    uint64_t bytes;
    char *sum;

    cn_buf_append(out, CN_EXPORTED_SEQUENCE_MAGIC, MAGIC_BYTES);
    cn_write_u16(out, CN_EXPORTED_SEQUENCE_FORMAT);
    cn_write_u16(out, 0);
    cn_write_u64(out, 0); /* the length, below */
    cn_write_u64(out, envelope->exported_wall_ms);
    cn_write_str16(out, envelope->model);
    cn_write_str16(out, envelope->version);
    cn_write_str16(out, envelope->sequence_id);
    cn_write_u64(out, envelope->generation);
    cn_write_u64(out, envelope->step);
    cn_write_u64(out, envelope->opened_wall_ms);
    cn_write_u64(out, envelope->last_wall_ms);
    cn_write_u32(out, envelope->schema);
    cn_write_str32(out, envelope->record);
    sum = cn_buf_reserve(out, SUM_BYTES);
    if (!sum || out->failed)
        return;
    bytes = out->len - begun + SUM_BYTES;
    cn_patch_u32(out, begun + LENGTH_AT, (uint32_t)bytes);
    cn_patch_u32(out, begun + LENGTH_AT + 4, (uint32_t)(bytes >> 32));
    crypto_generichash((unsigned char *)sum, SUM_BYTES, (unsigned char *)out->data + begun,
                       out->len - begun, NULL, 0);
    out->len += SUM_BYTES;
}

/* Checks magic, format and length, before anything inside is trusted. */
static int
check_head(struct cn_str bytes, struct cn_error *err)
{
    struct cn_reader reader;
    uint64_t whole;
    unsigned format, zero;

    if (bytes.len < MAGIC_BYTES || memcmp(bytes.ptr, CN_EXPORTED_SEQUENCE_MAGIC, MAGIC_BYTES) != 0)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the body is not an exported sequence (%zu bytes that begin differently); "
                       "send the exported file unchanged",
                       bytes.len);
    cn_reader_init(&reader, bytes.ptr + MAGIC_BYTES, bytes.len - MAGIC_BYTES);
    format = cn_read_u16(&reader);
    zero = cn_read_u16(&reader);
    whole = cn_read_u64(&reader);
    if (!reader.bad && format > CN_EXPORTED_SEQUENCE_FORMAT)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the exported sequence has format %u, which a newer Continuo wrote; this "
                       "server reads format %d: upgrade it, or export with an older server",
                       format, CN_EXPORTED_SEQUENCE_FORMAT);
    if (reader.bad || bytes.len < whole)
        return cn_fail(
            err, CN_E_BAD_REQUEST,
            "the exported sequence is truncated: %zu of %llu bytes arrived; export it again",
            bytes.len, (unsigned long long)(reader.bad ? HEAD_BYTES : whole));
    if (bytes.len > whole)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the exported sequence is followed by %llu more bytes; send one exported "
                       "file at a time, unchanged",
                       (unsigned long long)(bytes.len - whole));
    if (format == 0 || zero != 0 || whole < HEAD_BYTES + SUM_BYTES)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the header of the exported sequence is damaged; export it again");
    return 0;
}

int
cn_exported_sequence_decode(struct cn_str bytes, struct cn_exported_sequence *out,
                            struct cn_error *err)
{
    unsigned char sum[SUM_BYTES];
    struct cn_reader reader;
    size_t len;

    if (check_head(bytes, err))
        return CN_E_BAD_REQUEST;
    len = bytes.len - SUM_BYTES;
    crypto_generichash(sum, SUM_BYTES, (const unsigned char *)bytes.ptr, len, NULL, 0);
    if (memcmp(sum, bytes.ptr + len, SUM_BYTES) != 0)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the exported sequence was changed after the export: its checksum does not "
                       "match; export it again");
    cn_reader_init(&reader, bytes.ptr + HEAD_BYTES, len - HEAD_BYTES);
    out->exported_wall_ms = cn_read_u64(&reader);
    out->model = cn_read_str16(&reader);
    out->version = cn_read_str16(&reader);
    out->sequence_id = cn_read_str16(&reader);
    out->generation = cn_read_u64(&reader);
    out->step = cn_read_u64(&reader);
    out->opened_wall_ms = cn_read_u64(&reader);
    out->last_wall_ms = cn_read_u64(&reader);
    out->schema = cn_read_u32(&reader);
    out->record = cn_read_str32(&reader);
    if (reader.bad || cn_reader_left(&reader) > 0 || out->sequence_id.len == 0 ||
        out->sequence_id.len > CN_SEQUENCE_ID_MAX || out->model.len == 0)
        return cn_fail(
            err, CN_E_BAD_REQUEST,
            "the fields of the exported sequence contradict each other; export it again");
    return 0;
}
