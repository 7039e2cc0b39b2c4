/* management/repository/model_index_test.c - tests the reader of an http(s) model store's index. */
#include "management/repository/model_index.h"

#include <string.h>

#include "core/test_support.h"

#define DIGEST "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff"

static void
files_and_digests_are_read(void **state)
{
    struct cn_model_index index;
    struct cn_error err;

    (void)state;
    assert_int_equal(
        cn_model_index_parse(CN_STR("{\"models\": [\"a.mar\", {\"file\": \"sub/b.tar.gz\", "
                                    "\"sha256\": \"" DIGEST "\"}], \"more\": 1}"),
                             &index, &err),
        0);
    assert_int_equal(index.n, 2);
    assert_string_equal(index.entries[0].file, "a.mar");
    assert_string_equal(index.entries[0].digest, "");
    assert_string_equal(index.entries[1].file, "sub/b.tar.gz");
    assert_string_equal(index.entries[1].digest,
                        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    cn_model_index_fini(&index);
}

/* An index must not lead out of the store, whatever its author wrote. */
static void
bad_indexes_are_refused_with_the_entry(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "it is not JSON"},
        {"{\"models\": [], \"models\": []}", "it is not JSON"},
        {"[]", "it must be an object with the array \"models\""},
        {"{\"models\": [1]}", "entry 1 must be a file name or an object"},
        {"{\"models\": [\"a.mar\", {}]}", "entry 2 must be a file name or an object"},
        {"{\"models\": [\"\"]}", "not a path below the index"},
        {"{\"models\": [\"/a.mar\"]}", "not a path below the index"},
        {"{\"models\": [\"x/../a.mar\"]}", "not a path below the index"},
        {"{\"models\": [\"http://h/a.mar\"]}", "not a path below the index"},
        {"{\"models\": [\"a\\n.mar\"]}", "control character"},
        {"{\"models\": [\"a.exe\"]}", "not the name of an archive"},
        {"{\"models\": [{\"file\": \"a.mar\", \"sha256\": 1}]}", "not 64 hexadecimal digits"},
        {"{\"models\": [{\"file\": \"a.mar\", \"sha256\": \"" DIGEST "0\"}]}",
         "not 64 hexadecimal digits"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cn_model_index index;
        struct cn_error err;

        assert_int_equal(cn_model_index_parse(cn_str_from(cases[i].text), &index, &err),
                         CN_E_CONFIG);
        if (!strstr(err.message, cases[i].why))
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_int_equal(index.n, 0);
        assert_null(index.entries);
    }
}

static void
a_digest_file_may_name_its_archive(void **state)
{
    char digest[65];

    (void)state;
    assert_true(cn_digest_parse(CN_STR(DIGEST "  counter.mar\n"), digest));
    assert_true(cn_digest_parse(CN_STR(DIGEST), digest));
    assert_false(cn_digest_parse(CN_STR(DIGEST "0"), digest));
    assert_false(cn_digest_parse(CN_STR("not a digest"), digest));
    assert_false(cn_digest_parse(CN_STR(""), digest));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_digests_are_read),
        cmocka_unit_test(bad_indexes_are_refused_with_the_entry),
        cmocka_unit_test(a_digest_file_may_name_its_archive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
