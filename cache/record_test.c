/* cache/record_test.c - what is encoded comes back; damage never does. */
#include "cache/record.h"

#include <setjmp.h>
#include <sodium/crypto_shorthash.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct cn_record full = {
    .flags = CN_RECORD_HAS_STATE | CN_RECORD_HAS_ANSWER,
    .generation = 7,
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
    assert_int_equal(buf.len, CN_RECORD_HEAD_BYTES + 10 + 11 + 10 + 6 + 6 + 8);
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
    assert_int_equal(got.flags, full.flags);
    assert_int_equal(got.generation, 7);
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

/* The layout is a promise to stores on disk: these bytes must be read for ever. */
static void
layout_is_as_documented(void **state)
{
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    assert_memory_equal(buf.data, "CNR1\3\0\6\0\7\0\0\0\0\0\0\0\x29\0\0\0\0\0\0\0", 24);
    assert_memory_equal(buf.data + 24, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
    assert_memory_equal(buf.data + 64, "\3\0\0\0\0\0\xc9\0\x09\0\0\0\0\0\0\0\4\0\0\0", 20);
    assert_memory_equal(buf.data + 84,
                        "\x0a\0\0\0\1\0\0\0\x0b\0\0\0\2\0\0\0\x0a\0\0\0\6\0\0\0\6\0\0\0", 28);
    assert_memory_equal(buf.data + 112, "text/plain", 10);
    cn_buf_fini(&buf);
}

/* Only a step with an idempotency key pays for it, and the layout is a promise as well. */
static void
key_of_the_last_step_survives(void **state)
{
    struct cn_record record = full, got;
    struct cn_buf plain, keyed;

    (void)state;
    memcpy(record.key_hash, "0123456789abcdef", CN_KEY_HASH_BYTES);
    record.request_hash = 0x1122334455667788;
    encode(&full, &plain);
    encode(&record, &keyed);
    assert_int_equal(keyed.len, plain.len + CN_KEY_HASH_BYTES + 8);
    assert_memory_equal(keyed.data, "CNR1\4\0", 6);
    assert_memory_equal(keyed.data + 6, plain.data + 6, CN_RECORD_HEAD_BYTES - 6);
    assert_memory_equal(keyed.data + 112, "0123456789abcdef\x88\x77\x66\x55\x44\x33\x22\x11", 24);
    assert_memory_equal(keyed.data + 136, "text/plain", 10);
    assert_int_equal(cn_record_decode(cn_buf_str(&keyed), &got, NULL), 0);
    assert_true(cn_record_has_key(&got));
    assert_memory_equal(got.key_hash, record.key_hash, CN_KEY_HASH_BYTES);
    assert_true(got.request_hash == record.request_hash);
    assert_true(cn_str_eq(got.state, full.state));
    assert_int_equal(cn_record_decode(cn_buf_str(&plain), &got, NULL), 0);
    assert_false(cn_record_has_key(&got));
    for (size_t len = 0; len < keyed.len; len++)
        assert_int_equal(cn_record_decode((struct cn_str){keyed.data, len}, &got, NULL),
                         CN_E_STATE_STORE);
    cn_buf_fini(&plain);
    cn_buf_fini(&keyed);
}

/* Makes it what programs before XXH3 wrote. */
static void
make_older(struct cn_buf *buf)
{
    unsigned char *bytes = (unsigned char *)buf->data;

    bytes[4] -= 2;
    crypto_shorthash(bytes + buf->len - 8, bytes, buf->len - 8,
                     (const unsigned char *)"continuo-record");
}

/* A store outlives the program that wrote it: records with the checksum of before are read, and their
 * damage is found. */
static void
older_formats_are_read(void **state)
{
    struct cn_record keyed = full, got;
    const struct cn_record *records[] = {&full, &keyed};

    (void)state;
    memcpy(keyed.key_hash, "0123456789abcdef", CN_KEY_HASH_BYTES);
    for (size_t i = 0; i < 2; i++) {
        struct cn_buf buf;

        encode(records[i], &buf);
        make_older(&buf);
        assert_int_equal(buf.data[4], i + 1);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), 0);
        assert_true(cn_str_eq(got.state, full.state));
        assert_int_equal(cn_record_has_key(&got), i);
        buf.data[120] ^= 1;
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), CN_E_STATE_STORE);
        cn_buf_fini(&buf);
    }
}

/* A torn or flipped byte anywhere is found: state that is silently wrong is worse than none. */
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
    struct cn_record wrong[8], got;

    (void)state;
    for (size_t i = 0; i < 8; i++)
        wrong[i] = full;
    wrong[0].n_chunks = 3;
    wrong[1].n_headers = 0;
    wrong[2].flags |= CN_RECORD_ANSWER_TOO_LARGE;
    wrong[3].flags &= ~(uint32_t)CN_RECORD_HAS_STATE;
    wrong[4].flags &= ~(uint32_t)CN_RECORD_HAS_ANSWER;
    wrong[5].flags |= CN_RECORD_TOMBSTONE;
    wrong[6].generation = 0;
    wrong[7].flags |= 0x100;
    for (size_t i = 0; i < 8; i++) {
        struct cn_buf buf;

        encode(&wrong[i], &buf);
        assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, NULL), CN_E_STATE_STORE);
        cn_buf_fini(&buf);
    }
}

/* A record of a later program is not misread as damage. */
static void
newer_format_is_named(void **state)
{
    struct cn_record got;
    struct cn_error err;
    struct cn_buf buf;

    (void)state;
    encode(&full, &buf);
    buf.data[4] = 5;
    assert_int_equal(cn_record_decode(cn_buf_str(&buf), &got, &err), CN_E_STATE_STORE);
    assert_string_equal(err.message, "record of format 5, this program knows 1 to 4");
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
        cmocka_unit_test(any_damage_is_found),
        cmocka_unit_test(older_formats_are_read),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(newer_format_is_named),
        cmocka_unit_test(tombstone_survives),
        cmocka_unit_test(key_of_the_last_step_survives),
    };

    return cmocka_run_group_tests_name("cache.record", tests, NULL, NULL);
}
