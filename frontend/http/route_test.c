/* frontend/http/route_test.c - tests that paths and methods lead to their functions. */
#include "frontend/http/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void
predict(struct cn_http_request *request)
{
    (void)request;
}

static void
ping(struct cn_http_request *request)
{
    (void)request;
}

static const struct cn_route table[] = {
    {.methods = CN_HTTP_GET | CN_HTTP_HEAD, .pattern = "/ping", .handle = ping},
    {.methods = CN_HTTP_POST | CN_HTTP_PUT, .pattern = "/predictions/{model}", .handle = predict},
    {.methods = CN_HTTP_POST | CN_HTTP_PUT,
     .pattern = "/predictions/{model}/{version}",
     .handle = predict},
    {.methods = CN_HTTP_POST, .pattern = "/deep/{a}/{b}/{*rest}", .handle = predict},
    {.methods = CN_HTTP_POST, .pattern = "/v1/models/{model}:predict", .handle = predict},
    {.handle = NULL},
};

struct fixture {
    struct cn_arena arena;
    struct cn_route_match match;
    struct cn_error err;
};

static int
find(struct fixture *f, unsigned method, const char *path)
{
    return cn_route_find(table, method, cn_str_from(path), &f->arena, &f->match, &f->err);
}

static int
set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    cn_arena_init(&f->arena);
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;

    cn_arena_fini(&f->arena);
    free(f);
    return 0;
}

/* Model and version arrive decoded. */
static void
segments_become_arguments(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_POST, "/predictions/my%20model/1.0"), 0);
    assert_ptr_equal(f->match.route->handle, predict);
    assert_int_equal(f->match.n_args, 2);
    assert_true(cn_str_eq(f->match.args[0], CN_STR("my model")));
    assert_true(cn_str_eq(f->match.args[1], CN_STR("1.0")));
}

/* An escaped slash belongs to the name: it does not turn a model into a version. */
static void
escaped_slash_does_not_split(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_PUT, "/predictions/a%2Fb"), 0);
    assert_int_equal(f->match.n_args, 1);
    assert_true(cn_str_eq(f->match.args[0], CN_STR("a/b")));
}

/* In TorchServe, too, /ping/ is /ping. */
static void
slashes_at_the_end_do_not_count(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_GET, "/ping/"), 0);
    assert_int_equal(find(f, CN_HTTP_GET, "/ping//"), 0);
    assert_int_equal(find(f, CN_HTTP_POST, "/predictions/a/"), 0);
    assert_int_equal(f->match.n_args, 1);
}

/* {*name} matches the rest of the path with its slashes, and {name}:word a segment that ends with
 * :word. */
static void
rest_and_suffix_become_arguments(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_POST, "/deep/m/1/a/b%2Fc/"), 0);
    assert_int_equal(f->match.n_args, 3);
    assert_true(cn_str_eq(f->match.args[2], CN_STR("a/b/c")));
    assert_int_equal(find(f, CN_HTTP_POST, "/deep/m/1"), CN_E_NOT_FOUND);
    assert_int_equal(find(f, CN_HTTP_POST, "/deep/m/1//"), CN_E_NOT_FOUND);
    assert_int_equal(find(f, CN_HTTP_POST, "/v1/models/a:b:predict"), 0);
    assert_int_equal(f->match.n_args, 1);
    assert_true(cn_str_eq(f->match.args[0], CN_STR("a:b")));
    assert_int_equal(find(f, CN_HTTP_POST, "/v1/models/:predict"), CN_E_NOT_FOUND);
    assert_int_equal(find(f, CN_HTTP_POST, "/v1/models/predict"), CN_E_NOT_FOUND);
}

/* An unknown path is 404 with any method. An empty segment is not the name of a model. */
static void
unknown_paths_are_not_found(void **state)
{
    static const char *const paths[] = {"/",
                                        "",
                                        "*",
                                        "ping",
                                        "/pong",
                                        "/predictions",
                                        "/predictions/",
                                        "/predictions//1",
                                        "/predictions/a/1/2",
                                        "//ping"};
    struct fixture *f = *state;
    size_t i;

    for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_int_equal(find(f, CN_HTTP_POST, paths[i]), CN_E_NOT_FOUND);
}

/* A known path with another method is 405, and the answer can name the right ones. */
static void
wrong_method_names_the_right_ones(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_DELETE, "/ping"), CN_E_METHOD_NOT_ALLOWED);
    assert_string_equal(cn_http_methods_text(&f->arena, f->match.allowed), "GET, HEAD");
    assert_int_equal(find(f, cn_http_method_of(CN_STR("BREW")), "/predictions/a"),
                     CN_E_METHOD_NOT_ALLOWED);
    assert_int_equal(cn_http_method_of(CN_STR("get")), CN_HTTP_OTHER_METHOD);
}

/* A broken escape is the client's error. */
static void
broken_escape_is_refused(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(find(f, CN_HTTP_POST, "/predictions/a%0"), CN_E_BAD_REQUEST);
    assert_int_equal(find(f, CN_HTTP_POST, "/predictions/a%00"), CN_E_BAD_REQUEST);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(segments_become_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(escaped_slash_does_not_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slashes_at_the_end_do_not_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rest_and_suffix_become_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_paths_are_not_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_method_names_the_right_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(broken_escape_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
