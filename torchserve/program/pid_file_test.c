/* torchserve/program/pid_file_test.c - tests where the pid file is, and which process it means. */
#include "torchserve/program/pid_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"

static char dir[TEST_DIR_MAX], path[128];

static int
set_up(void **state)
{
    (void)state;
    test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/.model_server.pid", dir);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Python looks for a temporary folder in this order, and TorchServe's launcher uses Python's
 * choice. */
static void
the_first_usable_folder_counts(void **state)
{
    char tmpdir[80], temp[80], *environment[] = {tmpdir, temp, NULL}, found[200];

    (void)state;
    snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=/nowhere");
    snprintf(temp, sizeof(temp), "TEMP=%s", dir);
    cn_pid_file_path(environment, found, sizeof(found));
    assert_string_equal(found, path);
    environment[1] = NULL;
    cn_pid_file_path(environment, found, sizeof(found));
    assert_string_equal(found, "/tmp/.model_server.pid");
}

/* A number alone proves nothing: neither this test nor the process 1 is a torchserve. */
static void
only_a_torchserve_counts_as_running(void **state)
{
    static const char *const stale[] = {"",     "1",         "-1", "99999999999999999999",
                                        "text", "2147483647"};
    char mine[32];
    bool is_stale;

    (void)state;
    assert_int_equal(cn_pid_file_running(path, &is_stale), 0);
    assert_false(is_stale);
    for (size_t i = 0; i < sizeof(stale) / sizeof(stale[0]); i++) {
        test_dir_write(dir, ".model_server.pid", stale[i]);
        assert_int_equal(cn_pid_file_running(path, &is_stale), 0);
        assert_true(is_stale);
    }
    snprintf(mine, sizeof(mine), "%ld", (long)getpid());
    test_dir_write(dir, ".model_server.pid", mine);
    assert_int_equal(cn_pid_file_running(path, &is_stale), 0);
    assert_true(is_stale);
}

/* Anybody may write to the folder, so what is there is neither followed nor overwritten. */
static void
a_file_that_is_there_is_not_overwritten(void **state)
{
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(cn_pid_file_write(path, &err), CN_E_CONFLICT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(cn_pid_file_write(path, &err), 0);
    assert_int_equal(cn_pid_file_write(path, &err), CN_E_CONFLICT);
}

/* A server that ends must not take its successor's file away. */
static void
only_the_own_file_is_removed(void **state)
{
    (void)state;
    test_dir_write(dir, ".model_server.pid", "2147483647");
    cn_pid_file_remove_own(path);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(cn_pid_file_write(path, NULL), 0);
    cn_pid_file_remove_own(path);
    assert_int_not_equal(access(path, F_OK), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_usable_folder_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_torchserve_counts_as_running, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_there_is_not_overwritten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_own_file_is_removed, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
