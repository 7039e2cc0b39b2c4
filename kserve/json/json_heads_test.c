/* kserve/json/json_heads_test.c - tests that a request with a known head is read as if its head
 * were unknown, and that it has nothing of the request before it. */
#include "kserve/json/json_heads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/tuning/tuning.h"
#include "kserve/json/test_request.h"

static const struct cn_v2_limits limits = {.json_bytes = 1 << 20};

static int
read_body(const char *json, const char *tail, struct cn_arena *arena, struct cn_v2_request *out,
          struct cn_error *err)
{
    const size_t json_len = strlen(json), tail_len = strlen(tail);
    char *body = cn_arena_alloc(arena, json_len + tail_len + 1);

    memcpy(body, json, json_len);
    memcpy(body + json_len, tail, tail_len);
    return cn_v2_read((struct cn_str){body, json_len + tail_len}, json_len, "m", &limits, arena,
                      out, err);
}

static int
read_unknown(const char *json, const char *tail, struct cn_arena *arena, struct cn_v2_request *out,
             struct cn_error *err)
{
    const uint64_t before = cn_tuning_bits;
    int rc;

    cn_tuning_set(before & ~(UINT64_C(1) << CN_TUNING_JSON_HEADS));
    rc = read_body(json, tail, arena, out, err);
    cn_tuning_set(before);
    return rc;
}

static void
holds_no_memory(const struct cn_v2_request *request)
{
    for (uint32_t i = 0; request->windows && i < request->n_inputs; i++)
        assert_null(request->windows[i].held);
    for (uint32_t i = 0; i < request->n_outputs; i++)
        assert_null(request->outputs[i].window.held);
}

/* Reads a request as it comes, and as if its head were unknown; the results must be the same. */
static int
check(const char *json, const char *tail)
{
    struct cn_v2_request known, unknown;
    struct cn_error why, expected;
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = read_unknown(json, tail, &arena, &unknown, &expected);
    assert_int_equal(read_body(json, tail, &arena, &known, &why), rc);
    if (rc == 0) {
        assert_true(test_same_request(&known, &unknown));
        holds_no_memory(&known);
    } else {
        assert_string_equal(why.message, expected.message);
    }
    /* What is done to the request later must not reach the next one. */
    for (uint32_t i = 0; rc == 0 && i < known.n_inputs; i++) {
        known.inputs[i].shape[0] = -7;
        known.inputs[i].data = CN_STR("changed");
        if (known.windows)
            known.windows[i].held = (void *)(uintptr_t)1;
    }
    cn_arena_fini(&arena);
    return rc;
}

static bool
is_known(const char *head)
{
    struct cn_v2_request request;
    struct cn_arena arena;
    bool known;

    cn_arena_init(&arena);
    known = cn_v2_head_find(cn_str_from(head), &arena, &request) != NULL;
    cn_arena_fini(&arena);
    return known;
}

/* --- tests */

#define BINARY(name, bytes)                                                                        \
    "{\"name\":\"" name "\",\"datatype\":\"UINT8\",\"shape\":[1,2],"                               \
    "\"parameters\":{\"binary_data_size\":" bytes "}}"
#define NUMBERS(name, data)                                                                        \
    "{\"name\":\"" name "\",\"datatype\":\"INT16\",\"shape\":[2],\"data\":" data "}"
#define SHARED(name, region)                                                                       \
    "{\"name\":\"" name "\",\"datatype\":\"UINT8\",\"shape\":[2],\"parameters\":"                  \
    "{\"shared_memory_region\":\"" region "\",\"shared_memory_byte_size\":2,"                      \
    "\"shared_memory_offset\":3}}"
#define INPUTS(list) "\"inputs\":[" list "]"
#define OUTPUTS                                                                                    \
    "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}},"                         \
    "{\"name\":\"z\",\"parameters\":{\"classification\":3}},"                                      \
    "{\"name\":\"s\",\"parameters\":{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":"  \
    "8}}]"

static void
a_known_request_is_read_as_an_unknown_one(void **state)
{
    static const struct {
        const char *json, *tail;
    } requests[] = {
        {"{" INPUTS(BINARY("x", "2")) "}", "ab"},
        {"{" INPUTS(BINARY("x", "2")) "}", "cd"},
        {"{" INPUTS(BINARY("x", "2") "," BINARY("w", "3")) "," OUTPUTS "}", "abcde"},
        {"{\"id\":\"one\"," INPUTS(BINARY("x", "2")) "}", "ab"},
        {"{\"id\":\"two\"," INPUTS(BINARY("x", "2")) "}", "ab"},
        {"{\"parameters\":{\"sequence_id\":7,\"sequence_start\":true,\"colour\":\"red\",\"n\":5}"
         "," INPUTS(BINARY("x", "2")) "}",
         "ab"},
        {"{\"parameters\":{\"sequence_id\":8,\"sequence_start\":true,\"colour\":\"red\",\"n\":5}"
         "," INPUTS(BINARY("x", "2")) "}",
         "cd"},
        {"{\"parameters\":{\"sequence_id\":\"s\",\"sequence_step\":3,\"sequence_end\":true}"
         "," INPUTS(BINARY("x", "2")) "}",
         "cd"},
        {"{\"parameters\":{\"sequence_id\":\"\",\"sequence_step\":4,\"sequence_end\":true}," INPUTS(
             BINARY("x", "2")) "}",
         "cd"},
        {"{\"parameters\":{\"sequence_id\":0,\"timeout\":9,\"priority\":1,"
         "\"binary_data_output\":true}," INPUTS(BINARY("x", "2")) "}",
         "cd"},
        {"{\"id\":\"a\"," INPUTS(NUMBERS("x", "[1,2]")) "}", ""},
        {"{\"id\":\"b\"," INPUTS(NUMBERS("x", "[3,-4]")) "}", ""},
        {"{\"id\":\"\"," INPUTS(NUMBERS("x", "[0,0]")) "}", ""},
        {"{" INPUTS(NUMBERS("x", "[1,2]") "," NUMBERS("w", "[[3],[4]]")) "," OUTPUTS "}", ""},
        {"{" INPUTS(NUMBERS("x", "[1,2]") "," BINARY("w", "2")) "}", "ab"},
        {"{" INPUTS(SHARED("x", "r") "," BINARY("w", "2")) "}", "ab"},
        {"{" INPUTS(SHARED("x", "r") "," BINARY("w", "2")) "}", "cd"},
        {"{\"id\":\"c\"," INPUTS(SHARED("x", "r") "," NUMBERS("w", "[5,6]")) "}", ""},
        {"{" INPUTS("") "," OUTPUTS "}", ""},
    };

    (void)state;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
            assert_int_equal(check(requests[i].json, requests[i].tail), 0);
    assert_true(is_known("{" INPUTS(BINARY("x", "2")) "}"));
    assert_true(is_known("{\"id\":\"\"," INPUTS(NUMBERS("x", "[0]")) "}"));
    assert_true(is_known("{\"parameters\":{\"sequence_id\":\"\",\"sequence_step\":0,"
                         "\"sequence_end\":true}," INPUTS(BINARY("x", "2")) "}"));
}

/* The data may be wrong although the head is known. */
static void
data_that_do_not_fit_a_known_head_are_refused(void **state)
{
    static const char binary[] = "{" INPUTS(BINARY("x", "2")) "}";

    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(check(binary, "ab"), 0);
        assert_int_equal(check(binary, "a"), CN_E_BAD_REQUEST);
        assert_int_equal(check(binary, "abc"), CN_E_BAD_REQUEST);
        assert_int_not_equal(check(binary, ""), 0);
        assert_int_equal(check("{" INPUTS(NUMBERS("x", "[1,2]")) "}", ""), 0);
        assert_int_not_equal(check("{" INPUTS(NUMBERS("x", "[1]")) "}", ""), 0);
        assert_int_not_equal(check("{" INPUTS(NUMBERS("x", "[1.5,2]")) "}", ""), 0);
        assert_int_not_equal(check("{" INPUTS(NUMBERS("x", "[1,2]")) "}", "ab"), 0);
    }
}

/* A document may have the words that stand for what was cut out of another one. */
static void
a_head_is_not_taken_for_the_document_of_the_same_bytes(void **state)
{
    static const char *const pairs[][2] = {
        /* what has these bytes after something was cut out, and the bytes themselves */
        {"{\"id\":\"abc\"," INPUTS(SHARED("x", "r")) "}",
         "{\"id\":\"\"," INPUTS(SHARED("x", "r")) "}"},
        {"{" INPUTS("{\"name\":\"x\",\"datatype\":\"INT16\",\"shape\":[1],\"data\":[77]}") "}",
         "{" INPUTS("{\"name\":\"x\",\"datatype\":\"INT16\",\"shape\":[1],\"data\":[0]}") "}"},
        {"{" INPUTS(SHARED("x", "r")) ",\"outputs\":[{\"name\":\"y\",\"data\":[5]}]}",
         "{" INPUTS(SHARED("x", "r")) ",\"outputs\":[{\"name\":\"y\",\"data\":[0]}]}"},
    };

    (void)state;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
            for (int k = 0; k < 4; k++)
                check(pairs[i][k % 2], k < 2 ? "" : "ab"); /* nobody takes the tail */
    assert_int_equal(check(pairs[1][0], ""), 0);
}

/* There are many more heads than places in the cache, and each one is read correctly. */
static void
heads_that_meet_in_one_place_are_told_apart(void **state)
{
    char text[256];

    (void)state;
    for (int i = 0; i < 3 * 20 * CN_V2_HEADS; i++) {
        snprintf(text, sizeof(text), "{\"id\":\"%d\"," INPUTS(BINARY("x", "2")) "}",
                 i % (20 * CN_V2_HEADS));
        assert_int_equal(check(text, "ab"), 0);
    }
}

static void
what_is_no_request_is_refused_each_time(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(check("{\"id\":", "ab"), CN_E_INTERNAL);
        assert_int_equal(check("[]", "ab"), CN_E_INTERNAL);
        assert_int_equal(check("{\"id\":7," INPUTS(BINARY("x", "2")) "}", "ab"), CN_E_INTERNAL);
    }
}

static void
heads_that_are_long_or_have_data_are_not_kept(void **state)
{
    static const char uncut[] =
        "{" INPUTS(BINARY("x", "2") ",{\"name\":\"w\",\"datatype\":\"BOOL\",\"shape\":[2],"
                                    "\"data\":[true,false]}") "}";
    static char text[CN_V2_HEAD_MAX + 256];

    (void)state;
    assert_int_equal(check(uncut, "ab"), 0);
    assert_false(is_known(uncut));
    memset(text, ' ', sizeof(text) - 1);
    memcpy(text, "{" INPUTS(BINARY("x", "2")) "}", sizeof("{" INPUTS(BINARY("x", "2")) "}") - 1);
    assert_int_equal(check(text, "ab"), 0);
    assert_false(is_known(text));
    text[CN_V2_HEAD_MAX] = '\0';
    assert_int_equal(check(text, "ab"), 0);
    assert_true(is_known(text));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_request_is_read_as_an_unknown_one),
        cmocka_unit_test(data_that_do_not_fit_a_known_head_are_refused),
        cmocka_unit_test(a_head_is_not_taken_for_the_document_of_the_same_bytes),
        cmocka_unit_test(heads_that_meet_in_one_place_are_told_apart),
        cmocka_unit_test(what_is_no_request_is_refused_each_time),
        cmocka_unit_test(heads_that_are_long_or_have_data_are_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
