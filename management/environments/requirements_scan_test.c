/* Tests of management/environments/requirements_scan.c: which files belong to an environment. */
#include "management/environments/requirements_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/buf.h"

static void
note(void *ctx, enum cn_requirement_kind kind, struct cn_str path)
{
    cn_buf_printf(ctx, "%c:%.*s ", kind == CN_REQUIREMENT_FILE ? 'r' : 'p', CN_STR_ARG(path));
}

static void
finds(const char *text, const char *expected)
{
    struct cn_buf found;

    cn_buf_init(&found, 0);
    cn_requirements_scan(cn_str_from(text), note, &found);
    cn_buf_append(&found, "", 1);
    assert_string_equal(found.data, expected);
    cn_buf_fini(&found);
}

/* A change in a file that is only included changes the packages, too. */
static void
files_that_are_included_are_found_in_every_spelling(void **state)
{
    (void)state;
    finds("-r a.txt\n--requirement b.txt\n-c c.txt\n--constraint d.txt\n",
          "r:a.txt r:b.txt r:c.txt r:d.txt ");
    finds("-ra.txt\n--requirement=b/c.txt\r\n\t-c\td.txt # why\n", "r:a.txt r:b/c.txt r:d.txt ");
    finds("-r", "");
    finds("-r https://example.com/a.txt\n--requirements a.txt\n", "");
}

/* A package that lies in the archive may change without a change of the requirements file. */
static void
packages_that_are_named_by_a_path_are_found(void **state)
{
    (void)state;
    finds("./pkg\nwheels/a-1.0-py3-none-any.whl ; python_version > '3'\n",
          "p:./pkg p:wheels/a-1.0-py3-none-any.whl ");
    finds("-e ./pkg[extra]#egg=pkg\n", "p:./pkg ");
    finds("tiny @ file:./tiny.zip\ntiny @ file:///opt/tiny.tar.gz\n",
          "p:./tiny.zip p:/opt/tiny.tar.gz ");
}

/* Ordinary requirements refer to no file. */
static void
names_versions_addresses_and_comments_are_no_files(void **state)
{
    (void)state;
    finds("", "");
    finds("numpy\ntorch==2.1 --hash=sha256:00\nuvicorn[standard]>=0.2 ; python_version < '4'\n",
          "");
    finds("# -r a.txt\nnumpy # -r b.txt\n", "");
    finds("a @ https://example.com/a-1.0.whl\n--index-url https://example.com/simple\n", "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_included_are_found_in_every_spelling),
        cmocka_unit_test(packages_that_are_named_by_a_path_are_found),
        cmocka_unit_test(names_versions_addresses_and_comments_are_no_files),
    };

    return cmocka_run_group_tests_name("management.requirements_scan", tests, NULL, NULL);
}
