/* management/pool/temp_watch_test.c - tests when a folder for temporary files counts as full. */
#include "management/pool/temp_watch.h"

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

static struct cn_loop *loop;
static unsigned n_full, n_emptied;

static void
count_full(void *ctx)
{
    (void)ctx;
    n_full++;
}

static void
count_emptied(void *ctx)
{
    (void)ctx;
    n_emptied++;
}

/* Runs turns until the condition holds. The limit is for a machine that is busy. */
#define RUN_UNTIL(condition)                                                                       \
    do {                                                                                           \
        for (int turns = 0; !(condition) && turns < 6000; turns++)                                 \
            cn_loop_turn(loop, 10);                                                                \
        assert_true(condition);                                                                    \
    } while (0)

static bool
is_empty(void)
{
    return !cn_temp_watch_is_full(dir, 0);
}

/* A full folder is told once, emptied when that is asked for, and can then be full again. */
static void
a_folder_is_told_and_emptied(void **state)
{
    struct cn_temp_watch *watch, *other;
    char gone[TEST_DIR_MAX];

    (void)state;
    test_dir_make(gone);
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    n_full = n_emptied = 0;
    watch = cn_temp_watch_add(dir, 32 * KB, loop, count_full, count_emptied, NULL);
    other = cn_temp_watch_add(gone, 1, loop, count_full, count_emptied, NULL);
    assert_non_null(watch);
    cn_temp_watch_remove(other); /* the thread may be looking at it */
    put("large", 64 * KB);
    RUN_UNTIL(n_full == 1);
    cn_temp_watch_empty(watch);
    RUN_UNTIL(n_emptied == 1);
    assert_true(is_empty());
    assert_int_equal(n_full, 1);
    put("again", 64 * KB);
    RUN_UNTIL(n_full == 2);
    cn_temp_watch_remove(watch);
    cn_temp_watch_stop();
    cn_temp_watch_stop();
    cn_loop_destroy(loop);
    assert_int_equal(rmdir(gone), 0);
}

/* A model may choose the modes of its folders. With those that keep the server out it could write
 * what it likes, and nobody could delete it. Root is never kept out, so this runs as another user.
 */
static void
folders_that_cannot_be_read_are_too_much(void **state)
{
    static const mode_t modes[] = {0000, 0300, 0400, 0500, 0600};
    const bool root = geteuid() == 0;
    char path[200];

    (void)state;
    if (root)
        assert_int_equal(chown(dir, 65534, 65534) | seteuid(65534), 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        for (int below = 0; below < 2; below++) {
            snprintf(path, sizeof path, "%s%s", dir, below ? "/below" : "");
            assert_int_equal(mkdir(path, 0700), below ? 0 : -1);
            put(below ? "below/large" : "large", 64 * KB);
            assert_int_equal(chmod(path, modes[i]), 0);
            if (modes[i] != 0500)
                assert_true(cn_temp_watch_is_full(dir, 1 << 30));
            assert_true(cn_temp_watch_is_full(dir, 8 * KB));
            assert_true(cn_archive_empty_dir(dir));
            assert_false(cn_temp_watch_is_full(dir, 0));
        }
    }
    if (root)
        assert_int_equal(seteuid(0), 0);
}

/* What lies too deep is moved up to be deleted, for which the folder itself must be writable. */
static void
deep_folders_are_deleted_whatever_their_modes(void **state)
{
    const bool root = geteuid() == 0;
    char path[1000];
    size_t len = (size_t)snprintf(path, sizeof path, "%s", dir);

    (void)state;
    if (root)
        assert_int_equal(chown(dir, 65534, 65534) | seteuid(65534), 0);
    for (int i = 0; i < 80; i++) {
        len += (size_t)snprintf(path + len, sizeof path - len, "/d");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (; len > strlen(dir); path[len -= 2] = '\0')
        assert_int_equal(chmod(path, 0100), 0);
    assert_true(cn_archive_empty_dir(dir));
    assert_false(cn_temp_watch_is_full(dir, 0));
    if (root)
        assert_int_equal(seteuid(0), 0);
}

struct told {
    struct cn_temp_watch *watch;
    unsigned full, emptied;
};

static void
on_full(void *ctx)
{
    struct told *told = ctx;

    told->full++;
    cn_temp_watch_empty(told->watch);
}

static void
on_emptied(void *ctx)
{
    struct told *told = ctx;

    told->emptied++;
}

static void
watch(struct told *told, const char *folder)
{
    told->watch = cn_temp_watch_add(folder, 8 * KB, loop, on_full, on_emptied, told);
    assert_non_null(told->watch);
    while (!told->emptied)
        cn_loop_turn(loop, 5);
}

/* Killing the workers each second would help nobody. The second folder shows that the thread has
 * looked at the first one again: the thread takes them in this order, and empties a folder in a
 * later round than that in which it has found the folder full. */
static void
a_folder_that_cannot_be_emptied_is_not_told_each_second(void **state)
{
    static struct told kept, other;
    char path[2][200];

    (void)state;
    if (geteuid() != 0)
        skip(); /* root alone can make a file that another user cannot delete */
    assert_int_equal(cn_loop_create(0, &loop, NULL), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
        assert_int_equal(mkdir(path[i], 0755), 0);
        put(i ? "1/large" : "0/large", 64 * KB);
    }
    assert_int_equal(chmod(dir, 0755) | chown(path[1], 65534, 65534) | seteuid(65534), 0);
    watch(&kept, path[0]);
    assert_true(cn_temp_watch_is_full(path[0], 8 * KB));
    watch(&other, path[1]);
    assert_false(cn_temp_watch_is_full(path[1], 0));
    assert_int_equal(kept.full, 1);
    assert_int_equal(kept.emptied, 1);
    cn_temp_watch_stop();
    assert_int_equal(seteuid(0), 0);
    cn_loop_destroy(loop);
}

int
main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_lies_in_the_folder_counts),
        CASE(links_are_not_followed),
        CASE(very_deep_folders_are_too_much),
        CASE(a_folder_is_told_and_emptied),
        CASE(folders_that_cannot_be_read_are_too_much),
        CASE(deep_folders_are_deleted_whatever_their_modes),
        CASE(a_folder_that_cannot_be_emptied_is_not_told_each_second),
    };

    return cmocka_run_group_tests_name("management.temp_watch", tests, NULL, NULL);
}
