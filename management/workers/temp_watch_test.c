/* management/workers/temp_watch_test.c - tests when a folder for temporary files counts as full. */
#include "management/workers/temp_watch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "archiver/archive/archive.h"
#include "core/test_support.h"

#define KB 1024u

static char dir[TEST_DIR_MAX];

static void
put(const char *name, size_t bytes)
{
    char path[300], page[4096];
    int fd;

    memset(page, 1, sizeof page);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    for (; bytes >= sizeof page; bytes -= sizeof page)
        assert_int_equal(write(fd, page, sizeof page), sizeof page);
    fsync(fd); /* some file systems give a file its blocks only then */
    close(fd);
}

static int
set_up(void **state)
{
    (void)state;
    test_dir_make(dir);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_archive_remove_dir(dir);
    return 0;
}

/* Files count by the room that they take, with a page for each at least. */
static void
what_lies_in_the_folder_counts(void **state)
{
    char path[200];

    (void)state;
    assert_false(cn_temp_watch_is_full(dir, 0));
    assert_false(cn_temp_watch_is_full("/nowhere", 0));
    put("large", 64 * KB);
    assert_true(cn_temp_watch_is_full(dir, 63 * KB));
    assert_false(cn_temp_watch_is_full(dir, 80 * KB));
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "empty-%d", i);
        put(path, 0);
    }
    assert_true(cn_temp_watch_is_full(dir, 80 * KB));
    assert_false(cn_temp_watch_is_full(dir, 120 * KB));
    snprintf(path, sizeof path, "%s/below", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    put("below/more", 64 * KB);
    assert_true(cn_temp_watch_is_full(dir, 120 * KB));
    assert_false(cn_temp_watch_is_full(dir, 200 * KB));
    assert_true(cn_archive_empty_dir(dir));
    assert_false(cn_temp_watch_is_full(dir, 0)); /* the folder is still there */
    assert_int_equal(access(dir, F_OK), 0);
}

/* A link takes room for itself, and what it points to is somebody else's. */
static void
links_are_not_followed(void **state)
{
    char path[200];

    (void)state;
    snprintf(path, sizeof path, "%s/usr", dir);
    assert_int_equal(symlink("/usr", path), 0);
    assert_false(cn_temp_watch_is_full(dir, 8 * KB));
    assert_false(cn_temp_watch_is_full(path, 0));
    assert_true(cn_archive_empty_dir(dir));
    assert_int_equal(access("/usr/bin", F_OK), 0);
}

/* The descriptors that the count needs are bounded, so very deep folders count as too much. */
static void
very_deep_folders_are_too_much(void **state)
{
    char path[1000];
    size_t len = (size_t)snprintf(path, sizeof path, "%s", dir);

    (void)state;
    for (int i = 0; i < 64; i++) {
        len += (size_t)snprintf(path + len, sizeof path - len, "/d");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_false(cn_temp_watch_is_full(dir, 1 << 30));
    snprintf(path + len, sizeof path - len, "/d");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(cn_temp_watch_is_full(dir, 1 << 30));
}

int
main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_lies_in_the_folder_counts),
        CASE(links_are_not_followed),
        CASE(very_deep_folders_are_too_much),
    };

    return cmocka_run_group_tests_name("management.temp_watch", tests, NULL, NULL);
}
