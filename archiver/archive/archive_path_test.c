/* archiver/archive/archive_path_test.c - tests that names from outside are cleaned, or refused with
 * the reason. */
#include "archiver/archive/archive_path.h"

#include "archiver/test_support.h"
#include "core/memory/mem.h"

static void
becomes(const char *path, const char *plain)
{
    char clean[CN_ARCHIVE_PATH_MAX];

    assert_null(cn_archive_path_clean(path, clean));
    assert_string_equal(clean, plain);
}

static void
refused(const char *path, const char *why)
{
    char clean[CN_ARCHIVE_PATH_MAX];
    const char *problem = cn_archive_path_clean(path, clean);

    assert_non_null(problem);
    assert_contains(problem, why);
    assert_false(cn_archive_path_ok(path));
}

/* tar writes "./a" and some zips write "a//b". These are other spellings of the same name. */
static void
names_become_plain(void **state)
{
    (void)state;
    becomes("a/b.lua", "a/b.lua");
    becomes("./a//b/./", "a/b");
    becomes(".", "");
    becomes("", "");
    becomes("..a/b..", "..a/b..");
    becomes("\xc3\xbc/\xf0\x9f\x98\x80", "\xc3\xbc/\xf0\x9f\x98\x80");
}

/* Nothing may be written outside the folder, or under a name with characters that disturb a
 * terminal or JSON. */
static void
dangerous_names_are_refused(void **state)
{
    (void)state;
    refused("/etc/passwd", "absolute");
    refused("../x", "leads out");
    refused("a/../../x", "leads out");
    refused("a/..", "leads out");
    refused("a\nb", "control");
    refused("a\x1b[2J", "control");
    refused("a\\b", "backslash");
    refused("\xff", "UTF-8");
    refused("\xc0\xaf", "UTF-8");
    refused("\xed\xa0\x80", "UTF-8");
    refused("\xe2\x82", "UTF-8");
}

/* No model exceeds these bounds, and every file system allows them. */
static void
long_and_deep_names_are_refused(void **state)
{
    char path[3000];

    (void)state;
    memset(path, 'a', sizeof(path));
    path[256] = '\0';
    refused(path, "too long");
    path[255] = '\0';
    assert_true(cn_archive_path_ok(path));
    for (int i = 0; i < 33; i++)
        memcpy(path + 2 * i, "a/", 3);
    refused(path, "32 folders");
    memset(path, 'a', sizeof(path));
    for (int i = 200; i < 2000; i += 200)
        path[i] = '/';
    path[2000] = '\0';
    refused(path, "too long");
}

/* A manifest must name files as the archive does. */
static void
only_plain_names_are_ok(void **state)
{
    (void)state;
    assert_true(cn_archive_path_ok("a/b"));
    assert_false(cn_archive_path_ok("./a"));
    assert_false(cn_archive_path_ok("a/"));
    assert_false(cn_archive_path_ok(""));
}

/* Small parts that everything else is made of. */
static void
parts_and_suffixes(void **state)
{
    char *joined = cn_path_join("/a", "b/c");

    (void)state;
    assert_string_equal(joined, "/a/b/c");
    assert_string_equal(cn_basename(joined), "c");
    assert_string_equal(cn_basename("x"), "x");
    assert_true(cn_has_suffix("h.lua", ".lua"));
    assert_false(cn_has_suffix("ua", ".lua"));
    cn_free(joined);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_plain),
        cmocka_unit_test(dangerous_names_are_refused),
        cmocka_unit_test(long_and_deep_names_are_refused),
        cmocka_unit_test(only_plain_names_are_ok),
        cmocka_unit_test(parts_and_suffixes),
    };
    return cmocka_run_group_tests_name("archiver.path", tests, NULL, NULL);
}
