/* management/api/exported_sequence_test.c - tests that an exported sequence is read as it was
 * written, and that damaged ones are refused. */
#include "management/api/exported_sequence.h"

#include <setjmp.h>
#include <sodium/crypto_generichash.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct cn_exported_sequence full = {
    .exported_wall_ms = 1700000000000,
    .model = {"counter", 7},
    .version = {"1.0", 3},
    .sequence_id = {"seq/0", 5},
    .generation = UINT64_C(1) << 60,
    .step = 42,
    .opened_wall_ms = 1600000000000,
    .last_wall_ms = 1650000000000,
    .schema = 3,
    .record = {"\0record\xff", 8},
};

/* Returns the file in memory of exactly its size, for the sanitizer. The caller frees it. */
static struct cn_str
encoded(const struct cn_exported_sequence *envelope)
{
    struct cn_buf buf;
    size_t len;
    char *copy;

    cn_buf_init(&buf, 0);
    cn_exported_sequence_encode(envelope, &buf);
    assert_false(buf.failed);
    len = buf.len;
    copy = malloc(len);
    memcpy(copy, buf.data, len);
    cn_buf_fini(&buf);
    return (struct cn_str){copy, len};
}

/* Like `encoded`, but with the bytes of one field overwritten and the checksum made to fit
 * again. */
static struct cn_str
forged(size_t at, const char *bytes, size_t len)
{
    struct cn_str text = encoded(&full);
    char *to = (char *)text.ptr;

    memcpy(to + at, bytes, len);
    crypto_generichash((unsigned char *)to + text.len - 32, 32, (unsigned char *)to, text.len - 32,
                       NULL, 0);
    return text;
}

static void
refused(struct cn_str bytes, const char *word)
{
    struct cn_error err = {0};
    struct cn_exported_sequence got;

    assert_int_equal(cn_exported_sequence_decode(bytes, &got, &err), CN_E_BAD_REQUEST);
    if (!strstr(err.message, word))
        fail_msg("got: %s", err.message);
}

static void
an_envelope_arrives_whole(void **state)
{
    struct cn_str bytes = encoded(&full);
    struct cn_exported_sequence got;

    (void)state;
    assert_int_equal(cn_exported_sequence_decode(bytes, &got, NULL), 0);
    assert_true(got.exported_wall_ms == full.exported_wall_ms && got.step == 42);
    assert_true(got.generation == full.generation && got.schema == 3);
    assert_true(got.opened_wall_ms == full.opened_wall_ms);
    assert_true(got.last_wall_ms == full.last_wall_ms);
    assert_true(cn_str_eq(got.model, full.model) && cn_str_eq(got.version, full.version));
    assert_true(cn_str_eq(got.sequence_id, full.sequence_id));
    assert_true(cn_str_eq(got.record, full.record));
    free((char *)bytes.ptr);
}

/* A file that is cut anywhere is refused with the reason, and nothing beyond its end is read. */
static void
a_cut_envelope_is_refused(void **state)
{
    struct cn_str bytes = encoded(&full);

    (void)state;
    for (size_t len = 0; len < bytes.len; len++) {
        char *copy = malloc(len ? len : 1);

        memcpy(copy, bytes.ptr, len);
        refused((struct cn_str){copy, len}, len < 8 ? "not an exported sequence" : "truncated");
        free(copy);
    }
    free((char *)bytes.ptr);
}

/* A flipped bit anywhere is found, even in bytes that no decoder reads. */
static void
an_altered_envelope_is_refused(void **state)
{
    struct cn_str bytes = encoded(&full);
    char *at = (char *)bytes.ptr;

    (void)state;
    for (size_t i = 0; i < bytes.len; i++) {
        at[i] ^= 4;
        refused(bytes, "");
        at[i] ^= 4;
    }
    at[bytes.len - 40] ^= 4;
    refused(bytes, "changed after the export");
    free(at);
}

static void
other_things_are_called_by_their_name(void **state)
{
    struct cn_str bytes = encoded(&full);
    struct cn_str newer = forged(8, "\2", 1), damaged = forged(10, "\1", 1);
    struct cn_str without_id = forged(28 + 9 + 5, "\0\0", 2);
    struct cn_str lies = forged(28, "\xff\xff", 2);
    char *more = malloc(bytes.len + 1);

    (void)state;
    refused(CN_STR("{\"state\": 1}"), "not an exported sequence");
    refused(CN_STR("CNSEQ\n\x1a and more of it"),
            "not an exported sequence"); /* the line ends were changed */
    refused(newer, "format 2");
    refused(damaged, "damaged");
    refused(without_id, "contradict each other");
    refused(lies, "contradict each other");
    memcpy(more, bytes.ptr, bytes.len);
    refused((struct cn_str){more, bytes.len + 1}, "followed by 1 more bytes");
    free(more);
    free((char *)bytes.ptr);
    free((char *)newer.ptr);
    free((char *)damaged.ptr);
    free((char *)without_id.ptr);
    free((char *)lies.ptr);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_envelope_arrives_whole),
        cmocka_unit_test(a_cut_envelope_is_refused),
        cmocka_unit_test(an_altered_envelope_is_refused),
        cmocka_unit_test(other_things_are_called_by_their_name),
    };

    return cmocka_run_group_tests_name("management.envelope", tests, NULL, NULL);
}
