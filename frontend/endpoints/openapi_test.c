/* frontend/endpoints/openapi_test.c - tests that the API description has what the tables have. */
#include "frontend/endpoints/openapi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "frontend/endpoints/routes.h"

static void
never(struct cn_http_request *request)
{
    (void)request;
}

static const struct cn_route table[] = {
    {CN_HTTP_ANY_METHOD, "/predictions/{model_name}/{*url_path}", never, CN_ROUTE_PREDICTS,
     CN_HTTP_POST, "predictions", "predicts", NULL},
    {CN_HTTP_GET, "/page", never, CN_ROUTE_PLAIN, CN_HTTP_GET, "page", "shows", "text/html"},
    {.methods = CN_HTTP_GET, .pattern = "/hidden", .handle = never},
    {.handle = NULL},
};

static json_t *
described(const struct cn_route *routes, const char *model)
{
    struct cn_buf text;
    json_t *all;

    cn_buf_init(&text, 0);
    cn_openapi_print(routes, cn_str_from(model), &text);
    all = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    cn_buf_fini(&text);
    assert_non_null(all);
    return all;
}

/* In a path, {*name} becomes {name}. Parameters come in their order, and hidden rows are left
 * out. */
static void
rows_become_operations(void **state)
{
    json_t *all = described(table, ""), *paths = json_object_get(all, "paths"), *post, *list;

    (void)state;
    assert_int_equal(json_object_size(paths), 2);
    post = json_object_get(json_object_get(paths, "/predictions/{model_name}/{url_path}"), "post");
    assert_string_equal(json_string_value(json_object_get(post, "operationId")), "predictions");
    list = json_object_get(post, "parameters");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "name")),
                        "url_path");
    assert_non_null(json_object_get(post, "requestBody"));
    assert_non_null(json_object_get(json_object_get(post, "responses"), "503"));
    list = json_object_get(json_object_get(paths, "/page"), "get");
    assert_null(json_object_get(json_object_get(list, "responses"), "503"));
    assert_null(json_object_get(list, "requestBody"));
    json_decref(all);
}

/* The description of one model has the paths of that model only, with its name as it is written in
 * a URL. */
static void
one_model_has_its_own_paths(void **state)
{
    json_t *all = described(table, "a{b} c"), *paths = json_object_get(all, "paths");

    (void)state;
    assert_int_equal(json_object_size(paths), 1);
    assert_non_null(json_object_get(paths, "/predictions/a%7Bb%7D%20c/{url_path}"));
    json_decref(all);
}

/* In the real tables, each parameter of api_params.def belongs to an operation that exists. */
static void
parameters_belong_to_operations(void **state)
{
    static const char *const owners[] = {
#define CN_API_PARAM(operation, in, name, type, required, otherwise, text) operation,
#include "frontend/endpoints/api_params.def"
#undef CN_API_PARAM
    };
    static const struct cn_route *const tables[] = {cn_inference_routes, cn_management_routes};

    (void)state;
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
        bool found = strcmp(owners[i], "*") == 0;

        for (size_t t = 0; t < 2; t++)
            for (const struct cn_route *route = tables[t]; route->handle; route++)
                found |= route->id && strcmp(route->id, owners[i]) == 0;
        if (!found)
            fail_msg("api_params.def: there is no operation %s", owners[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_operations),
        cmocka_unit_test(one_model_has_its_own_paths),
        cmocka_unit_test(parameters_belong_to_operations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
