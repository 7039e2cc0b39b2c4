/* kserve/json/envelope_json_test.c - tests what a service envelope accepts, and what it
 * writes. */
#include "kserve/json/envelope_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each instance keeps its JSON, whatever its type is. */
static void
instances_are_taken_out(void **state)
{
    static const char *const expected[] = {"1", "\"a\"", "{\"b\":[2,3]}", "null"};
    json_t *instances = cn_envelope_open(
        CN_STR("{\"instances\": [1, \"a\", {\"b\": [2, 3]}, null], \"more\": 0}"), 4, NULL);

    (void)state;
    assert_non_null(instances);
    assert_int_equal(json_array_size(instances), 4);
    for (uint32_t i = 0; i < 4; i++) {
        char *text = cn_envelope_instance_text(instances, i);

        assert_string_equal(text, expected[i]);
        free(text);
    }
    json_decref(instances);
}

static void
refused(const char *body, const char *message)
{
    struct cn_error err = {0};

    assert_null(cn_envelope_open(cn_str_from(body), 2, &err));
    assert_int_equal(err.code, CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, message));
}

/* A message says what is wrong with the body, and names the limit. */
static void
other_bodies_are_refused(void **state)
{
    (void)state;
    refused("", "not valid JSON");
    refused("[1]", "an array \"instances\"");
    refused("{\"instances\": 1}", "an array \"instances\"");
    refused("{\"instances\": [], \"instances\": [1]}", "duplicate");
    refused("{\"instances\": [1, 2, 3]}", "3 instances; the limit is 2");
}

/* An answer becomes one JSON value. One that is neither JSON nor text fails the request. */
static void
answers_become_json(void **state)
{
    struct cn_error err = {0};
    struct cn_buf out;

    (void)state;
    cn_buf_init(&out, 0);
    assert_int_equal(cn_envelope_put_answer(CN_STR("{\"a\": 1}"), true, &out, NULL), 0);
    assert_int_equal(cn_envelope_put_answer(CN_STR("a \"b\"\n"), false, &out, NULL), 0);
    assert_int_equal(cn_buf_append(&out, "", 1), 0);
    assert_string_equal(out.data, "{\"a\": 1}\"a \\\"b\\\"\\n\"");
    assert_int_equal(cn_envelope_put_answer(CN_STR("{"), true, &out, &err), CN_E_HANDLER_FAILED);
    assert_int_equal(cn_envelope_put_answer(CN_STR("\xff"), false, &out, &err),
                     CN_E_HANDLER_FAILED);
    cn_buf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_are_taken_out),
        cmocka_unit_test(other_bodies_are_refused),
        cmocka_unit_test(answers_become_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
