/* Tests of management/environments/environment_recipe.c: when two models share an environment. */
#include "management/environments/environment_recipe.h"

#include <sys/stat.h>

#include "core/test_support.h"

static char digests[8][CN_ENVIRONMENT_DIGEST_BYTES];

static const char *
digest_of(const char *dir, const char *interpreter, int at)
{
    struct cn_error err = {0};
    struct cn_buf recipe;

    cn_buf_init(&recipe, 0);
    if (cn_environment_recipe(dir, "requirements.txt", interpreter, &recipe, &err))
        fail_msg("%s", err.message);
    cn_environment_digest(cn_buf_str(&recipe), digests[at]);
    cn_buf_fini(&recipe);
    return digests[at];
}

static const char *
below(const char *dir, const char *name)
{
    static char path[200];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir(path, 0700);
    return path;
}

/* The same requirements make the same environment, wherever the archive was unpacked. */
static void
equal_archives_share_a_digest(void **state)
{
    char one[200], two[200];

    snprintf(one, sizeof one, "%s", below(*state, "one"));
    snprintf(two, sizeof two, "%s", below(*state, "two"));
    test_dir_write(one, "requirements.txt", "tiny==1.0\n");
    test_dir_write(two, "requirements.txt", "tiny==1.0\n");
    test_dir_write(two, "handler.py", "def handle(req): return 1\n");
    assert_string_equal(digest_of(one, "cpython-311", 0), digest_of(two, "cpython-311", 1));
}

/* Everything that pip would see, and the interpreter, is part of the digest. */
static void
each_change_makes_another_digest(void **state)
{
    const char *dir = *state;

    test_dir_write(dir, "requirements.txt", "tiny==1.0\n-r more.txt\n./local.zip\n");
    digest_of(dir, "cpython-311", 0);
    assert_string_not_equal(digests[0], digest_of(dir, "cpython-312", 1));
    test_dir_write(dir, "more.txt", "other\n");
    assert_string_not_equal(digests[0], digest_of(dir, "cpython-311", 2));
    test_dir_write(dir, "local.zip", "bytes");
    assert_string_not_equal(digests[2], digest_of(dir, "cpython-311", 3));
    test_dir_write(below(dir, "wheels"), "tiny-1.0-py3-none-any.whl", "a");
    assert_string_not_equal(digests[3], digest_of(dir, "cpython-311", 4));
    test_dir_write(below(dir, "wheels"), "tiny-1.0-py3-none-any.whl", "b");
    assert_string_not_equal(digests[4], digest_of(dir, "cpython-311", 5));
    assert_string_equal(digests[5], digest_of(dir, "cpython-311", 6));
}

/* Archives are foreign: a file that includes itself, or one that never ends, is refused. */
static void
what_never_ends_is_refused(void **state)
{
    struct cn_error err = {0};
    struct cn_buf recipe;

    cn_buf_init(&recipe, 0);
    test_dir_write(*state, "requirements.txt", "-r requirements.txt\n");
    assert_int_equal(
        cn_environment_recipe(*state, "requirements.txt", "cpython-311", &recipe, &err),
        CN_E_INVALID_MODEL);
    assert_non_null(strstr(err.message, "include each other more than 16 levels deep"));
    test_dir_write(*state, "requirements.txt", "-c /dev/zero\n");
    assert_int_equal(
        cn_environment_recipe(*state, "requirements.txt", "cpython-311", &recipe, &err),
        CN_E_INVALID_MODEL);
    assert_non_null(strstr(err.message, "/dev/zero is not a regular file"));
    assert_int_equal(cn_environment_recipe(*state, "missing.txt", "cpython-311", &recipe, &err),
                     CN_E_IO);
    cn_buf_fini(&recipe);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_dir_set_up, test_dir_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(equal_archives_share_a_digest),
        CASE(each_change_makes_another_digest),
        CASE(what_never_ends_is_refused),
    };

    return cmocka_run_group_tests_name("management.environment_recipe", tests, NULL, NULL);
}
