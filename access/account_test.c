/* access/account_test.c - tests what the limits of a key let in. Times are given, not waited
 * for. */
#include "access/account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECOND_US 1000000

static struct cn_accounts *accounts;
static struct cn_account *account;
static struct cn_error err;
static uint32_t retry_after_s;

static int
setup(void **state)
{
    (void)state;
    accounts = cn_accounts_create();
    account = cn_accounts_open(accounts, CN_STR("shop"));
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    cn_accounts_destroy(accounts);
    return 0;
}

/* How many of `n` requests at this time are let in; each is answered at once. */
static int
let_in(int n, uint64_t now_us)
{
    int done = 0;

    for (int i = 0; i < n; i++)
        if (cn_account_begin(account, now_us, &retry_after_s, &err) == 0) {
            cn_account_end(account);
            done++;
        }
    return done;
}

static struct cn_account_use use;

static void
take_use(void *ctx, const struct cn_account_use *found)
{
    (void)ctx;
    use = *found;
}

static void
without_limits_everything_is_let_in(void **state)
{
    (void)state;
    assert_int_equal(let_in(1000, 1), 1000);
    for (int i = 0; i < 100; i++)
        assert_true(cn_account_reserve(account));
    cn_account_add(account, 100, INT64_C(1) << 50);
    assert_int_equal(cn_account_check_stored(account, 1, &err), 0);
}

/* A burst may come at once, and then as many as the rate says. Unused time fills the bucket, but no
 * further. */
static void
a_rate_is_kept(void **state)
{
    const uint64_t now = 77 * SECOND_US;

    (void)state;
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 10, .burst = 3});
    assert_int_equal(let_in(5, now), 3);
    assert_int_equal(err.code, CN_E_KEY_LIMIT);
    assert_string_equal(err.message, "the key shop may send 10 requests a second, and 3 at once "
                                     "(rate, burst); the next one in 101 ms");
    assert_int_equal(retry_after_s, 1);
    assert_int_equal(let_in(5, now + 99999), 0);
    assert_int_equal(let_in(5, now + 100000), 1);
    assert_int_equal(let_in(5, now + 300000), 2);
    assert_int_equal(let_in(99, now + 60 * SECOND_US), 3);
    cn_accounts_each(accounts, take_use, NULL);
    assert_int_equal(use.requests, 9);
    assert_int_equal(use.refused[CN_ACCOUNT_RATE], 2 + 5 + 4 + 3 + 96);
    assert_int_equal(use.in_flight, 0);
}

/* Without a burst, the requests of one second may come at once. */
static void
the_burst_is_a_second_of_the_rate(void **state)
{
    (void)state;
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 5});
    assert_int_equal(let_in(99, 1), 5);
    assert_int_equal(let_in(99, 1 + SECOND_US), 5);
}

/* A key that has used a large burst must not wait for it under another rate. */
static void
a_new_rate_begins_with_a_full_bucket(void **state)
{
    (void)state;
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 1, .burst = CN_KEY_RATE_MAX});
    assert_int_equal(let_in(CN_KEY_RATE_MAX + 1, 1), CN_KEY_RATE_MAX);
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 2, .burst = 4});
    assert_int_equal(let_in(9, 1), 4);
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 2, .burst = 4, .sequences = 9});
    assert_int_equal(let_in(9, 1), 0);
    cn_account_set_limits(account, &(struct cn_key_limits){.rate = 0});
    assert_int_equal(let_in(9, 1), 9);
}

/* A refused request takes no place and no token. */
static void
requests_under_way_are_counted(void **state)
{
    (void)state;
    cn_account_set_limits(account,
                          &(struct cn_key_limits){.concurrency = 2, .rate = 1, .burst = 3});
    assert_int_equal(cn_account_begin(account, 1, &retry_after_s, &err), 0);
    assert_int_equal(cn_account_begin(account, 1, &retry_after_s, &err), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(cn_account_begin(account, 1, &retry_after_s, &err), CN_E_KEY_LIMIT);
    assert_string_equal(err.message, "the key shop has 2 requests under way, which is its limit "
                                     "(concurrency); send the next one after an answer");
    cn_account_end(account);
    assert_int_equal(cn_account_begin(account, 1, &retry_after_s, &err), 0);
    cn_account_end(account);
    assert_int_equal(cn_account_begin(account, 1, &retry_after_s, &err), CN_E_KEY_LIMIT);
    assert_non_null(strstr(err.message, "(rate, burst)"));
    cn_account_end(account);
    cn_accounts_each(accounts, take_use, NULL);
    assert_int_equal(use.in_flight, 0);
}

/* A step that may open a sequence holds a place until it is known whether it has. */
static void
sequences_and_reservations_share_the_places(void **state)
{
    (void)state;
    cn_account_set_limits(account, &(struct cn_key_limits){.sequences = 2});
    assert_true(cn_account_reserve(account));
    cn_account_add(account, 1, 10);
    cn_account_unreserve(account);
    assert_true(cn_account_reserve(account));
    assert_false(cn_account_reserve(account));
    cn_account_unreserve(account);
    assert_true(cn_account_reserve(account));
    assert_int_equal(cn_account_refuse_sequence(account, 1, &err), CN_E_KEY_LIMIT);
    assert_string_equal(err.message,
                        "the key shop has 2 sequences open or about to open, and its limit is 2 "
                        "(maxNumSequence); end one before you begin another");
}

static void
stored_bytes_are_compared(void **state)
{
    (void)state;
    cn_account_set_limits(account, &(struct cn_key_limits){.stored_bytes = 100});
    cn_account_add(account, 1, 99);
    assert_int_equal(cn_account_check_stored(account, 1, &err), 0);
    cn_account_add(account, 0, 1);
    assert_int_equal(cn_account_check_stored(account, 1, &err), CN_E_KEY_LIMIT);
    assert_non_null(strstr(err.message, "hold 100 bytes of state, and its limit is 100"));
    cn_account_add(account, -1, -101); /* a count may be wrong for a while, and shows as none */
    assert_int_equal(cn_account_check_stored(account, 1, &err), 0);
    cn_accounts_each(accounts, take_use, NULL);
    assert_int_equal(use.stored_bytes, 0);
}

static void
the_owner_is_found_by_the_id(void **state)
{
    (void)state;
    assert_ptr_equal(cn_accounts_open(accounts, CN_STR("shop")), account);
    assert_ptr_equal(cn_accounts_of_sequence(accounts, CN_STR("shop/a/b")), account);
    assert_null(cn_accounts_of_sequence(accounts, CN_STR("shop")));
    assert_null(cn_accounts_of_sequence(accounts, CN_STR("sho/a")));
    assert_null(cn_accounts_of_sequence(accounts, CN_STR("")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_limits_everything_is_let_in),
        TEST(a_rate_is_kept),
        TEST(the_burst_is_a_second_of_the_rate),
        TEST(a_new_rate_begins_with_a_full_bucket),
        TEST(requests_under_way_are_counted),
        TEST(sequences_and_reservations_share_the_places),
        TEST(stored_bytes_are_compared),
        TEST(the_owner_is_found_by_the_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
