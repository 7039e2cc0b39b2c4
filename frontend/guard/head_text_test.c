/* frontend/guard/head_text_test.c - a text in the head of an answer, however little is sent at a
 * time. */
#include "frontend/guard/head_text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char seen[256];
static size_t n_seen, room;

/* A socket that takes `room` bytes in each call. */
static ssize_t
take(int fd, const struct msghdr *msg, int flags)
{
    size_t taken = 0;

    assert_int_equal(fd, 7);
    assert_int_equal(flags, MSG_NOSIGNAL);
    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        size_t len = msg->msg_iov[i].iov_len;

        len = len < room - taken ? len : room - taken;
        assert_true(n_seen + len <= sizeof(seen));
        if (len)
            memcpy(seen + n_seen, msg->msg_iov[i].iov_base, len);
        n_seen += len;
        taken += len;
    }
    if (taken > 0)
        return (ssize_t)taken;
    errno = EAGAIN;
    return -1;
}

/* Sends head and body in the way in which libmicrohttpd does. Returns how many calls failed. */
static unsigned
send_answer(struct cn_str text, struct cn_str head, struct cn_str body)
{
    size_t sent = 0, all = head.len + body.len;
    unsigned failed = 0;

    n_seen = 0;
    while (sent < all) {
        const size_t of_head = sent < head.len ? sent : head.len, of_body = sent - of_head;
        const struct iovec parts[] = {
            {(void *)(uintptr_t)(head.ptr + of_head), head.len - of_head},
            {(void *)(uintptr_t)(body.ptr + of_body), body.len - of_body}};
        const struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = 2};
        ssize_t n;

        n = text.len ? cn_head_text_send(&text, 7, parts, body.len ? 2 : 1, MSG_NOSIGNAL, take)
                     : take(7, &msg, MSG_NOSIGNAL);
        failed += n < 0;
        if (n < 0)
            assert_int_equal(errno, EAGAIN);
        else
            sent += (size_t)n;
        assert_true(sent <= all && (text.len == 0 || sent <= head.len - 2));
    }
    assert_int_equal(text.len, 0);
    return failed;
}

static void
the_text_stands_before_the_empty_line(void **state)
{
    static const char whole[] = "HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\nE: f\r\n\r\nbody";
    const struct cn_str head = CN_STR("HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
    struct cn_buf text;

    (void)state;
    cn_buf_init(&text, 0);
    cn_head_text_put(&text, CN_STR("C"), CN_STR("d"));
    cn_head_text_put(&text, CN_STR("E"), CN_STR("f"));
    for (room = 1; room < sizeof(whole); room++) {
        send_answer(cn_buf_str(&text), head, CN_STR("body"));
        assert_int_equal(n_seen, sizeof(whole) - 1);
        assert_memory_equal(seen, whole, n_seen);
        send_answer(cn_buf_str(&text), head, CN_STR(""));
        assert_int_equal(n_seen, sizeof(whole) - 1 - 4);
        assert_memory_equal(seen, whole, n_seen);
    }
    room = 1; /* while the text leaves, the caller gets no further */
    assert_int_equal(send_answer(cn_buf_str(&text), head, CN_STR("body")), text.len);
    cn_buf_fini(&text);
}

static ssize_t
break_off(int fd, const struct msghdr *msg, int flags)
{
    (void)fd, (void)msg, (void)flags;
    errno = EPIPE;
    return -1;
}

static void
an_error_is_passed_on(void **state)
{
    char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    const struct iovec part = {head, sizeof(head) - 1};
    struct cn_str text = CN_STR("A: b\r\n");

    (void)state;
    assert_int_equal(cn_head_text_send(&text, 7, &part, 1, 0, break_off), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(text.len, 6);
}

/* A name or a value can never begin another line. */
static void
a_header_that_would_break_the_line_is_left_out(void **state)
{
    static const struct cn_str bad[] = {CN_STR("a\rb"), CN_STR("a\nb"),
                                        CN_STR("longer than a word\r\n X: y"), CN_STR("a\0b"),
                                        CN_STR("a\x7f")};
    struct cn_buf text;

    (void)state;
    cn_buf_init(&text, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cn_head_text_put(&text, CN_STR("name"), bad[i]);
    cn_head_text_put(&text, CN_STR("na\r\nme"), CN_STR("value"));
    assert_int_equal(text.len, 0);
    cn_head_text_put(&text, CN_STR("name"), CN_STR(""));
    cn_head_text_put(&text, CN_STR("id"), CN_STR("\xc3\xa4 b"));
    assert_true(cn_str_eq(cn_buf_str(&text), CN_STR("name: \r\nid: \xc3\xa4 b\r\n")));
    cn_buf_fini(&text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_stands_before_the_empty_line),
        cmocka_unit_test(an_error_is_passed_on),
        cmocka_unit_test(a_header_that_would_break_the_line_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
