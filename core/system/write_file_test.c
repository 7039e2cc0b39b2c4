/* core/system/write_file_test.c - output is whole, or it is an error. */
#include "core/system/write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "core/test_support.h"

#define PIPE_BYTES 65536
#define SENT_BYTES (3 * PIPE_BYTES + 7)

struct reader {
    int fd;
    size_t len;
    char bytes[SENT_BYTES + 1];
};

static void *
read_all(void *arg)
{
    struct reader *reader = arg;
    ssize_t n;

    while (reader->len < sizeof(reader->bytes) &&
           (n = read(reader->fd, reader->bytes + reader->len,
                     sizeof(reader->bytes) - reader->len)) > 0)
        reader->len += (size_t)n;
    return NULL;
}

static void
more_than_a_pipe_holds_is_written_in_parts(void **state)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    char *sent = malloc(SENT_BYTES);
    pthread_t thread;
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (size_t i = 0; i < SENT_BYTES; i++)
        sent[i] = (char)(i * 7 + i / PIPE_BYTES);
    reader->fd = fds[0];
    assert_int_equal(pthread_create(&thread, NULL, read_all, reader), 0);
    assert_int_equal(cn_write_all(fds[1], sent, SENT_BYTES), 0);
    close(fds[1]);
    pthread_join(thread, NULL);
    assert_int_equal(reader->len, SENT_BYTES);
    assert_memory_equal(reader->bytes, sent, SENT_BYTES);
    close(fds[0]);
    free(sent);
    free(reader);
}

static void
what_cannot_be_written_is_an_errno(void **state)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC), fds[2];

    (void)state;
    assert_int_equal(cn_write_all(full, "", 0), 0);
    assert_int_equal(cn_write_all(full, "x", 1), ENOSPC);
    close(full);
    assert_int_equal(cn_write_all(-1, "x", 1), EBADF);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(cn_write_all(fds[1], "x", 1), EPIPE);
    close(fds[1]);
}

static void
assert_file(const char *path, const char *text, mode_t mode)
{
    char read_back[100];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, read_back, sizeof(read_back));
    struct stat st;

    assert_int_equal(n, strlen(text));
    assert_memory_equal(read_back, text, strlen(text));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, mode);
    close(fd);
}

/* A reader that has the file open still sees the old content. If somebody has left something under
 * the temporary name, for example a link, it is not written to. */
static void
a_file_is_replaced_as_a_whole(void **state)
{
    char path[TEST_DIR_MAX + 8], beside[TEST_DIR_MAX + 8], other[TEST_DIR_MAX + 8], old[3];
    int fd;

    snprintf(path, sizeof(path), "%s/file", (const char *)*state);
    snprintf(beside, sizeof(beside), "%s/new", (const char *)*state);
    snprintf(other, sizeof(other), "%s/other", (const char *)*state);
    assert_int_equal(cn_write_file_atomically(path, beside, 0600, "old", 3), 0);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    test_dir_write(*state, "other", "other's");
    assert_int_equal(symlink(other, beside), 0);
    assert_int_equal(cn_write_file_atomically(path, beside, 0640, "newer", 5), 0);
    assert_file(path, "newer", 0640);
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(read(fd, old, 3), 3);
    assert_memory_equal(old, "old", 3);
    close(fd);
    fd = open(other, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, old, 3), 3);
    assert_memory_equal(old, "oth", 3);
    close(fd);
}

/* A failed write leaves everything as it was. */
static void
a_file_that_cannot_be_replaced_stays(void **state)
{
    char path[TEST_DIR_MAX + 8], beside[TEST_DIR_MAX + 16];

    snprintf(path, sizeof(path), "%s/folder", (const char *)*state);
    snprintf(beside, sizeof(beside), "%s/new", (const char *)*state);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(cn_write_file_atomically(path, beside, 0600, "x", 1), EISDIR);
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(cn_write_file_atomically(beside, "/no/such/folder", 0600, "x", 1), ENOENT);
    assert_int_equal(access(beside, F_OK), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_a_pipe_holds_is_written_in_parts),
        cmocka_unit_test(what_cannot_be_written_is_an_errno),
        cmocka_unit_test_setup_teardown(a_file_is_replaced_as_a_whole, test_dir_set_up,
                                        test_dir_tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_replaced_stays, test_dir_set_up,
                                        test_dir_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
