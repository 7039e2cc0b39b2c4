/* core/whole_test.c - output is whole, or it is an error. */
#include "core/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
    assert_int_equal(cn_write_whole(fds[1], sent, SENT_BYTES), 0);
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
    assert_int_equal(cn_write_whole(full, "", 0), 0);
    assert_int_equal(cn_write_whole(full, "x", 1), ENOSPC);
    close(full);
    assert_int_equal(cn_write_whole(-1, "x", 1), EBADF);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(cn_write_whole(fds[1], "x", 1), EPIPE);
    close(fds[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_a_pipe_holds_is_written_in_parts),
        cmocka_unit_test(what_cannot_be_written_is_an_errno),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
