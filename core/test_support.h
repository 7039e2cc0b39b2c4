/* core/test_support.h - help for the unit tests of all folders: a temporary folder, repeatable
 * random numbers, and the path of what was built beside the test program. */
#ifndef CN_CORE_TEST_SUPPORT_H
#define CN_CORE_TEST_SUPPORT_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TEST_DIR_MAX 64

/* Makes a new, empty folder and writes its path to `dir`. */
static inline void
test_dir_make(char dir[TEST_DIR_MAX])
{
    strcpy(dir, "/tmp/cn-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

/* Removes the folder with all that is in it. Returns 0, which a teardown can return. */
static inline int
test_dir_remove(const char *dir)
{
    char command[TEST_DIR_MAX + 8];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

/* Copies a file over another one. */
static inline void
test_copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    struct stat stat_of;

    if (fstat(in, &stat_of) != 0 ||
        sendfile(out, in, NULL, (size_t)stat_of.st_size) != stat_of.st_size)
        abort();
    close(in);
    close(out);
}

/* A cmocka set-up and tear-down whose state is the path of a new folder. */
static inline int
test_dir_set_up(void **state)
{
    *state = malloc(TEST_DIR_MAX);
    assert_non_null(*state);
    test_dir_make(*state);
    return 0;
}

static inline int
test_dir_tear_down(void **state)
{
    int rc = test_dir_remove(*state);

    free(*state);
    return rc;
}

/* A generator with a fixed seed, so that a failure comes back when the test is run again. */
static inline uint32_t
test_next_random(void)
{
    static uint32_t x = 12345;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

static inline void
test_dir_write(const char *dir, const char *name, const char *text)
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The path of `name` beside the running test program. */
static inline void
test_program_path(const char *name, char *out, size_t out_size)
{
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    assert_true(n > 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    assert_true(snprintf(out, out_size, "%s/%s", self, name) < (int)out_size);
}

#endif
