/* store/record/record_test.c - tests that records are read as they were written, and that damage is
 * found. */
#include "store/record/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/record/checksum.h"
#include "store/record/little_endian.h"

static const struct cn_record full = {
    .flags = CN_RECORD_HAS_STATE | CN_RECORD_HAS_ANSWER,
    .generation = 1700000000007,
    .step = 41,
    .last_job = 0x1122334455667788,
    .opened_wall_ms = 1700000000000,
    .last_wall_ms = 1700000001000,
    .expires_wall_ms = 1700000061000,
    .schema = 3,
    .status = 201,
    .answer_flags = 4,
    .answer_bytes = 9,
    .n_headers = 1,
    .n_chunks = 2,
    .content_type = {"text/plain", 10},
    .headers = {"\3\0X-A\2\0\0\0hi", 11},
    .chunks = {"\2\0\0\0ab\0\0\0\0", 10},
    .body = {"answer", 6},
    .state = {"\0state", 6},
};

static void
encode(const struct cn_record *record, struct cn_buf *out)
{
    cn_buf_init(out, 0);
    assert_int_equal(cn_record_encode(record, out, NULL), 0);
}

/* A replayed answer must be the answer: every field survives. */
static void
every_field_survives(void **state)
{
    struct cn_record got;
    struct cn_str chunks, chunk;
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
    assert_int_equal(got.flags, full.flags);
    assert_int_equal(got.generation, 1700000000007);
    assert_int_equal(got.step, 41);
    assert_true(got.last_job == full.last_job);
    assert_int_equal(got.opened_wall_ms, full.opened_wall_ms);
    assert_int_equal(got.last_wall_ms, full.last_wall_ms);
    assert_int_equal(got.closed_wall_ms, 0);
    assert_int_equal(got.expires_wall_ms, full.expires_wall_ms);
    assert_int_equal(got.schema, 3);
    assert_int_equal(got.status, 201);
    assert_int_equal(got.answer_flags, 4);
    assert_int_equal(got.answer_bytes, 9);
    assert_true(cn_str_eq(got.content_type, full.content_type));
    assert_true(cn_str_eq(got.headers, full.headers));
    assert_true(cn_str_eq(got.body, full.body));
    assert_true(cn_str_eq(got.state, full.state));
    chunks = got.chunks;
    assert_int_equal(cn_record_next_chunk(&chunks, &chunk), 1);
    assert_true(cn_str_eq(chunk, CN_STR("ab")));
    assert_int_equal(cn_record_next_chunk(&chunks, &chunk), 1);
    assert_int_equal(chunk.len, 0);
    assert_int_equal(cn_record_next_chunk(&chunks, &chunk), 0);
    cn_buf_fini(&buf);
}

/* The layout is a promise to stores on disk: these bytes must be readable for ever. */
#define HEAD_BYTES 60

static void
layout_is_as_documented(void **state)
{
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    assert_int_equal(buf.len, HEAD_BYTES + 10 + 11 + 10 + 6 + 6 + 8);
    assert_memory_equal(buf.data, "CNR1\6\0\6\0\x88\x77\x66\x55\x44\x33\x22\x11\6\0\0\0", 20);
    /* generation (7 ms after that), step, opened, 1 s later, not closed, 60 s later, schema, live,
     * 201, flags, 9 bytes */
    assert_memory_equal(buf.data + 20,
                        "\x0e\xa9\x80\x80\0\x80\xd0\x95\xff\xbc\x31\xd0\x8f\x80\x80\0"
                        "\x80\x80\x80\x80\x80\0\xc0\xa9\x87\x80\x80\0\3\0\xc9\1\4\x09",
                        34);
    assert_memory_equal(buf.data + 54, "\x14\1\x0b\2\x0a\6", 6);
    assert_memory_equal(buf.data + HEAD_BYTES, "text/plain", 10);
    cn_buf_fini(&buf);
}

/* The four numbers with a minimum width may also be read with fewer bytes. No other number may have
 * bytes that it does not need. */
static void
narrow_numbers_are_read(void **state)
{
    static const char narrow[] =
        "CNR1\6\0\6\0\x88\x77\x66\x55\x44\x33\x22\x11\6\0\0\0"
        "\x0e\x29\x80\xd0\x95\xff\xbc\x31\xd0\x0f\0\xc0\xa9\x07\3\0\xc9\1\4\x09"
        "\x14\1\x0b\2\x0a\6"
        "text/plain\3\0X-A\2\0\0\0hi\2\0\0\0ab\0\0\0\0answer\0state";
    const size_t len = sizeof(narrow) - 1;
    unsigned char bytes[sizeof(narrow) + 16];
    struct cn_record got;

    (void)state;
    memcpy(bytes, narrow, len);
    put64(bytes + len, cn_checksum(bytes, len, 0));
    assert_int_equal(cn_record_decode((struct cn_str){(char *)bytes, len + 8}, &got, NULL), 0);
    assert_int_equal(got.step, 41);
    assert_int_equal(got.last_wall_ms, full.last_wall_ms);
    assert_int_equal(got.closed_wall_ms, 0);
    assert_int_equal(got.expires_wall_ms, full.expires_wall_ms);
    assert_true(cn_str_eq(got.state, full.state));

    memcpy(bytes, narrow, 21); /* the step in two bytes, which are neither one nor four */
    memcpy(bytes + 21, "\xa9\0", 2);
    memcpy(bytes + 23, narrow + 22, len - 22);
    put64(bytes + len + 1, cn_checksum(bytes, len + 1, 0));
    assert_int_equal(cn_record_decode((struct cn_str){(char *)bytes, len + 9}, &got, NULL),
                     CN_E_STATE_STORE);
}

static size_t
encoded_bytes(const struct cn_record *record)
{
    struct cn_buf buf;
    size_t bytes;

    encode(record, &buf);
    bytes = buf.len;
    cn_buf_fini(&buf);
    return bytes;
}

/* If a step leaves the sizes of state and answer as they were, its record must fit into a full
 * store, and so must the record of the sequence's end, whatever the times are by then. */
static void
time_makes_no_record_longer(void **state)
{
    struct cn_record record = full;
    const uint64_t day_ms = 86400000;
    const struct cn_str one = {"\x80", 1};
    size_t first;

    (void)state;
    record.step = 1;
    record.last_wall_ms = record.opened_wall_ms;
    record.expires_wall_ms = 0;
    record.state = record.body = one;
    record.n_chunks = record.n_headers = 0;
    record.chunks = record.headers = (struct cn_str){NULL, 0};
    first = encoded_bytes(&record);
    for (uint64_t days = 0; days < 180; days += 20) {
        record.step = 1 + days * 1000000;
        record.last_wall_ms = record.opened_wall_ms + days * day_ms;
        record.expires_wall_ms = days % 40 ? 0 : record.last_wall_ms + days * day_ms;
        assert_int_equal(encoded_bytes(&record), first);
    }
    record.flags = CN_RECORD_TOMBSTONE | CN_RECORD_HAS_ANSWER; /* of a step with a key */
    record.close_reason = 3;
    record.closed_wall_ms = record.last_wall_ms + 10 * day_ms;
    record.expires_wall_ms = record.closed_wall_ms + day_ms;
    record.state.len = 0;
    assert_true(encoded_bytes(&record) < first);
}

/* Only sequences with idempotency keys or step numbers have these fields, and their layout is a
 * promise, too. */
static void
keys_of_the_last_steps_survive(void **state)
{
    struct cn_record record = full, got;
    struct cn_buf plain, keyed;

    (void)state;
    record.flags |= CN_RECORD_KEYED | CN_RECORD_ASKED;
    record.keys = CN_STR("newest78second78");
    record.request_hash = 0x1122334455667788;
    encode(&full, &plain);
    encode(&record, &keyed);
    assert_int_equal(keyed.len, plain.len + 8 + 1 + 2 * CN_KEY_HASH_BYTES);
    assert_memory_equal(keyed.data, "CNR1\6\0\xc6\x40", 8);
    assert_memory_equal(keyed.data + 8, plain.data + 8, HEAD_BYTES - 8);
    assert_memory_equal(keyed.data + HEAD_BYTES,
                        "\x88\x77\x66\x55\x44\x33\x22\x11\2newest78second78", 25);
    assert_memory_equal(keyed.data + HEAD_BYTES + 25, "text/plain", 10);
    assert_int_equal(cn_record_decode(cn_buf_str(&keyed), &got, NULL), 0);
    assert_true(cn_record_has_key(&got));
    assert_true(cn_str_eq(got.keys, record.keys));
    assert_int_equal(cn_keys_find(got.keys, (const unsigned char *)"newest78"), 0);
    assert_int_equal(cn_keys_find(got.keys, (const unsigned char *)"second78"), 1);
    assert_int_equal(cn_keys_find(got.keys, (const unsigned char *)"t78secon"), -1);
    assert_true(got.request_hash == record.request_hash);
    assert_true(cn_str_eq(got.state, full.state));
    assert_int_equal(cn_record_decode(cn_buf_str(&plain), &got, NULL), 0);
    assert_false(cn_record_has_key(&got));
    assert_int_equal(got.keys.len, 0);
    for (size_t len = 0; len < keyed.len; len++)
        assert_int_equal(cn_record_decode((struct cn_str){keyed.data, len}, &got, NULL),
                         CN_E_STATE_STORE);
    cn_buf_fini(&plain);
    cn_buf_fini(&keyed);
}

/* A numbered step stores the hash of its request without a key. A step with neither leaves the keys
 * of earlier steps as they are. */
static void
request_and_keys_are_kept_apart(void **state)
{
    struct cn_record asked = full, kept = full, got;
    struct cn_buf buf;

    (void)state;
    asked.flags |= CN_RECORD_ASKED;
    asked.request_hash = 7;
    encode(&asked, &buf);
    assert_int_equal(cn_record_peek(cn_buf_str(&buf), &got, NULL), 0);
    assert_true((got.flags & CN_RECORD_ASKED) && got.request_hash == 7 && got.keys.len == 0);
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
    cn_buf_fini(&buf);
    kept.keys = CN_STR("earlier8");
    encode(&kept, &buf);
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
    assert_false(cn_record_has_key(&got));
    assert_true(cn_str_eq(got.keys, kept.keys));
    cn_buf_fini(&buf);
}

static void
assert_same_numbers(const struct cn_record *got, const struct cn_record *want)
{
    assert_int_equal(got->flags & ~(uint32_t)(CN_RECORD_KEYED | CN_RECORD_ASKED), want->flags);
    assert_true(got->generation == want->generation);
    assert_true(got->step == want->step);
    assert_true(got->last_job == want->last_job);
    assert_true(got->opened_wall_ms == want->opened_wall_ms);
    assert_true(got->last_wall_ms == want->last_wall_ms);
    assert_true(got->closed_wall_ms == want->closed_wall_ms);
    assert_true(got->expires_wall_ms == want->expires_wall_ms);
    assert_int_equal(got->schema, want->schema);
    assert_int_equal(got->close_reason, want->close_reason);
    assert_int_equal(got->status, want->status);
    assert_int_equal(got->answer_flags, want->answer_flags);
    assert_true(got->answer_bytes == want->answer_bytes);
    assert_int_equal(got->n_headers, want->n_headers);
    assert_int_equal(got->n_chunks, want->n_chunks);
}

/* Times and counts of any size are read back, even times that run backwards, because clocks are set
 * and imported records come from elsewhere. */
static void
numbers_of_any_size_survive(void **state)
{
    static const uint64_t values[] = {0,         1,         127,        1700000000000,
                                      INT64_MAX, INT64_MIN, UINT64_MAX, UINT64_MAX - 1};
    const size_t n = sizeof(values) / sizeof(*values);

    (void)state;
    for (size_t i = 0; i < n * n; i++) {
        struct cn_record record = full, got;
        struct cn_buf buf;

        record.opened_wall_ms = values[i / n];
        record.last_wall_ms = values[i % n];
        record.expires_wall_ms = values[(i / n + i % n) % n];
        record.generation = values[i % n] ? values[i % n] : 1;
        record.step = record.last_job = record.answer_bytes = values[i / n];
        record.schema = record.answer_flags = (uint32_t)values[i % n];
        record.status = (uint16_t)values[i % n];
        encode(&record, &buf);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
        assert_same_numbers(&got, &record);
        cn_buf_fini(&buf);
    }
}

/* The content types that nearly all answers have take one byte; others are spelled out. */
static void
known_content_types_take_no_room(void **state)
{
    static const struct {
        struct cn_str type;
        size_t bytes;
    } cases[] = {
        {CN_STR("text/plain; charset=utf-8"), 0},
        {CN_STR("application/json"), 0},
        {CN_STR("application/octet-stream"), 0},
        {CN_STR("application/jsonl"), 17},
        {CN_STR("text/plain"), 10},
        {CN_STR(""), 0},
    };
    struct cn_record record = full, got;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cn_buf buf;

        record.content_type = cases[i].type;
        encode(&record, &buf);
        assert_int_equal(buf.len, HEAD_BYTES + cases[i].bytes + 11 + 10 + 6 + 6 + 8);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
        assert_true(cn_str_eq(got.content_type, cases[i].type));
        assert_true(cn_str_eq(got.headers, full.headers));
        cn_buf_fini(&buf);
    }
}

/* The checksum of these bytes is right, but no encoder writes them: a number is too large for its
 * field, has more bytes than it needs, or has no end. */
static void
numbers_that_are_none_are_refused(void **state)
{
    static const struct {
        size_t at, instead_of;
        struct cn_str bytes;
        int rc;
    } cases[] = {
        {20, 1, {"\x8e\1", 2}, 0},                              /* another generation */
        {20, 1, {"\x8e\0", 2}, CN_E_STATE_STORE},               /* the same, in two bytes */
        {48, 1, {"\xff\xff\xff\xff\x0f", 5}, 0},                /* the highest schema */
        {48, 1, {"\x80\x80\x80\x80\x10", 5}, CN_E_STATE_STORE}, /* and one more */
        {49, 1, {"\x80\2", 2}, CN_E_STATE_STORE},               /* a reason of 256 */
        {50, 2, {"\x80\x80\4", 3}, CN_E_STATE_STORE},           /* a status of 65536 */
        {55, 1, {"\x81\x80\x80\x80\x10", 5}, CN_E_STATE_STORE}, /* headers */
        {54, 1, {"\7", 1}, CN_E_STATE_STORE},                   /* a fourth known content type */
        {20, 1, {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, CN_E_STATE_STORE},
    };
    struct cn_record got;
    struct cn_buf plain, buf;

    (void)state;
    encode(&full, &plain);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t behind = cases[i].at + cases[i].instead_of;
        unsigned char sum[8];

        cn_buf_init(&buf, 0);
        cn_buf_append(&buf, plain.data, cases[i].at);
        cn_buf_append_str(&buf, cases[i].bytes);
        cn_buf_append(&buf, plain.data + behind, plain.len - behind - sizeof(sum));
        put64(sum, cn_checksum(buf.data, buf.len, 0));
        cn_buf_append(&buf, sum, sizeof(sum));
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), cases[i].rc);
        cn_buf_fini(&buf);
    }
    cn_buf_fini(&plain);
}

/* A torn record or a flipped bit anywhere is found, because a state that is silently wrong is worse
 * than none. */
static void
any_damage_is_found(void **state)
{
    struct cn_record got;
    struct cn_error err;
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    for (size_t i = 0; i < buf.len; i++) {
        buf.data[i] ^= 0x10;
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, &err), CN_E_STATE_STORE);
        assert_true(err.message[0]);
        buf.data[i] ^= 0x10;
    }
    for (size_t len = 0; len < buf.len; len++) {
        char *copy = malloc(len ? len : 1);

        memcpy(copy, buf.data, len);
        assert_int_equal(cn_record_decode((struct cn_str){copy, len}, &got, NULL),
                         CN_E_STATE_STORE);
        free(copy);
    }
    cn_buf_fini(&buf);
}

/* Fields that contradict each other are refused even with a right checksum. */
static void
contradictions_are_refused(void **state)
{
    struct cn_record wrong[10], got;

    (void)state;
    for (size_t i = 0; i < 10; i++)
        wrong[i] = full;
    wrong[0].n_chunks = 3;
    wrong[1].n_headers = 0;
    wrong[2].flags |= CN_RECORD_ANSWER_TOO_LARGE;
    wrong[3].flags &= ~(uint32_t)CN_RECORD_HAS_STATE;
    wrong[4].flags &= ~(uint32_t)CN_RECORD_HAS_ANSWER;
    wrong[5].flags |= CN_RECORD_TOMBSTONE;
    wrong[6].generation = 0;
    wrong[7].flags |= 0x100;
    wrong[8].flags |= CN_RECORD_KEYED;
    wrong[9].flags |= CN_RECORD_KEYED | CN_RECORD_ASKED; /* and no key */
    for (size_t i = 0; i < 10; i++) {
        struct cn_buf buf;

        encode(&wrong[i], &buf);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), CN_E_STATE_STORE);
        cn_buf_fini(&buf);
    }
}

/* The record of another program is not reported as damage. */
static void
another_format_is_named(void **state)
{
    static const char *const texts[] = {"the record has format 5; this program reads format 6",
                                        "the record has format 7; this program reads format 6"};
    struct cn_record got;
    struct cn_error err;
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    for (int i = 0; i < 2; i++) {
        buf.data[4] = (char)(5 + 2 * i);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, &err), CN_E_STATE_STORE);
        assert_string_equal(err.message, texts[i]);
    }
    cn_buf_fini(&buf);
}

/* Tombstones hold no state but may hold the answer of the step that ended the sequence. */
static void
tombstone_survives(void **state)
{
    struct cn_record record = full, got;
    struct cn_buf buf;

    (void)state;
    record.flags = CN_RECORD_TOMBSTONE | CN_RECORD_HAS_ANSWER;
    record.state = (struct cn_str){NULL, 0};
    record.close_reason = 1;
    record.closed_wall_ms = 1700000002000;
    encode(&record, &buf);
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
    assert_int_equal(got.close_reason, 1);
    assert_int_equal(got.closed_wall_ms, 1700000002000);
    assert_true(cn_str_eq(got.body, full.body));
    assert_int_equal(cn_record_peek(cn_buf_str(&buf), &got, NULL), 0);
    assert_int_equal(got.step, 41);
    assert_int_equal(got.body.len, 0);
    cn_buf_fini(&buf);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_survives),
        cmocka_unit_test(layout_is_as_documented),
        cmocka_unit_test(narrow_numbers_are_read),
        cmocka_unit_test(time_makes_no_record_longer),
        cmocka_unit_test(any_damage_is_found),
        cmocka_unit_test(known_content_types_take_no_room),
        cmocka_unit_test(numbers_of_any_size_survive),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(another_format_is_named),
        cmocka_unit_test(tombstone_survives),
        cmocka_unit_test(keys_of_the_last_steps_survive),
        cmocka_unit_test(request_and_keys_are_kept_apart),
    };

    return cmocka_run_group_tests_name("cache.record", tests, NULL, NULL);
}
