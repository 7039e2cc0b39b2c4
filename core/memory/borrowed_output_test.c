/* core/memory/borrowed_output_test.c - tests that borrowed bytes are sent in their place, however
 * many bytes the socket takes at once. */
#include "core/memory/borrowed_output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory/mem.h"

/* Writes forty pieces with the buffer's own bytes between them, and takes `max` bytes at a time.
 * Every third time the buffer gives back what was sent. */
static void
send_in_steps(size_t max)
{
    static char large[40][1000];
    char got[64 * 1024], expected[64 * 1024];
    size_t n = 0, len = 0, sent = 0;
    uint32_t unsent = 0;
    struct cn_borrowed_output borrowed;
    struct cn_buf buf;
    ssize_t rc;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    cn_borrowed_output_init(&borrowed);
    cn_buf_init(&buf, 0);
    for (int i = 0; i < 40; i++) {
        memset(large[i], 'a' + i % 26, sizeof(large[i]));
        if (i % 5) { /* some follow one another */
            cn_buf_puts(&buf, "between");
            memcpy(expected + len, "between", 7);
            len += 7;
        }
        cn_borrowed_output_add(&borrowed, &buf, (struct cn_str){large[i], sizeof(large[i])},
                               &unsent);
        memcpy(expected + len, large[i], sizeof(large[i]));
        len += sizeof(large[i]);
    }
    cn_buf_puts(&buf, "end");
    memcpy(expected + len, "end", 3);
    len += 3;
    assert_int_equal(unsent, 40);
    assert_int_equal(borrowed.bytes, 40000);
    for (int step = 0; sent < buf.len || cn_borrowed_output_pending(&borrowed); step++) {
        rc = cn_borrowed_output_send(&borrowed, &buf, &sent, max, fds[0], MSG_DONTWAIT);
        assert_true(rc > 0 && (size_t)rc <= max);
        assert_int_equal(recv(fds[1], got + n, sizeof(got) - n, MSG_WAITALL | MSG_DONTWAIT), rc);
        n += (size_t)rc;
        assert_true(unsent <= 40 - n / 1100);
        if (step % 3 == 2) {
            cn_borrowed_output_consume(&borrowed, sent);
            cn_buf_consume(&buf, sent);
            sent = 0;
        }
    }
    assert_int_equal(unsent, 0);
    assert_int_equal(n, len);
    assert_memory_equal(got, expected, len);
    cn_borrowed_output_fini(&borrowed);
    cn_buf_fini(&buf);
    close(fds[0]);
    close(fds[1]);
}

static void
all_is_sent_in_order(void **state)
{
    static const size_t steps[] = {1, 7, 100, 999, 1000, 1001, 1007, 5000, 1 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        send_in_steps(steps[i]);
}

static void
without_anything_lent_it_is_a_plain_send(void **state)
{
    struct cn_borrowed_output borrowed;
    struct cn_buf buf;
    size_t sent = 0;
    char got[16];
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    cn_borrowed_output_init(&borrowed);
    cn_buf_init(&buf, 0);
    cn_buf_puts(&buf, "frame");
    assert_int_equal(cn_borrowed_output_send(&borrowed, &buf, &sent, SIZE_MAX, fds[0], 0), 5);
    assert_int_equal(sent, 5);
    assert_int_equal(recv(fds[1], got, sizeof(got), 0), 5);
    assert_memory_equal(got, "frame", 5);
    close(fds[1]);
    sent = 0;
    assert_int_equal(
        cn_borrowed_output_send(&borrowed, &buf, &sent, SIZE_MAX, fds[0], MSG_NOSIGNAL), -1);
    assert_int_equal(sent, 0);
    cn_buf_fini(&buf);
    close(fds[0]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_sent_in_order),
        cmocka_unit_test(without_anything_lent_it_is_a_plain_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
