/* kserve/json/json_words_test.c - tests that values for which JSON has no word are read, and
 * written as they were. */
#include "kserve/json/json_words.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static json_t *
load(const char *text)
{
    struct cn_error err;
    json_t *root;

    assert_int_equal(cn_v2_json_load(cn_str_from(text), &root, &err), 0);
    return root;
}

static void
words_are_numbers_and_texts_stay_texts(void **state)
{
    json_t *root =
        load("[NaN, -Infinity, 18446744073709551615, \"\\u0001x\", \"\\u0001\", \"NaN\"]");
    struct cn_str text;
    double number;
    uint64_t wide;

    (void)state;
    assert_true(cn_v2_json_number(json_array_get(root, 0), &number) && isnan(number));
    assert_true(cn_v2_json_number(json_array_get(root, 1), &number) && number == -HUGE_VAL);
    assert_true(cn_v2_json_uint(json_array_get(root, 2), &wide) && wide == UINT64_MAX);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(cn_v2_json_is_string(json_array_get(root, i)), i >= 3);
    text = cn_v2_json_text(json_array_get(root, 3));
    assert_int_equal(text.len, 2);
    assert_memory_equal(text.ptr, "\x01x", 2);
    assert_int_equal(cn_v2_json_text(json_array_get(root, 4)).len, 1);
    json_decref(root);
}

static void
a_value_is_written_as_it_stood(void **state)
{
    static const char *const texts[] = {
        "[NaN,-Infinity,Infinity,18446744073709551615,9223372036854775807,-1,0.5]",
        "{\"\\u0001\":NaN,\"a\":\"\\u0001\",\"b\":[\"\\u0001\\u0001x\",\"\\\"\\\\\",\"\"]}",
        "[[{\"NaN\":\"NaN\"}],true,null,\"\\\\u0001\",\"x\\u0001\"]",
        "[]",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *root = load(texts[i]);
        struct cn_buf out;

        cn_buf_init(&out, 0);
        assert_true(cn_v2_json_write(root, &out));
        assert_int_equal(out.len, strlen(texts[i]));
        assert_memory_equal(out.data, texts[i], out.len);
        cn_buf_fini(&out);
        json_decref(root);
    }
}

static void
no_room_is_told(void **state)
{
    json_t *root = load("[1,2,3]");
    struct cn_buf out;

    (void)state;
    cn_buf_init(&out, 3);
    assert_false(cn_v2_json_write(root, &out));
    cn_buf_fini(&out);
    json_decref(root);
}

/* jansson makes hundreds of bytes of a few. */
static void
too_many_values_are_refused(void **state)
{
    static const struct {
        const char *value;
        size_t bytes; /* of a text that is too much */
    } texts[] = {{"{},", 16u << 20}, {"[],", 26u << 20}};
    struct cn_buf text, some;
    struct cn_error err;
    json_t *root;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cn_buf_init(&some, 0);
        cn_buf_init(&text, 0);
        while (some.len < 1u << 16)
            cn_buf_puts(&some, texts[i].value);
        cn_buf_puts(&text, "[");
        while (text.len < texts[i].bytes)
            cn_buf_append_str(&text, cn_buf_str(&some));
        cn_buf_puts(&text, "1]");
        assert_int_equal(cn_v2_json_load(cn_buf_str(&text), &root, &err), CN_E_BAD_REQUEST);
        assert_null(root);
        cn_buf_fini(&some);
        cn_buf_fini(&text);
    }
}

/* Small and large objects are searched in different ways. */
static void
members_are_found_in_objects_of_any_size(void **state)
{
    json_t *object = json_object(), *list = json_array();
    char key[16];

    (void)state;
    assert_null(cn_v2_json_get(object, "m0"));
    assert_null(cn_v2_json_get(list, "m0"));
    assert_null(cn_v2_json_get(NULL, "m0"));
    for (int n = 0; n < 20; n++) {
        snprintf(key, sizeof(key), "m%d", n);
        json_object_set_new(object, key, json_integer(n));
        for (int i = 0; i <= n; i++) {
            snprintf(key, sizeof(key), "m%d", i);
            assert_int_equal(json_integer_value(cn_v2_json_get(object, key)), i);
        }
        assert_null(cn_v2_json_get(object, "m"));
        assert_null(cn_v2_json_get(object, "m20"));
        assert_null(cn_v2_json_get(object, ""));
    }
    json_decref(object);
    json_decref(list);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_numbers_and_texts_stay_texts),
        cmocka_unit_test(a_value_is_written_as_it_stood),
        cmocka_unit_test(no_room_is_told),
        cmocka_unit_test(too_many_values_are_refused),
        cmocka_unit_test(members_are_found_in_objects_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
