/* kserve/json/json_heads_test.c - tests that a head which comes again is not parsed again, and that
 * no other head is taken for it. */
#include "kserve/json/json_heads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
the_same_bytes_give_the_same_document(void **state)
{
    char text[] = "{\"id\":\"a\"}";
    struct cn_error err;
    json_t *first, *second;

    (void)state;
    assert_int_equal(cn_v2_json_head(cn_str_from(text), &first, &err), 0);
    assert_int_equal(cn_v2_json_head(CN_STR("{\"id\":\"a\"}"), &second, &err), 0);
    assert_ptr_equal(first, second);
    json_decref(second);
    text[7] = 'b'; /* same length, at the same address */
    assert_int_equal(cn_v2_json_head(cn_str_from(text), &second, &err), 0);
    assert_string_equal(json_string_value(json_object_get(second, "id")), "b");
    json_decref(second);
    assert_string_equal(json_string_value(json_object_get(first, "id")), "a");
    json_decref(first);
}

/* There are many more heads than places in the cache, and each one is read correctly. */
static void
heads_that_meet_in_one_place_are_told_apart(void **state)
{
    char text[64];
    struct cn_error err;
    json_t *root;

    (void)state;
    for (int i = 0; i < 3 * 20 * CN_V2_HEADS; i++) {
        int n = i % (20 * CN_V2_HEADS);

        snprintf(text, sizeof(text), "{\"parameters\":{\"sequence_id\":%d}}", n);
        assert_int_equal(cn_v2_json_head(cn_str_from(text), &root, &err), 0);
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(root, "parameters"), "sequence_id")),
            n);
        json_decref(root);
    }
}

static void
what_is_no_json_is_refused_each_time(void **state)
{
    struct cn_error err;
    json_t *root;

    (void)state;
    assert_int_equal(cn_v2_json_head(CN_STR("{\"id\":"), &root, &err), CN_E_INTERNAL);
    assert_int_equal(cn_v2_json_head(CN_STR("{\"id\":"), &root, &err), CN_E_INTERNAL);
    assert_int_equal(cn_v2_json_head(CN_STR(""), &root, &err), CN_E_INTERNAL);
}

static void
a_long_head_is_parsed_each_time(void **state)
{
    static char text[CN_V2_HEAD_MAX + 32];
    struct cn_error err;
    json_t *first, *second;

    (void)state;
    memset(text, ' ', sizeof(text) - 1);
    memcpy(text, "{}", 2);
    assert_int_equal(cn_v2_json_head(cn_str_from(text), &first, &err), 0);
    assert_int_equal(cn_v2_json_head(cn_str_from(text), &second, &err), 0);
    assert_ptr_not_equal(first, second);
    json_decref(first);
    json_decref(second);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_give_the_same_document),
        cmocka_unit_test(heads_that_meet_in_one_place_are_told_apart),
        cmocka_unit_test(what_is_no_json_is_refused_each_time),
        cmocka_unit_test(a_long_head_is_parsed_each_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
