/* frontend/server/grpc_seats_test.c - tests the count of connections that the gRPC library
 * closes. */
#include "frontend/server/grpc_seats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX 4

static int
connection(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    return fd;
}

/* The limit is exact, and a refused client takes nobody's seat. */
static void
so_many_and_no_more(void **state)
{
    struct cn_grpc_seats seats = {0};
    int fds[MAX], over, i;

    (void)state;
    for (i = 0; i < MAX; i++)
        assert_true(cn_grpc_seats_take(&seats, fds[i] = connection(), MAX, 0));
    over = connection();
    assert_false(cn_grpc_seats_take(&seats, over, MAX, 1000));
    assert_false(cn_grpc_seats_take(&seats, over, MAX, 2000));
    close(over);
    for (i = 0; i < MAX; i++)
        close(fds[i]);
    cn_grpc_seats_fini(&seats);
}

/* If a new connection gets the descriptor number of an earlier one, it is not counted twice,
 * however often that happens. */
static void
a_number_is_one_seat(void **state)
{
    struct cn_grpc_seats seats = {0};
    int i, fd;

    (void)state;
    for (i = 0; i < 100; i++) {
        assert_true(cn_grpc_seats_take(&seats, fd = connection(), 1, 0));
        close(fd);
    }
    assert_int_equal(seats.taken, 1);
    cn_grpc_seats_fini(&seats);
}

/* If a number now belongs to another file, its connection is gone. The seats are checked for this,
 * but not too often. */
static void
seats_that_were_left_are_found(void **state)
{
    struct cn_grpc_seats seats = {0};
    int fds[MAX], others[MAX], late, i;

    (void)state;
    for (i = 0; i < MAX; i++)
        assert_true(cn_grpc_seats_take(&seats, fds[i] = connection(), MAX, 0));
    late = connection();
    assert_false(cn_grpc_seats_take(&seats, late, MAX, 10));
    close(fds[0]);
    close(fds[2]);
    for (i = 0; i < 2; i++)
        others[i] = connection(); /* they get the numbers of the connections that were closed */
    assert_false(cn_grpc_seats_take(&seats, late, MAX, 10 + CN_GRPC_SEATS_LOOK_MS - 1));
    assert_true(cn_grpc_seats_take(&seats, late, MAX, 10 + CN_GRPC_SEATS_LOOK_MS));
    assert_int_equal(seats.taken, MAX - 1);
    close(late);
    close(fds[1]);
    close(fds[3]);
    for (i = 0; i < 2; i++)
        close(others[i]);
    cn_grpc_seats_fini(&seats);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_and_no_more),
        cmocka_unit_test(a_number_is_one_seat),
        cmocka_unit_test(seats_that_were_left_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
