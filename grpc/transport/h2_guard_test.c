/* grpc/transport/h2_guard_test.c - tests how many calls a gRPC connection may cancel. */
#include "grpc/transport/h2_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "frontend/intake/client_addresses.h"

static const struct cn_h2_limits limits = {.resets = 10};
static const uint8_t reset[13] = {0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8};

static void
begin(struct cn_h2_guard *guard)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    cn_h2_guard_init(guard, &limits);
    assert_true(cn_h2_guard_feed(guard, &limits, NULL, preface, sizeof(preface) - 1));
}

/* How many calls can be cancelled now, up to 1000? */
static unsigned
cancelled(struct cn_h2_guard *guard, struct cn_client_address *from)
{
    unsigned n = 0;

    while (n < 1000 && cn_h2_guard_feed(guard, &limits, from, reset, sizeof(reset)))
        n++;
    return n;
}

static void
so_many_a_second(void **state)
{
    struct cn_h2_guard guard;

    (void)state;
    cn_clock_freeze();
    begin(&guard);
    assert_int_equal(cancelled(&guard, NULL), 20);
    cn_clock_advance(500);
    guard.skip = 0; /* the refused frame's payload was never read */
    assert_int_equal(cancelled(&guard, NULL), 5);
    cn_clock_advance(60000);
    guard.skip = 0;
    assert_int_equal(cancelled(&guard, NULL), 20);
}

/* A byte that looks like RST_STREAM inside of a message does not count. */
static void
payloads_are_skipped(void **state)
{
    static uint8_t data[9 + 1000] = {0, 3, 0xe8, 0, 1, 0, 0, 0, 1};
    struct cn_h2_guard guard;

    (void)state;
    cn_clock_freeze();
    memset(data + 9, 3, 1000);
    begin(&guard);
    for (unsigned i = 0; i < 100; i++)
        for (size_t at = 0; at < sizeof(data); at += 7)
            assert_true(cn_h2_guard_feed(&guard, &limits, NULL, data + at,
                                         sizeof(data) - at < 7 ? sizeof(data) - at : 7));
    assert_int_equal(guard.n_head, 0);
    assert_int_equal(cancelled(&guard, NULL), 20);
}

/* Where the payload of a DATA frame goes on is known, and nothing else is taken for one. */
static void
it_knows_where_data_are(void **state)
{
    uint8_t head[9] = {0, 3, 0xe8, 0, 1, 0x80, 0, 1, 7}, payload[1000] = {0};
    struct cn_h2_guard guard;
    int32_t stream = -1;

    (void)state;
    cn_h2_guard_init(&guard, &limits);
    begin(&guard);
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 0);
    for (size_t i = 0; i < sizeof(head); i++) {
        assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 0);
        cn_h2_guard_feed(&guard, &limits, NULL, head + i, 1);
    }
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 1000);
    assert_int_equal(stream, 263); /* without the reserved bit */
    cn_h2_guard_feed(&guard, &limits, NULL, payload, 999);
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 1);
    cn_h2_guard_feed(&guard, &limits, NULL, payload, 1);
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 0);
    head[4] = 8; /* padded */
    cn_h2_guard_feed(&guard, &limits, NULL, head, sizeof(head));
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 0);
    cn_h2_guard_feed(&guard, &limits, NULL, payload, sizeof(payload));
    head[4] = 0;
    head[3] = 1; /* HEADERS */
    cn_h2_guard_feed(&guard, &limits, NULL, head, sizeof(head));
    assert_int_equal(cn_h2_guard_in_data(&guard, &stream), 0);
}

static void
zero_is_without_limit(void **state)
{
    const struct cn_h2_limits none = {0};
    struct cn_h2_guard guard;

    (void)state;
    cn_h2_guard_init(&guard, &none);
    guard.skip = 0;
    for (unsigned i = 0; i < 100000; i++)
        assert_true(cn_h2_guard_feed(&guard, &none, NULL, reset, sizeof(reset)));
}

/* Many connections of one address share four times what one may do. */
static void
an_address_is_bounded(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct cn_client_address *from;
    unsigned sum = 0;

    (void)state;
    cn_clock_freeze();
    assert_true(cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_GRPC, 1, 0, &from));
    for (unsigned i = 0; i < 10; i++) {
        struct cn_h2_guard guard;

        begin(&guard);
        sum += cancelled(&guard, from);
    }
    assert_int_equal(sum, 40);
    cn_client_address_release(from, CN_ADDRESS_GRPC);
}

static void
addresses_are_told_apart(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6}, mapped = {.sin6_family = AF_INET6};
    struct sockaddr none = {.sa_family = AF_UNIX};
    struct cn_client_address *a, *b, *c, *d, *e;

    (void)state;
    inet_pton(AF_INET, "10.0.0.1", &in.sin_addr);
    inet_pton(AF_INET6, "2001:db8::1", &in6.sin6_addr);
    inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr);
    assert_true(cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_INFERENCE, 2, 0, &a));
    assert_true(cn_client_address_take((struct sockaddr *)&in6, CN_ADDRESS_INFERENCE, 2, 0, &b));
    inet_pton(AF_INET6, "2001:db8::2", &in6.sin6_addr);
    assert_true(cn_client_address_take((struct sockaddr *)&in6, CN_ADDRESS_INFERENCE, 2, 0, &c));
    assert_true(cn_client_address_take((struct sockaddr *)&mapped, CN_ADDRESS_INFERENCE, 2, 0, &d));
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(b, c);
    assert_ptr_equal(a, d);
    assert_false(cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_INFERENCE, 2, 0, &e));
    assert_true(cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_GRPC, 2, 0, &e));
    cn_client_address_release(e, CN_ADDRESS_GRPC);
    cn_client_address_release(d, CN_ADDRESS_INFERENCE);
    assert_true(cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_INFERENCE, 2, 0, &d));
    assert_true(cn_client_address_take(&none, CN_ADDRESS_INFERENCE, 0, 0, &e));
    assert_null(e);
    cn_client_address_release(NULL, CN_ADDRESS_INFERENCE);
}

/* Without a limit of its own, an address leaves room for others. */
static void
one_address_leaves_room_for_others(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET}, other = {.sin_family = AF_INET};
    struct cn_client_address *taken[100], *others[100];
    unsigned n = 0, k = 0;

    (void)state;
    inet_pton(AF_INET, "10.1.0.1", &in.sin_addr);
    inet_pton(AF_INET, "10.1.0.2", &other.sin_addr);
    while (cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_METRICS, 0, 100, &taken[n]))
        n++;
    assert_int_equal(n, 90);
    while (
        cn_client_address_take((struct sockaddr *)&other, CN_ADDRESS_METRICS, 0, 100, &others[k]))
        k++;
    assert_int_equal(k, 9);
    while (n > 0)
        cn_client_address_release(taken[--n], CN_ADDRESS_METRICS);
    while (
        cn_client_address_take((struct sockaddr *)&other, CN_ADDRESS_METRICS, 0, 100, &others[k]))
        k++;
    assert_int_equal(k, 90);
    /* The first one is counted even where nothing is free, so that it can be told why. */
    assert_true(
        cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_METRICS, 0, 0, &taken[n++]));
    assert_false(
        cn_client_address_take((struct sockaddr *)&in, CN_ADDRESS_METRICS, 0, 0, &taken[n]));
    cn_client_address_release(taken[0], CN_ADDRESS_METRICS);
    while (k > 0)
        cn_client_address_release(others[--k], CN_ADDRESS_METRICS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_a_second),
        cmocka_unit_test(payloads_are_skipped),
        cmocka_unit_test(it_knows_where_data_are),
        cmocka_unit_test(zero_is_without_limit),
        cmocka_unit_test(an_address_is_bounded),
        cmocka_unit_test(addresses_are_told_apart),
        cmocka_unit_test(one_address_leaves_room_for_others),
    };

    return cmocka_run_group_tests_name("grpc.h2_guard", tests, NULL, NULL);
}
