/* cache/record.c - encodes and decodes records; layout in record.h. No state, any thread. */
#include "cache/record.h"

#include <inttypes.h>
#include <sodium/crypto_shorthash.h>
#include <string.h>

#include "cache/checksum.h"
#include "cache/little_endian.h"

#define MAGIC 0x31524e43u /* "CNR1" */
#define ALL_FLAGS                                                                                  \
    (CN_RECORD_TOMBSTONE | CN_RECORD_HAS_STATE | CN_RECORD_HAS_ANSWER |                            \
     CN_RECORD_ANSWER_TOO_LARGE | CN_RECORD_ANSWER_STREAMED | CN_RECORD_PENDING)
#define CHECKSUM_BYTES 8
#define KEY_BYTES (CN_KEY_HASH_BYTES + 8) /* what formats 2 and 4 have more than 1 and 3 */

/* Of the formats before 3. */
static const unsigned char checksum_key[crypto_shorthash_KEYBYTES] = "continuo-record";

static unsigned char *
put_bytes(unsigned char *at, struct cn_str bytes)
{
    if (bytes.len)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

bool
cn_record_has_key(const struct cn_record *record)
{
    static const unsigned char none[CN_KEY_HASH_BYTES];

    return memcmp(record->key_hash, none, sizeof(none)) != 0;
}

static bool
is_keyed(uint16_t format)
{
    return format % 2 == 0;
}

/* Of the fixed part. */
static size_t
head_bytes(uint16_t format)
{
    return CN_RECORD_HEAD_BYTES + (is_keyed(format) ? KEY_BYTES : 0);
}

static void
put_checksum(unsigned char *out, uint16_t format, const unsigned char *bytes, size_t len)
{
    if (format > 2)
        put64(out, cn_checksum(bytes, len, 0));
    else
        crypto_shorthash(out, bytes, len, checksum_key);
}

static int
too_long(size_t bytes, struct cn_error *err)
{
    return cn_fail(err, CN_E_STATE_STORE, "a part of the record has %zu bytes, over 4 GiB", bytes);
}

int
cn_record_begin(const struct cn_record *record, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_str *parts[] = {&record->content_type, &record->headers, &record->chunks,
                                    &record->body};
    uint16_t format = cn_record_has_key(record) ? 4 : 3;
    size_t bytes = head_bytes(format);
    unsigned char *head, *at;

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (parts[i]->len > UINT32_MAX)
            return too_long(parts[i]->len, err);
        bytes += parts[i]->len;
    }
    head = (unsigned char *)cn_buf_reserve(out, bytes);
    if (!head)
        return cn_fail(err, CN_E_STATE_STORE, "no memory for a record of %zu bytes", bytes);
    put32(head, MAGIC);
    put16(head + 4, format);
    put16(head + 6, (uint16_t)record->flags);
    put64(head + 8, record->generation);
    put64(head + 16, record->step);
    put64(head + 24, record->last_job);
    put64(head + 32, record->opened_wall_ms);
    put64(head + 40, record->last_wall_ms);
    put64(head + 48, record->closed_wall_ms);
    put64(head + 56, record->expires_wall_ms);
    put32(head + 64, record->schema);
    head[68] = record->close_reason;
    head[69] = 0;
    put16(head + 70, record->status);
    put64(head + 72, record->answer_bytes);
    put32(head + 80, record->answer_flags);
    put32(head + 84, (uint32_t)record->content_type.len);
    put32(head + 88, record->n_headers);
    put32(head + 92, (uint32_t)record->headers.len);
    put32(head + 96, record->n_chunks);
    put32(head + 100, (uint32_t)record->chunks.len);
    put32(head + 104, (uint32_t)record->body.len);
    if (is_keyed(format)) {
        memcpy(head + CN_RECORD_HEAD_BYTES, record->key_hash, CN_KEY_HASH_BYTES);
        put64(head + CN_RECORD_HEAD_BYTES + CN_KEY_HASH_BYTES, record->request_hash);
    }
    at = head + head_bytes(format);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        at = put_bytes(at, *parts[i]);
    out->len += bytes;
    return 0;
}

int
cn_record_end(struct cn_buf *out, size_t at, struct cn_error *err)
{
    static const unsigned char length_at[] = {84, 92, 100, 104};
    unsigned char *sum = (unsigned char *)cn_buf_reserve(out, CHECKSUM_BYTES);
    unsigned char *head;
    uint16_t format;
    size_t state;

    if (!sum)
        return cn_fail(err, CN_E_STATE_STORE, "no memory for a record of %zu bytes", out->len - at);
    head = (unsigned char *)out->data + at;
    format = get16(head + 4);
    state = out->len - at - head_bytes(format);
    for (size_t i = 0; i < sizeof(length_at); i++)
        state -= get32(head + length_at[i]);
    if (state > UINT32_MAX)
        return too_long(state, err);
    put32(head + 108, (uint32_t)state);
    put_checksum(sum, format, head, out->len - at);
    out->len += CHECKSUM_BYTES;
    return 0;
}

int
cn_record_encode(const struct cn_record *record, struct cn_buf *out, struct cn_error *err)
{
    size_t at = out->len;
    int rc = cn_record_begin(record, out, err);

    if (rc != 0)
        return rc;
    if (cn_buf_append_str(out, record->state) < 0)
        return cn_fail(err, CN_E_STATE_STORE, "no memory for a state of %zu bytes",
                       record->state.len);
    return cn_record_end(out, at, err);
}

int
cn_record_peek(struct cn_str bytes, struct cn_record *out, struct cn_error *err)
{
    const unsigned char *head = (const unsigned char *)bytes.ptr;
    uint16_t format;

    memset(out, 0, sizeof(*out));
    if (bytes.len < CN_RECORD_HEAD_BYTES + CHECKSUM_BYTES || get32(head) != MAGIC)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: %zu bytes, not a record", bytes.len);
    format = get16(head + 4);
    if (format < 1 || format > CN_RECORD_FORMAT)
        return cn_fail(err, CN_E_STATE_STORE, "record of format %u, this program knows 1 to %d",
                       format, CN_RECORD_FORMAT);
    if (bytes.len < head_bytes(format) + CHECKSUM_BYTES)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: %zu bytes, not a record", bytes.len);
    out->flags = get16(head + 6);
    out->generation = get64(head + 8);
    out->step = get64(head + 16);
    out->last_job = get64(head + 24);
    out->opened_wall_ms = get64(head + 32);
    out->last_wall_ms = get64(head + 40);
    out->closed_wall_ms = get64(head + 48);
    out->expires_wall_ms = get64(head + 56);
    out->schema = get32(head + 64);
    out->close_reason = head[68];
    out->status = get16(head + 70);
    out->answer_bytes = get64(head + 72);
    out->answer_flags = get32(head + 80);
    out->n_headers = get32(head + 88);
    out->n_chunks = get32(head + 96);
    if (is_keyed(format)) {
        memcpy(out->key_hash, head + CN_RECORD_HEAD_BYTES, CN_KEY_HASH_BYTES);
        out->request_hash = get64(head + CN_RECORD_HEAD_BYTES + CN_KEY_HASH_BYTES);
    }
    return 0;
}

uint32_t
cn_record_state_bytes(struct cn_str bytes)
{
    return get32((const unsigned char *)bytes.ptr + 108);
}

int
cn_record_next_chunk(struct cn_str *chunks, struct cn_str *out)
{
    uint32_t len;

    if (chunks->len < 4)
        return 0;
    len = get32((const unsigned char *)chunks->ptr);
    if (len > chunks->len - 4)
        return 0;
    *out = (struct cn_str){chunks->ptr + 4, len};
    chunks->ptr += 4 + (size_t)len;
    chunks->len -= 4 + (size_t)len;
    return 1;
}

void
cn_record_put_chunk(struct cn_buf *out, struct cn_str chunk)
{
    unsigned char len[4];

    if (chunk.len > UINT32_MAX) {
        out->failed = 1;
        return;
    }
    put32(len, (uint32_t)chunk.len);
    cn_buf_append(out, len, sizeof(len));
    cn_buf_append_str(out, chunk);
}

static int
chunks_fit(struct cn_str chunks, uint32_t count)
{
    struct cn_str chunk;
    uint32_t found = 0;

    while (cn_record_next_chunk(&chunks, &chunk))
        found++;
    return chunks.len == 0 && found == count;
}

/* u16 length, name, u32 length, value; `count` times and nothing else. */
static int
headers_fit(struct cn_str headers, uint32_t count)
{
    const unsigned char *at = (const unsigned char *)headers.ptr;
    size_t left = headers.len;

    for (uint32_t i = 0; i < count; i++) {
        size_t name, value;

        if (left < 2 || (name = get16(at)) > left - 2)
            return 0;
        at += 2 + name;
        left -= 2 + name;
        if (left < 4 || (value = get32(at)) > left - 4)
            return 0;
        at += 4 + value;
        left -= 4 + value;
    }
    return left == 0;
}

static int
fields_fit(const struct cn_record *record, const unsigned char *head)
{
    uint32_t kept = CN_RECORD_HAS_ANSWER, large = CN_RECORD_ANSWER_TOO_LARGE;

    if ((record->flags & ~(uint32_t)ALL_FLAGS) || head[69] != 0 || record->generation == 0)
        return 0;
    if (is_keyed(get16(head + 4)) && !cn_record_has_key(record))
        return 0;
    if ((record->flags & kept) && (record->flags & (large | CN_RECORD_ANSWER_STREAMED)))
        return 0;
    if (!(record->flags & kept) &&
        (record->content_type.len || record->headers.len || record->chunks.len || record->body.len))
        return 0;
    if (!(record->flags & CN_RECORD_HAS_STATE) && record->state.len)
        return 0;
    if (record->flags & CN_RECORD_TOMBSTONE)
        return !(record->flags & CN_RECORD_HAS_STATE) && record->close_reason != 0;
    return record->close_reason == 0 && record->closed_wall_ms == 0;
}

int
cn_record_decode(struct cn_str bytes, struct cn_record *out, struct cn_error *err)
{
    const unsigned char *head = (const unsigned char *)bytes.ptr;
    struct cn_str *parts[] = {&out->content_type, &out->headers, &out->chunks, &out->body,
                              &out->state};
    static const unsigned char length_at[] = {84, 92, 100, 104, 108};
    unsigned char sum[CHECKSUM_BYTES];
    const char *at;
    size_t left;
    int rc;

    if ((rc = cn_record_peek(bytes, out, err)) != 0)
        return rc;
    left = bytes.len - CHECKSUM_BYTES;
    put_checksum(sum, get16(head + 4), head, left);
    if (memcmp(sum, head + left, sizeof(sum)) != 0)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: its checksum does not fit");
    at = bytes.ptr + head_bytes(get16(head + 4));
    left -= head_bytes(get16(head + 4));
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        uint32_t len = get32(head + length_at[i]);

        if (len > left)
            return cn_fail(err, CN_E_STATE_STORE, "damaged record: part %zu has %u of %zu bytes", i,
                           len, left);
        *parts[i] = (struct cn_str){at, len};
        at += len;
        left -= len;
    }
    if (left != 0 || !fields_fit(out, head) || !chunks_fit(out->chunks, out->n_chunks) ||
        !headers_fit(out->headers, out->n_headers))
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: its fields do not fit together");
    return 0;
}
