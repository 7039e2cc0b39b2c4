/* store/record/record.c - encodes and decodes records; record.h has the layout. No state, any
 * thread.
 *
 * There is exactly one way to write a record: a varint that is longer than it needs to be, an
 * unused flag, or a well-known content type that is spelled out is refused when a record is read.
 * So bytes that are decoded and encoded again are the same bytes, which the fuzz target compares,
 * and damage has less room to look like a record.
 *
 * A record is written in one pass into a buffer that is reserved for the longest head. Only the
 * length of the state is not known then. Its place in the head first holds the offset at which the
 * state begins; cn_record_end replaces that by the length.
 *
 * A reader may see any bytes. Each length is compared with the bytes that are left before it is
 * used, and the checksum is compared before a part is returned. cn_record_peek is the exception: it
 * leaves out the checksum, for scans that would otherwise read each state as a whole. */
#include "store/record/record.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/text/varint.h"
#include "store/record/checksum.h"
#include "store/record/little_endian.h"

#define MAGIC 0x31524e43u /* "CNR1" */
#define ALL_FLAGS                                                                                  \
    (CN_RECORD_TOMBSTONE | CN_RECORD_HAS_STATE | CN_RECORD_HAS_ANSWER |                            \
     CN_RECORD_ANSWER_TOO_LARGE | CN_RECORD_ANSWER_STREAMED | CN_RECORD_PENDING |                  \
     CN_RECORD_KEYED | CN_RECORD_ASKED)
#define CHECKSUM_BYTES 8
#define HAS_KEYS 0x4000u    /* bit 14 of the flags */
#define HAS_EARLIER 0x2000u /* bit 13 */
/* The varints of a head, in the order in which they are written. */
enum number {
    GENERATION,
    STEP,
    OPENED,
    LAST,
    CLOSED,
    EXPIRES,
    SCHEMA,
    CLOSE_REASON,
    STATUS,
    ANSWER_FLAGS,
    ANSWER_BYTES,
    CONTENT_TYPE,
    N_HEADERS,
    HEADER_BYTES,
    N_CHUNKS,
    CHUNK_BYTES,
    BODY_BYTES,
    N_NUMBERS
};

#define NUMBERS_AT 20
#define HEAD_MAX (NUMBERS_AT + N_NUMBERS * CN_VARINT_MAX + 8 + 1 + 4) /* keys and parts follow */

static const uint64_t highest[N_NUMBERS] = {
    [GENERATION] = UINT64_MAX,   [STEP] = UINT64_MAX,         [OPENED] = UINT64_MAX,
    [LAST] = UINT64_MAX,         [CLOSED] = UINT64_MAX,       [EXPIRES] = UINT64_MAX,
    [SCHEMA] = UINT32_MAX,       [CLOSE_REASON] = UINT8_MAX,  [STATUS] = UINT16_MAX,
    [ANSWER_FLAGS] = UINT32_MAX, [ANSWER_BYTES] = UINT64_MAX, [CONTENT_TYPE] = 2ull * UINT32_MAX,
    [N_HEADERS] = UINT32_MAX,    [HEADER_BYTES] = UINT32_MAX, [N_CHUNKS] = UINT32_MAX,
    [CHUNK_BYTES] = UINT32_MAX,  [BODY_BYTES] = UINT32_MAX,
};

/* The least width of a varint. Numbers that grow while a sequence lives have their final width from
 * the beginning: the step is good for 268 million steps, the time of the last step for half a year,
 * the other times until 2039. So a record grows only with its state, its answer and its keys, and a
 * tombstone that keeps no answer is not larger than the record before it. Both can therefore be
 * written to a store that is full, which refuses whatever grows. */
static const uint8_t least[N_NUMBERS] = {[STEP] = 4, [LAST] = 5, [CLOSED] = 6, [EXPIRES] = 6};

static const struct cn_str content_types[] = {
    CN_STR("text/plain; charset=utf-8"),
    CN_STR("application/json"),
    CN_STR("application/octet-stream"),
};
#define N_CONTENT_TYPES (sizeof(content_types) / sizeof(*content_types))

/* What a head says about the parts behind it: content type, headers, chunks, body, earlier answers,
 * state. */
struct head {
    size_t bytes;
    uint32_t parts[6];
    const struct cn_str *content_type; /* one of content_types, which takes no bytes; or NULL */
};

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
    return (record->flags & CN_RECORD_KEYED) != 0;
}

int
cn_keys_find(struct cn_str keys, const unsigned char hash[CN_KEY_HASH_BYTES])
{
    for (size_t at = 0; at < keys.len; at += CN_KEY_HASH_BYTES)
        if (memcmp(keys.ptr + at, hash, CN_KEY_HASH_BYTES) == 0)
            return (int)(at / CN_KEY_HASH_BYTES);
    return -1;
}

void
cn_record_drop_answer(struct cn_record *record)
{
    record->n_headers = record->n_chunks = 0;
    record->content_type = record->headers = record->chunks = record->body = record->earlier =
        (struct cn_str){NULL, 0};
}

/* --- writing --- */

/* Folds a difference into an unsigned number that is small when the difference is small, whatever
 * its sign; this is the zigzag code of protobuf. */
static uint64_t
fold(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static uint64_t
unfold(uint64_t number)
{
    return number >> 1 ^ (0 - (number & 1));
}

static uint64_t
content_type_number(struct cn_str type)
{
    for (size_t i = 0; i < N_CONTENT_TYPES; i++)
        if (cn_str_eq(type, content_types[i]))
            return 2 * i + 1;
    return 2 * (uint64_t)type.len;
}

static unsigned char *
put_numbers(unsigned char *at, const struct cn_record *record, uint64_t content_type)
{
    const uint64_t numbers[N_NUMBERS] = {
        [GENERATION] = fold(record->generation - record->opened_wall_ms),
        [STEP] = record->step,
        [OPENED] = record->opened_wall_ms,
        [LAST] = fold(record->last_wall_ms - record->opened_wall_ms),
        [CLOSED] = record->closed_wall_ms,
        [EXPIRES] = fold(record->expires_wall_ms - record->last_wall_ms),
        [SCHEMA] = record->schema,
        [CLOSE_REASON] = record->close_reason,
        [STATUS] = record->status,
        [ANSWER_FLAGS] = record->answer_flags,
        [ANSWER_BYTES] = record->answer_bytes,
        [CONTENT_TYPE] = content_type,
        [N_HEADERS] = record->n_headers,
        [HEADER_BYTES] = record->headers.len,
        [N_CHUNKS] = record->n_chunks,
        [CHUNK_BYTES] = record->chunks.len,
        [BODY_BYTES] = record->body.len,
    };

    /* unrolled, so that the widths are constants: a quarter fewer instructions */
#pragma GCC unroll 32
    for (size_t i = 0; i < N_NUMBERS; i++)
        at = (unsigned char *)cn_put_wide_varint(numbers[i], least[i], (char *)at);
    return at;
}

static unsigned char *
put_keys(unsigned char *at, const struct cn_record *record)
{
    if (record->flags & CN_RECORD_ASKED) {
        put64(at, record->request_hash);
        at += 8;
    }
    if (record->keys.len)
        *at++ = (unsigned char)(record->keys.len / CN_KEY_HASH_BYTES);
    at = put_bytes(at, record->keys);
    if (record->earlier.len) {
        put32(at, (uint32_t)record->earlier.len);
        at += 4;
    }
    return at;
}

int
cn_record_begin(const struct cn_record *record, struct cn_buf *out, struct cn_error *err)
{
    const uint64_t type = content_type_number(record->content_type);
    const struct cn_str parts[] = {type % 2 ? (struct cn_str){NULL, 0} : record->content_type,
                                   record->headers, record->chunks, record->body, record->earlier};
    size_t bytes = 0;
    unsigned char *head, *at;

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        bytes += parts[i].len;
    if (bytes > UINT32_MAX - HEAD_MAX)
        return cn_fail(err, CN_E_STATE_STORE, "the answer has %zu bytes, which exceeds 4 GiB",
                       bytes);
    cn_assert(record->keys.len <= CN_RECORD_KEYS_MAX * CN_KEY_HASH_BYTES);
    head = (unsigned char *)cn_buf_reserve(out, HEAD_MAX + record->keys.len + bytes);
    if (!head)
        return cn_fail(err, CN_E_STATE_STORE, "not enough memory for a record of %zu bytes", bytes);
    put32(head, MAGIC);
    put16(head + 4, CN_RECORD_FORMAT);
    put16(head + 6, (uint16_t)(record->flags | (record->keys.len ? HAS_KEYS : 0) |
                               (record->earlier.len ? HAS_EARLIER : 0)));
    put64(head + 8, record->last_job);
    at = put_numbers(head + NUMBERS_AT, record, type);
    at = put_keys(at, record);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        at = put_bytes(at, parts[i]);
    /* the offset of the state, until cn_record_end knows its length */
    put32(head + 16, (uint32_t)(at - head));
    out->len += (size_t)(at - head);
    return 0;
}

int
cn_record_end(struct cn_buf *out, size_t at, struct cn_error *err)
{
    unsigned char *sum = (unsigned char *)cn_buf_reserve(out, CHECKSUM_BYTES), *head;
    size_t state;

    if (!sum)
        return cn_fail(err, CN_E_STATE_STORE, "not enough memory for a record of %zu bytes",
                       out->len - at);
    head = (unsigned char *)out->data + at;
    state = out->len - at - get32(head + 16);
    if (state > UINT32_MAX)
        return cn_fail(err, CN_E_STATE_STORE, "the state has %zu bytes, which exceeds 4 GiB",
                       state);
    put32(head + 16, (uint32_t)state);
    put64(sum, cn_checksum(head, out->len - at, 0));
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
        return cn_fail(err, CN_E_STATE_STORE, "not enough memory for a state of %zu bytes",
                       record->state.len);
    return cn_record_end(out, at, err);
}

/* --- reading --- */

static bool
take_numbers(struct cn_str *rest, uint64_t numbers[N_NUMBERS])
{
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const char *begun = rest->ptr;
        size_t bytes;

        if (!cn_take_varint(rest, &numbers[i]) || numbers[i] > highest[i])
            return false;
        bytes = (size_t)(rest->ptr - begun);
        if (rest->ptr[-1] == 0 && bytes > 1 && bytes != least[i]) /* longer than the number needs */
            return false;
    }
    return true;
}

/* Reads the content type's number: a known one, or the length of one that follows. False: no
 * content type has that number. */
static bool
read_content_type(uint64_t number, struct head *head)
{
    head->parts[0] = number % 2 ? 0 : (uint32_t)(number / 2);
    head->content_type =
        number % 2 && number / 2 < N_CONTENT_TYPES ? &content_types[number / 2] : NULL;
    return number % 2 == 0 || head->content_type;
}

/* Reads the request's hash, the keys and the length of the earlier answers, which stand between the
 * numbers and the parts, and only if the flags say so. head->bytes then ends behind them. */
static bool
read_keys(struct cn_str bytes, struct cn_record *out, struct head *head)
{
    const bool has_keys = out->flags & HAS_KEYS, has_earlier = out->flags & HAS_EARLIER;
    struct cn_str rest = {bytes.ptr + head->bytes, bytes.len - head->bytes};

    out->flags &= ~(HAS_KEYS | HAS_EARLIER);
    if (out->flags & CN_RECORD_ASKED) {
        if (rest.len < 8)
            return false;
        out->request_hash = get64((const unsigned char *)rest.ptr);
        rest = (struct cn_str){rest.ptr + 8, rest.len - 8};
    }
    if (has_keys) {
        size_t len = rest.len ? (unsigned char)*rest.ptr * (size_t)CN_KEY_HASH_BYTES : 0;

        if (len == 0 || rest.len - 1 < len)
            return false;
        out->keys = (struct cn_str){rest.ptr + 1, len};
        rest = (struct cn_str){rest.ptr + 1 + len, rest.len - 1 - len};
    }
    head->parts[4] = 0;
    if (has_earlier) {
        if (rest.len < 4 || (head->parts[4] = get32((const unsigned char *)rest.ptr)) == 0)
            return false;
        rest = (struct cn_str){rest.ptr + 4, rest.len - 4};
    }
    head->bytes = (size_t)(rest.ptr - bytes.ptr);
    return true;
}

static bool
read_head(struct cn_str bytes, struct cn_record *out, struct head *head)
{
    const unsigned char *at = (const unsigned char *)bytes.ptr;
    struct cn_str rest = {bytes.ptr + NUMBERS_AT, bytes.len - NUMBERS_AT};
    uint64_t numbers[N_NUMBERS];

    if (!take_numbers(&rest, numbers) || !read_content_type(numbers[CONTENT_TYPE], head))
        return false;
    head->bytes = (size_t)(rest.ptr - bytes.ptr);
    if (!read_keys(bytes, out, head))
        return false;
    out->last_job = get64(at + 8);
    out->generation = numbers[OPENED] + unfold(numbers[GENERATION]);
    out->step = numbers[STEP];
    out->opened_wall_ms = numbers[OPENED];
    out->last_wall_ms = numbers[OPENED] + unfold(numbers[LAST]);
    out->closed_wall_ms = numbers[CLOSED];
    out->expires_wall_ms = out->last_wall_ms + unfold(numbers[EXPIRES]);
    out->schema = (uint32_t)numbers[SCHEMA];
    out->close_reason = (uint8_t)numbers[CLOSE_REASON];
    out->status = (uint16_t)numbers[STATUS];
    out->answer_flags = (uint32_t)numbers[ANSWER_FLAGS];
    out->answer_bytes = numbers[ANSWER_BYTES];
    out->n_headers = (uint32_t)numbers[N_HEADERS];
    out->n_chunks = (uint32_t)numbers[N_CHUNKS];
    head->parts[1] = (uint32_t)numbers[HEADER_BYTES];
    head->parts[2] = (uint32_t)numbers[CHUNK_BYTES];
    head->parts[3] = (uint32_t)numbers[BODY_BYTES];
    head->parts[5] = get32(at + 16);
    return true;
}

unsigned
cn_record_format(struct cn_str bytes)
{
    const unsigned char *at = (const unsigned char *)bytes.ptr;

    return bytes.len < NUMBERS_AT || get32(at) != MAGIC ? 0 : get16(at + 4);
}

static int
peek(struct cn_str bytes, struct cn_record *out, struct head *head, struct cn_error *err)
{
    const unsigned char *at = (const unsigned char *)bytes.ptr;
    uint16_t format;

    memset(out, 0, sizeof(*out));
    if (bytes.len < NUMBERS_AT || get32(at) != MAGIC)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: %zu bytes that are not a record",
                       bytes.len);
    format = get16(at + 4);
    if (format != CN_RECORD_FORMAT)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the record has format %u; this program reads format %d", format,
                       CN_RECORD_FORMAT);
    out->flags = get16(at + 6);
    if (!read_head(bytes, out, head) || bytes.len < head->bytes + CHECKSUM_BYTES)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: its header of %zu bytes is invalid",
                       bytes.len);
    return 0;
}

int
cn_record_peek(struct cn_str bytes, struct cn_record *out, struct cn_error *err)
{
    struct head head;

    return peek(bytes, out, &head, err);
}

uint32_t
cn_record_state_bytes(struct cn_str bytes)
{
    return get32(bytes.ptr + 16);
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

/* Do the chunks fill their part exactly, and is their number right? */
static int
chunks_fit(struct cn_str chunks, uint32_t count)
{
    struct cn_str chunk;
    uint32_t found = 0;

    while (cn_record_next_chunk(&chunks, &chunk))
        found++;
    return chunks.len == 0 && found == count;
}

/* Do the earlier answers, which are chunks, too, fill their part exactly? */
static int
list_fits(struct cn_str earlier)
{
    struct cn_str answer;

    while (cn_record_next_chunk(&earlier, &answer))
        continue;
    return earlier.len == 0;
}

/* Do the headers fill their part exactly? Each is a u16 length, the name, a u32 length and the
 * value; there are `count` of them. */
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

/* Do flags and fields agree? A record that passes its checksum can still contradict itself if a bug
 * or a forger wrote it, for example a tombstone with a state. */
static int
fields_fit(const struct cn_record *record, const struct head *head)
{
    uint32_t kept = CN_RECORD_HAS_ANSWER, large = CN_RECORD_ANSWER_TOO_LARGE;

    if ((record->flags & ~(uint32_t)ALL_FLAGS) || record->generation == 0)
        return 0;
    if ((record->flags & CN_RECORD_KEYED) &&
        (!(record->flags & CN_RECORD_ASKED) || record->keys.len == 0))
        return 0;
    if (!head->content_type &&
        content_type_number(record->content_type) % 2) /* a known one is never spelled out */
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
    struct cn_str *parts[] = {&out->content_type, &out->headers, &out->chunks,
                              &out->body,         &out->earlier, &out->state};
    unsigned char sum[CHECKSUM_BYTES];
    struct head head;
    const char *at;
    size_t left;
    int rc;

    if ((rc = peek(bytes, out, &head, err)) != 0)
        return rc;
    left = bytes.len - CHECKSUM_BYTES;
    put64(sum, cn_checksum(bytes.ptr, left, 0));
    if (memcmp(sum, bytes.ptr + left, sizeof(sum)) != 0)
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: its checksum does not match");
    at = bytes.ptr + head.bytes;
    left -= head.bytes;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        uint32_t len = head.parts[i];

        if (len > left)
            return cn_fail(err, CN_E_STATE_STORE, "damaged record: part %zu has %u of %zu bytes", i,
                           len, left);
        *parts[i] = (struct cn_str){at, len};
        at += len;
        left -= len;
    }
    if (head.content_type)
        out->content_type = *head.content_type;
    if (left != 0 || !fields_fit(out, &head) || !chunks_fit(out->chunks, out->n_chunks) ||
        !list_fits(out->earlier) || !headers_fit(out->headers, out->n_headers))
        return cn_fail(err, CN_E_STATE_STORE, "damaged record: its fields contradict each other");
    return 0;
}
