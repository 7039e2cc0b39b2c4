/* grpc/transport/outbox_test.c - tests how frames are put together and sent in parts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "grpc/transport/transport_priv.h"

#define RUN CN_GRPC_OUT_BORROWED

static struct cn_grpc_outbox out;
static uint8_t large[3 * RUN];
static struct cn_buf expected;

static void
copy(const void *bytes, size_t len)
{
    cn_grpc_outbox_copy(&out, bytes, len);
    cn_buf_append(&expected, bytes, len);
}

static void
borrow(const void *bytes, size_t len)
{
    cn_grpc_outbox_borrow(&out, bytes, len);
    cn_buf_append(&expected, bytes, len);
}

/* Two frames of a large message, with what comes before and after them. */
static void
begin(void)
{
    memset(&out, 0, sizeof(out));
    out.copied = cn_alloc(CN_GRPC_OUT_ROOM);
    cn_buf_init(&expected, 0);
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (uint8_t)(i * 31 / 7);
    copy("headers", 7);
    copy("head of a frame", 15);
    borrow(large, RUN);
    copy("another", 7);
    borrow(large + RUN, 2 * RUN);
    borrow("small", 5);
    copy("trailers", 8);
}

static void
end(void)
{
    cn_free(out.copied);
    cn_buf_fini(&expected);
}

/* Only large runs are parts of their own, and they are not copied. */
static void
small_bytes_are_one_part(void **state)
{
    (void)state;
    begin();
    assert_int_equal(out.n_parts, 5);
    assert_int_equal(out.bytes, expected.len);
    assert_int_equal(out.n_copied, expected.len - 3 * RUN);
    assert_ptr_equal(out.parts[1].iov_base, large);
    assert_ptr_equal(out.parts[3].iov_base, large + RUN);
    cn_grpc_outbox_clear(&out);
    assert_int_equal(out.bytes, 0);
    copy("x", 1);
    assert_int_equal(out.n_parts, 1);
    end();
}

/* What the socket has not taken is the same bytes, wherever it has stopped. */
static void
the_rest_begins_anywhere(void **state)
{
    (void)state;
    begin();
    for (size_t at = 0; at <= expected.len; at++) {
        struct cn_buf rest;

        cn_buf_init(&rest, 0);
        assert_int_equal(cn_grpc_outbox_keep(&out, at, &rest), 0);
        assert_int_equal(rest.len, expected.len - at);
        if (rest.len)
            assert_memory_equal(rest.data, expected.data + at, rest.len);
        cn_buf_fini(&rest);
    }
    end();
}

/* A socket that is full says how many bytes it has taken, and they are the first ones. */
static void
a_full_socket_takes_a_part(void **state)
{
    static char got[8 * RUN];
    const int room = 1;
    size_t sent = 0;
    ssize_t n;
    int fds[2];

    (void)state;
    begin();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    n = cn_grpc_outbox_send(&out, fds[0]);
    assert_in_range(n, 1, out.bytes - 1);
    sent = (size_t)n;
    assert_int_equal(cn_grpc_outbox_send(&out, fds[0]), 0);
    assert_int_equal(recv(fds[1], got, sizeof(got), 0), sent);
    assert_memory_equal(got, expected.data, sent);
    close(fds[1]);
    assert_int_equal(cn_grpc_outbox_send(&out, fds[0]), -1);
    close(fds[0]);
    end();
}

static void
an_empty_socket_takes_all(void **state)
{
    static char got[8 * RUN];
    int fds[2];

    (void)state;
    begin();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(cn_grpc_outbox_send(&out, fds[0]), expected.len);
    assert_int_equal(recv(fds[1], got, sizeof(got), MSG_WAITALL | MSG_DONTWAIT), expected.len);
    assert_memory_equal(got, expected.data, expected.len);
    cn_grpc_outbox_clear(&out);
    copy("one part", 8);
    assert_int_equal(cn_grpc_outbox_send(&out, fds[0]), 8);
    assert_int_equal(recv(fds[1], got, sizeof(got), 0), 8);
    close(fds[0]);
    close(fds[1]);
    end();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_bytes_are_one_part),
        cmocka_unit_test(the_rest_begins_anywhere),
        cmocka_unit_test(a_full_socket_takes_a_part),
        cmocka_unit_test(an_empty_socket_takes_all),
    };

    return cmocka_run_group_tests_name("grpc.outbox", tests, NULL, NULL);
}
