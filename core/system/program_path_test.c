/* core/system/program_path_test.c - a program's files where it is built and where it is
 * installed. */
#include "core/system/program_path.h"

#include <limits.h>
#include <sys/stat.h>

#include "core/test_support.h"

static void
built_before_installed_before_nothing(void **state)
{
    const char *dir = *state;
    char program[256], path[512], found[PATH_MAX], wanted[PATH_MAX];

    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir,
                 (const char *[]){"bin", "lib", "lib/continuo", "libexec", "libexec/continuo"}[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(program, sizeof(program), "%s/bin/continuo", dir);
    assert_int_equal(cn_program_path_of(program, "part", found, sizeof(found), NULL), 0);
    snprintf(wanted, sizeof(wanted), "%s/bin/part", dir);
    assert_string_equal(found, wanted);

    test_dir_write(dir, "libexec/continuo/part", "");
    assert_int_equal(cn_program_path_of(program, "part", found, sizeof(found), NULL), 0);
    snprintf(path, sizeof(path), "%s/bin/../libexec/continuo/part", dir);
    assert_string_equal(found, path);

    test_dir_write(dir, "lib/continuo/part", "");
    assert_int_equal(cn_program_path_of(program, "part", found, sizeof(found), NULL), 0);
    snprintf(path, sizeof(path), "%s/bin/../lib/continuo/part", dir);
    assert_string_equal(found, path);

    test_dir_write(dir, "bin/part", "");
    assert_int_equal(cn_program_path_of(program, "part", found, sizeof(found), NULL), 0);
    assert_string_equal(found, wanted);
}

static void
a_path_that_is_too_long_is_said(void **state)
{
    struct cn_error err;
    char found[20];

    (void)state;
    assert_int_equal(
        cn_program_path_of("/opt/bin/x", "a-part-with-a-name", found, sizeof(found), &err),
        CN_E_IO);
    assert_non_null(strstr(err.message, "a-part-with-a-name"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(built_before_installed_before_nothing, test_dir_set_up,
                                        test_dir_tear_down),
        cmocka_unit_test(a_path_that_is_too_long_is_said),
    };

    return cmocka_run_group_tests_name("core.beside", tests, NULL, NULL);
}
