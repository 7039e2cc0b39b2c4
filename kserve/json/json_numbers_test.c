/* kserve/json/json_numbers_test.c - tests that the fast path reads the same numbers as a JSON
 * document would. */
#include "kserve/json/json_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"
#include "kserve/request.h"

static const enum cn_datatype types[] = {
    CN_DATATYPE_BOOL, CN_DATATYPE_UINT8, CN_DATATYPE_UINT16, CN_DATATYPE_UINT32, CN_DATATYPE_UINT64,
    CN_DATATYPE_INT8, CN_DATATYPE_INT16, CN_DATATYPE_INT32,  CN_DATATYPE_INT64,  CN_DATATYPE_FP16,
    CN_DATATYPE_FP32, CN_DATATYPE_FP64,  CN_DATATYPE_BF16,   CN_DATATYPE_BYTES};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* Reads `array` as a JSON document. Returns false if it is refused. */
static bool
by_document(const char *array, enum cn_datatype type, int64_t n, struct cn_arena *arena,
            struct cn_str *out)
{
    struct cn_tensor tensor = {.name = CN_STR("x"), .type = type, .rank = 1, .shape = {n}};
    struct cn_error err;
    json_t *root;
    int rc;

    if (cn_v2_json_load(cn_str_from(array), &root, &err))
        return false;
    rc = cn_v2_values(root, 1 << 20, arena, &tensor, &err);
    json_decref(root);
    *out = tensor.data;
    return rc == 0;
}

/* Compares the two ways. The fast path may refuse an array, but must never read it differently.
 * Returns 1 if it has read the array. */
static int
same(const char *array, enum cn_datatype type, int64_t n)
{
    struct cn_str document = {NULL, 0};
    struct cn_arena arena;
    char room[16 * 64];
    int read;

    cn_arena_init(&arena);
    read = cn_v2_numbers(cn_str_from(array), type, (uint64_t)n, room);
    if (read) {
        assert_true(by_document(array, type, n, &arena, &document));
        assert_int_equal(document.len, (size_t)n * cn_datatype_bytes(type));
        assert_memory_equal(document.ptr, room, document.len);
    }
    cn_arena_fini(&arena);
    return read;
}

static void
what_is_in_order_is_read_as_the_document_has_it(void **state)
{
    static const struct {
        const char *array;
        int64_t n;
        bool reals;
    } cases[] = {
        {"[1]", 1, false},
        {"[0,-0]", 2, false},
        {"[ 1 ,\t2,\r\n3 ]", 3, false},
        {"[[1,2],[3,[4]]]", 4, false},
        {"[[],[[]],7]", 1, false},
        {"[127,128,255,256,65535,65536]", 6, false},
        {"[999999999999999999]", 1, false},
        {"[0.5,1.5,0.1,0.2,0.30000000000000004,1e-7,123.456e3]", 7, true},
        {"[-0.0,-0,0.0,-0.0e5]", 4, true},
        {"[9007199254740992.0,9007199254740993.0,9007199254740991.0]", 3, true},
        {"[1e22,1e23,1.5e22,8.5e-23,1E+5,1e05]", 6, true},
        {"[2.2250738585072014e-308,4.9e-324,1e-400,1.7976931348623157e308]", 4, true},
        {"[0.1000000000000000055511151231257827,3.14159265358979323846264338327950288]", 2, true},
        {"[16777217.0,16777217,3.4028236e38,1e39]", 4, true},
        {"[0.00000000000000000000000000000000000000000000000000000000012]", 1, true},
    };
    int read = 0, wanted = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t t = 0; t < N_TYPES; t++) {
            bool real = types[t] == CN_DATATYPE_FP32 || types[t] == CN_DATATYPE_FP64;

            read += same(cases[i].array, types[t], cases[i].n);
            wanted += real;
            wanted += !cases[i].reals && cn_datatype_bytes(types[t]) && !real &&
                      types[t] != CN_DATATYPE_BOOL && types[t] != CN_DATATYPE_FP16 &&
                      types[t] != CN_DATATYPE_BF16;
        }
    assert_int_equal(read, wanted); /* the fast path has read all of them */
}

static void
what_is_not_in_order_is_left_to_the_document(void **state)
{
    static const char *const arrays[] = {
        "[]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,,2]",
        "[+1]",
        "[.5]",
        "[5.]",
        "[1e]",
        "[1e+]",
        "[-]",
        "[--1]",
        "[01]",
        "[1.2.3]",
        "[1e5e5]",
        "[1e400]",
        "[-1e400]",
        "[1e99999]",
        "[1][2]",
        "[[1]2]",
        "[1[2]]",
        "[1,[2]",
        "[0x1]",
        "[1e1000000000000]",
        "[12345678901234567890]",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        for (size_t t = 0; t < N_TYPES; t++)
            for (int64_t n = 1; n <= 3; n++) {
                struct cn_v2_cuts cuts;
                char text[128];

                snprintf(text, sizeof(text), "{\"inputs\":[{\"data\":%s}]}", arrays[i]);
                if (cn_v2_cut(cn_str_from(text), &cuts) && cuts.at[0].len == strlen(arrays[i]))
                    assert_false(same(arrays[i], types[t], n)); /* all brackets are balanced */
            }
    assert_false(same("[1,2]", CN_DATATYPE_INT32, 1));
    assert_false(same("[1,2]", CN_DATATYPE_INT32, 3));
    assert_false(same("[1.0]", CN_DATATYPE_INT32, 1));
    assert_false(same("[-1]", CN_DATATYPE_UINT32, 1));
}

/* A million numbers of all lengths are read as the C library reads them. */
static void
doubles_are_the_nearest_ones(void **state)
{
    uint64_t random = 0x9E3779B97F4A7C15;
    double expected, got;
    char text[80];

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        snprintf(text, sizeof(text), "[%.*ge%d]", 1 + (int)(random >> 60),
                 (double)(int64_t)random * 1e-12, (int)(random >> 32 & 63) - 32);
        if (strchr(strchr(text, 'e') + 1, 'e')) /* the number already had an exponent */
            continue;
        expected = strtod(text + 1, NULL);
        assert_true(cn_v2_numbers(cn_str_from(text), CN_DATATYPE_FP64, 1, (char *)&got));
        assert_memory_equal(&got, &expected, sizeof(got));
    }
}

static void
only_data_of_inputs_and_fields_are_cut_out(void **state)
{
    static const struct {
        const char *text, *head; /* head is NULL if the request must be read as one document */
    } cases[] = {
        {"{\"inputs\":[{\"data\":[1,2]}]}", "{\"inputs\":[{\"data\":[0]}]}"},
        {"{\"inputs\":[{\"data\" :\n[1,[2]] },{\"data\":[]}]}",
         "{\"inputs\":[{\"data\" :\n[0] },{\"data\":[1]}]}"},
        {"{\"inputs\":[{\"shape\":[3],\"data\":[7,8,9]}]}",
         "{\"inputs\":[{\"shape\":[3],\"data\":[0]}]}"},
        {"{\"inputs\":[{\"data\":[1,\"2\"]}]}", NULL},
        {"{\"inputs\":[{\"data\":[true]}]}", NULL},
        {"{\"inputs\":[{\"data\":[NaN]}]}", NULL},
        {"{\"inputs\":[{\"data\":[1]},{\"data\":[\"a\"]}]}", NULL},
        {"{\"inputs\":[{\"data\":[1,2}]}", NULL},
        {"{\"inputs\":[{\"data\":[1", NULL},
        {"{\"inputs\":[{\"data\"", NULL},
        {"{\"inputs\":[{\"dat\\u0061\":[0]}],\"x\":[{\"data\":[7]}]}", NULL},
        {"{\"data\":[1]}", NULL},
        {"{\"inputs\":[{\"p\":{\"data\":[1]}}]}", NULL},
        {"{\"inputs\":[{\"data\":1}]}", NULL},
        {"{\"inputs\":[{\"data\"::[1]}]}", NULL},
        {"{\"id\":\"abc\",\"parameters\":{\"sequence_id\": 12 ,\"sequence_step\":3}}",
         "{\"id\":\"\",\"parameters\":{\"sequence_id\": 0 ,\"sequence_step\":0}}"},
        {"{\"parameters\":{\"sequence_id\":\"a b\",\"x\":1}}",
         "{\"parameters\":{\"sequence_id\":\"\",\"x\":1}}"},
        {"{\"id\":7}", NULL},
        {"{\"id\":\"\xc3\xa4\"}", NULL},
        {"{\"id\":\"a\nb\"}", NULL},
        {"{\"id\":\"a", NULL},
        {"{\"parameters\":{\"id\":\"a\"}}", NULL},
        {"{\"sequence_id\":7}", NULL},
        {"{\"parameters\":{\"sequence_step\":\"1\"}}", NULL},
        {"{\"parameters\":{\"sequence_id\":1,\"sequence_id\":2}}", NULL},
        {"{\"p\":{\"sequence_id\":1},\"parameters\":{\"sequence_id\":true}}", NULL},
        {"{\"parameters\":{\"sequence_id\":-1}}", NULL},
        {"{\"parameters\":{\"sequence_id\":01}}", NULL},
        {"{\"parameters\":{\"sequence_id\":1.0}}", NULL},
        {"{\"parameters\":{\"sequence_id\":1", NULL},
        {"{\"parameters\":{\"sequence_id\":1234567890123456789}}", NULL},
        {"", NULL},
    };
    struct cn_v2_cuts cuts;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool cut = cn_v2_cut(cn_str_from(cases[i].text), &cuts);

        assert_int_equal(cut, cases[i].head != NULL);
        if (cut)
            assert_true(cn_str_eq(cn_v2_cut_head(&cuts), cn_str_from(cases[i].head)));
    }
}

static void
a_head_that_is_too_long_or_has_too_many_arrays_is_not_cut(void **state)
{
    char text[64 * 40], *at;
    struct cn_v2_cuts cuts;

    (void)state;
    for (int n = 1; n < 40; n++) {
        at = text + sprintf(text, "{\"inputs\":[");
        for (int i = 0; i < n; i++)
            at += sprintf(at, "%s{\"data\":[%d]}", i ? "," : "", 100 + i);
        strcpy(at, "]}");
        assert_int_equal(cn_v2_cut(cn_str_from(text), &cuts), n <= CN_V2_CUTS_MAX);
        if (n <= CN_V2_CUTS_MAX)
            assert_int_equal(cuts.n, n);
    }
    snprintf(text, sizeof(text), "{\"inputs\":[{\"data\":[1]}]%*s}", CN_V2_HEAD_MAX - 25, "");
    assert_true(cn_v2_cut(cn_str_from(text), &cuts));
    snprintf(text, sizeof(text), "{\"inputs\":[{\"data\":[1]}]%*s}", CN_V2_HEAD_MAX - 24, "");
    assert_false(cn_v2_cut(cn_str_from(text), &cuts));
}

/* A request that comes again with other numbers has the same head. A mistake gets the message of
 * the document. */
static void
requests_are_read_by_their_heads(void **state)
{
    const struct cn_v2_limits limits = {.json_bytes = 4096};
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    char text[256];

    (void)state;
    for (int i = 0; i < 3; i++) {
        float got[2];

        snprintf(text, sizeof(text),
                 "{\"id\":\"a\",\"inputs\":[{\"name\":\"F\",\"datatype\":\"FP32\",\"shape\":[2],"
                 "\"data\":[%d,0.5]},{\"name\":\"I\",\"data\":[[%d]],\"datatype\":\"INT8\","
                 "\"shape\":[1,1]}]}",
                 i, 10 + i);
        cn_arena_init(&arena);
        assert_int_equal(
            cn_v2_read(cn_str_from(text), strlen(text), "m", &limits, &arena, &request, &err), 0);
        assert_int_equal(request.n_inputs, 2);
        assert_int_equal(request.inputs[0].data.len, sizeof(got));
        memcpy(got, request.inputs[0].data.ptr, sizeof(got));
        assert_true(got[0] == (float)i && got[1] == 0.5f);
        assert_int_equal(request.inputs[1].data.len, 1);
        assert_int_equal(request.inputs[1].data.ptr[0], 10 + i);
        cn_arena_fini(&arena);
    }
    cn_arena_init(&arena);
    strcpy(text,
           "{\"inputs\":[{\"name\":\"F\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[1]}]}");
    assert_int_equal(
        cn_v2_read(cn_str_from(text), strlen(text), "m", &limits, &arena, &request, &err),
        CN_E_INTERNAL);
    assert_string_equal(err.message,
                        "Failed to parse 'data' field: shape does not match true shape");
    cn_arena_fini(&arena);
}

/* Requests of many sequences have one head, and each is read with its own ids. */
static void
fields_are_those_of_their_request(void **state)
{
    const struct cn_v2_limits limits = {.json_bytes = 4096};
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    char text[256], id[16];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        snprintf(id, sizeof(id), "r%u", i);
        snprintf(text, sizeof(text),
                 "{\"inputs\":[],\"id\":\"%s\",\"parameters\":{\"sequence_step\":%u,"
                 "\"sequence_id\":%s%u%s,\"mine\":7}}",
                 id, 9 + i, i % 2 ? "\"s" : "", i, i % 2 ? "\"" : "");
        cn_arena_init(&arena);
        assert_int_equal(
            cn_v2_read(cn_str_from(text), strlen(text), "m", &limits, &arena, &request, &err), 0);
        assert_true(cn_str_eq(request.id, cn_str_from(id)));
        assert_true(request.has_step);
        assert_int_equal(request.step, 9 + i);
        assert_int_equal(request.n_params, 1);
        assert_int_equal(request.sequence_kind, i == 0  ? CN_V2_NO_ID
                                                : i % 2 ? CN_V2_ID_TEXT
                                                        : CN_V2_ID_NUMBER);
        assert_int_equal(request.sequence_number, i % 2 ? 0 : i);
        assert_true(cn_str_eq(request.sequence_text,
                              i % 2 ? (struct cn_str){i == 1 ? "s1" : "s3", 2} : CN_STR("")));
        cn_arena_fini(&arena);
    }
}

/* A field in another object is not the request's. */
static void
a_field_that_nobody_takes_is_held_against_the_document(void **state)
{
    const struct cn_v2_limits limits = {.json_bytes = 4096};
    const struct cn_str text = CN_STR("{\"inputs\":[],\"else\":{\"sequence_id\":5}}"),
                        refused = CN_STR("{\"inputs\":[],\"parameters\":{\"sequence_id\":-5}}");
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_read(text, text.len, "m", &limits, &arena, &request, &err), 0);
    assert_int_equal(request.sequence_kind, CN_V2_NO_ID);
    assert_int_equal(cn_v2_read(refused, refused.len, "m", &limits, &arena, &request, &err),
                     CN_E_INTERNAL);
    assert_non_null(strstr(err.message, "Unable to parse 'sequence_id'"));
    cn_arena_fini(&arena);
}

/* The server ignores the data of a requested output, so nothing else would notice that it is not
 * JSON. */
static void
an_array_that_nobody_takes_is_held_against_the_grammar(void **state)
{
    const struct cn_v2_limits limits = {.json_bytes = 4096};
    struct cn_v2_request request;
    struct cn_arena arena;
    struct cn_error err;
    const struct cn_str text =
        CN_STR("{\"inputs\":[],\"outputs\":[{\"name\":\"F\",\"data\":[1,,2]}]}");

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_read(text, text.len, "m", &limits, &arena, &request, &err),
                     CN_E_INTERNAL);
    assert_non_null(strstr(err.message, "failed to parse the request JSON buffer"));
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_order_is_read_as_the_document_has_it),
        cmocka_unit_test(what_is_not_in_order_is_left_to_the_document),
        cmocka_unit_test(doubles_are_the_nearest_ones),
        cmocka_unit_test(only_data_of_inputs_and_fields_are_cut_out),
        cmocka_unit_test(a_head_that_is_too_long_or_has_too_many_arrays_is_not_cut),
        cmocka_unit_test(requests_are_read_by_their_heads),
        cmocka_unit_test(fields_are_those_of_their_request),
        cmocka_unit_test(a_field_that_nobody_takes_is_held_against_the_document),
        cmocka_unit_test(an_array_that_nobody_takes_is_held_against_the_grammar),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
