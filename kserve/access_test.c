/* kserve/access_test.c - restricted groups and forwarded headers, without a transport. */
#include "kserve/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct cn_header headers[] = {{CN_STR("Admin-Key"), CN_STR("s3")},
                                     {CN_STR("x-my-Tag"), CN_STR("blue")},
                                     {CN_STR("timeout"), CN_STR("5")}};
static struct cn_error err;

static int
tear_down(void **state)
{
    (void)state;
    cn_v2_access_setup(CN_V2_HTTP, NULL, NULL, &err);
    cn_v2_access_setup(CN_V2_GRPC, NULL, NULL, &err);
    return 0;
}

/* Groups that no rule names stay open. The header's name is compared without case, and its value
 * exactly. */
static void
a_group_asks_for_its_header(void **state)
{
    (void)state;
    assert_int_equal(cn_v2_access_setup(CN_V2_HTTP,
                                        "model-repository,logging:admin-key=s3;trace:other=a=b",
                                        NULL, &err),
                     0);
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_INFERENCE, NULL, 0, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_GRPC, CN_V2_LOGGING, NULL, 0, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_LOGGING, headers, 3, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_LOGGING, NULL, 0, &err), CN_E_RESTRICTED);
    assert_string_equal(err.message, "This API is restricted, expecting header 'admin-key'");
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_TRACE,
                                        &(struct cn_header){CN_STR("other"), CN_STR("a=b")}, 1,
                                        &err),
                     0);
    for (size_t len = 0; len < 2; len++)
        assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_LOGGING,
                                            &(struct cn_header){CN_STR("admin-key"), {"s3", len}},
                                            1, &err),
                         CN_E_RESTRICTED);
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_LOGGING,
                                        &(struct cn_header){CN_STR("admin-key"), CN_STR("s3s3")}, 1,
                                        &err),
                     CN_E_RESTRICTED);
}

static void
grpc_has_its_own_rules_and_words(void **state)
{
    struct cn_header key = {CN_STR("triton-grpc-protocol-admin"), CN_STR("x")};

    (void)state;
    assert_int_equal(cn_v2_access_setup(CN_V2_GRPC, "health:admin=x", NULL, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_HTTP, CN_V2_HEALTH, NULL, 0, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_GRPC, CN_V2_HEALTH, &key, 1, &err), 0);
    assert_int_equal(cn_v2_access_check(CN_V2_GRPC, CN_V2_HEALTH, NULL, 0, &err), CN_E_RESTRICTED);
    assert_string_equal(
        err.message, "This protocol is restricted, expecting header 'triton-grpc-protocol-admin'");
}

static void
bad_rules_are_refused(void **state)
{
    static const char *const rules[] = {
        "logging",    "logging:",     "logging:key",         "logging:key=",
        ":key=value", "loging:key=v", "trace:a=b;trace:c=d", "trace,trace:a=b"};

    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_int_equal(cn_v2_access_setup(CN_V2_HTTP, rules[i], NULL, &err), CN_E_CONFIG);
    assert_int_equal(cn_v2_access_setup(CN_V2_HTTP, NULL, "(", &err), CN_E_CONFIG);
}

/* A header that matches becomes a parameter, in the header's spelling. A name of the protocol
 * itself is refused. */
static void
headers_become_parameters(void **state)
{
    struct cn_v2_param first = {.name = CN_STR("a")};
    struct cn_v2_request request = {.n_params = 1, .params = &first};
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_access_forward(CN_V2_HTTP, headers, 3, &arena, &request, &err), 0);
    assert_int_equal(request.n_params, 1);
    assert_int_equal(cn_v2_access_setup(CN_V2_HTTP, NULL, "my-t", &err), 0);
    assert_int_equal(cn_v2_access_forward(CN_V2_HTTP, headers, 3, &arena, &request, &err), 0);
    assert_int_equal(request.n_params, 2);
    assert_true(cn_str_eq(request.params[0].name, CN_STR("a")));
    assert_true(cn_str_eq(request.params[1].name, CN_STR("x-my-Tag")));
    assert_true(cn_str_eq(request.params[1].text, CN_STR("blue")));
    assert_int_equal(cn_v2_access_setup(CN_V2_HTTP, NULL, ".*", &err), 0);
    assert_int_equal(cn_v2_access_forward(CN_V2_HTTP, headers, 3, &arena, &request, &err),
                     CN_E_BAD_REQUEST);
    assert_string_equal(err.message,
                        "Header 'timeout' is reserved for Triton usage and cannot be forwarded.");
    cn_arena_fini(&arena);
}

static void
paths_have_their_groups(void **state)
{
    static const struct {
        const char *pattern;
        enum cn_v2_group group;
    } rows[] = {
        {"/v2", CN_V2_METADATA},
        {"/v2/models/{model_name}", CN_V2_METADATA},
        {"/v2/health/live", CN_V2_HEALTH},
        {"/v2/models/{model_name}/ready", CN_V2_HEALTH},
        {"/v2/models/{model_name}/versions/{model_version}/infer", CN_V2_INFERENCE},
        {"/v2/models/{model_name}/generate_stream", CN_V2_INFERENCE},
        {"/v2/models/{model_name}/config", CN_V2_MODEL_CONFIG},
        {"/v2/models/stats", CN_V2_STATISTICS},
        {"/v2/repository/index", CN_V2_MODEL_REPOSITORY},
        {"/v2/repository/models/{model_name}/load", CN_V2_MODEL_REPOSITORY},
        {"/v2/models/{model_name}/trace/setting", CN_V2_TRACE},
        {"/v2/logging", CN_V2_LOGGING},
        {"/v2/cudasharedmemory/status", CN_V2_SHARED_MEMORY},
        {"/v2/systemsharedmemory/region/{name}/register", CN_V2_SHARED_MEMORY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(cn_v2_group_of_path(cn_str_from(rows[i].pattern)), rows[i].group);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_group_asks_for_its_header, tear_down),
        cmocka_unit_test_teardown(grpc_has_its_own_rules_and_words, tear_down),
        cmocka_unit_test_teardown(bad_rules_are_refused, tear_down),
        cmocka_unit_test_teardown(headers_become_parameters, tear_down),
        cmocka_unit_test(paths_have_their_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
