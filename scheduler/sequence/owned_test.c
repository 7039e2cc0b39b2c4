/* scheduler/sequence/owned_test.c - tests how the sequences of a named key and their state are
 * counted: from answers, from the store, and after what no answer says. */
#include "access/account.h"
#include "scheduler/queue/model_queue_priv.h"

#include "scheduler/test_support.h"

#define SOON_MS 2100    /* the store is counted again after a doubt */
#define MINUTE_MS 60100 /* and anyway */

static struct cn_accounts *accounts;
static struct cn_account *shop;
static struct rig *rig;
static struct fake *fake;
static struct cn_account_use use;

static void
take_use(void *ctx, const struct cn_account_use *found)
{
    (void)ctx;
    if (strcmp(found->name, "shop") == 0)
        use = *found;
}

static void
expect_use(uint64_t sequences, uint64_t bytes)
{
    cn_accounts_each(accounts, take_use, NULL);
    assert_int_equal(use.sequences, sequences);
    assert_int_equal(use.stored_bytes, bytes);
}

/* The worker answers the query that it has: `n` open sequences of the key, each of 10 bytes, and
 * one of another owner. `next`: the list goes on behind this id. */
static void
list(uint32_t n, const char *next)
{
    struct cn_sequence_info infos[8] = {0};
    struct cn_query_result result = {.sequences = infos, .next = cn_str_from(next)};
    char ids[8][16];
    struct cn_buf buf;

    fake_read(fake);
    assert_int_equal(fake->next_query + 1, fake->n_queries);
    result.query_id = fake->queries[fake->next_query++].id;
    result.n_sequences = n + 1;
    for (uint32_t i = 0; i <= n; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%s/%c", i < n ? "shop" : "zoo", 'a' + (int)i);
        infos[i] = (struct cn_sequence_info){.id = cn_str_from(ids[i]), .state_bytes = 10};
    }
    cn_buf_init(&buf, 0);
    cn_frame_put_result(&buf, &result);
    fake_write(fake, &buf);
    settle(rig);
}

/* The worker counts the store that it has. */
static void
worker_comes(uint32_t n)
{
    fake = fake_attach(rig);
    pass(rig, 10);
    list(n, "");
}

static int
setup(void **state)
{
    (void)state;
    accounts = cn_accounts_create();
    shop = cn_accounts_open(accounts, CN_STR("shop"));
    rig = rig_create(NULL);
    cn_model_queue_set_accounts(rig->queue, accounts);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    rig_destroy(rig);
    expect_use(0, 0); /* what a queue has counted goes with it */
    cn_accounts_destroy(accounts);
    return 0;
}

static void
begin(struct client *client, const char *id, uint32_t flags)
{
    client_prepare(client, rig->loop, id, "x", flags);
    client->job.owner = CN_STR("shop/");
    client->job.account = shop;
    cn_model_queue_submit(rig->queue, &client->job);
    settle(rig);
    fake_read(fake);
}

/* The worker answers the step that it has. */
static void
answer(uint32_t flags, int code, uint64_t state_bytes)
{
    struct cn_answer said = answer_to(&fake->rows[fake->next++]);

    said.flags |= flags;
    said.error_code = code;
    said.state_bytes = state_bytes;
    if (code)
        said.generation = 0;
    fake_send(fake, &said);
    settle(rig);
    fake_read(fake);
}

static void
limit_sequences(uint64_t most)
{
    cn_account_set_limits(shop, &(struct cn_key_limits){.sequences = most});
}

static void
answers_change_the_numbers(void **state)
{
    struct client c;

    (void)state;
    worker_comes(0);
    begin(&c, "shop/a", 0);
    expect_use(0, 0);
    assert_int_equal(use.in_flight, 1);
    answer(CN_ANSWER_OPENED, 0, 100);
    expect_use(1, 100);
    assert_int_equal(use.in_flight, 0);
    begin(&c, "shop/a", 0);
    answer(0, 0, 30);
    expect_use(1, 30);
    begin(&c, "shop/a", 0);
    answer(0, CN_E_HANDLER_FAILED, CN_STATE_BYTES_UNKNOWN);
    expect_use(1, 30);
    begin(&c, "shop/b", 0);
    answer(CN_ANSWER_OPENED, 0, 5);
    expect_use(2, 35);
    begin(&c, "shop/a", CN_ROW_END);
    answer(CN_ANSWER_ENDED, 0, 0);
    expect_use(1, 5);
    begin(&c, "shop/c", CN_ROW_START | CN_ROW_END);
    answer(CN_ANSWER_OPENED | CN_ANSWER_ENDED, 0, 0);
    expect_use(1, 5);
}

/* A sequence that was in the store is not counted twice when its next step comes. */
static void
the_store_is_counted_first(void **state)
{
    struct client c;

    (void)state;
    worker_comes(3);
    expect_use(3, 30);
    begin(&c, "shop/b", 0);
    answer(0, 0, 10);
    expect_use(3, 30);
    begin(&c, "shop/b", 0);
    answer(0, 0, 14);
    expect_use(3, 34);
    begin(&c, "shop/c", CN_ROW_END);
    answer(CN_ANSWER_ENDED, 0, 0);
    expect_use(3, 34); /* its size was not known */
    pass(rig, SOON_MS);
    list(2, "");
    expect_use(2, 20);
}

/* A START under an id that is only in the store takes no second place, and one that also ends
 * gives its place back when the store is counted. */
static void
a_start_replaces_what_is_in_the_store(void **state)
{
    struct client c;

    (void)state;
    worker_comes(3);
    expect_use(3, 30);
    begin(&c, "shop/b", CN_ROW_START);
    answer(CN_ANSWER_OPENED | CN_ANSWER_REPLACED, 0, 14);
    expect_use(3, 30); /* the bytes of the old one are not known */
    begin(&c, "shop/b", 0);
    answer(0, 0, 20);
    expect_use(3, 36);
    pass(rig, SOON_MS);
    list(3, "");
    expect_use(3, 30);
    begin(&c, "shop/c", CN_ROW_START | CN_ROW_END);
    answer(CN_ANSWER_OPENED | CN_ANSWER_REPLACED | CN_ANSWER_ENDED, 0, 0);
    pass(rig, 30 * SOON_MS);
    list(2, "");
    expect_use(2, 20);
}

/* Pages: a change behind the list's place is found by the list, one before it is added. */
static void
steps_go_on_while_the_store_is_counted(void **state)
{
    struct client c;

    (void)state;
    worker_comes(1);
    begin(&c, "shop/a", 0);
    answer(0, 0, 10);
    pass(rig, MINUTE_MS);
    list(1, "shop/m");
    begin(&c, "shop/a", 0);
    answer(0, 0, 50);
    begin(&c, "shop/x", 0);
    answer(CN_ANSWER_OPENED, 0, 7);
    expect_use(2, 57);
    pass(rig, 60);
    list(1, ""); /* it stands for shop/x, which has 10 bytes there */
    expect_use(2, 60);
}

static void
a_place_is_reserved_until_the_answer(void **state)
{
    struct client a, b, c;

    (void)state;
    worker_comes(0);
    limit_sequences(2);
    begin(&a, "shop/a", 0);
    begin(&b, "shop/b", CN_ROW_START);
    begin(&c, "shop/c", CN_ROW_START);
    assert_int_equal(c.error, CN_E_KEY_LIMIT);
    assert_int_equal(c.retry_after_s, CN_ACCOUNT_RETRY_S);
    assert_string_equal(c.text,
                        "the key shop has 2 sequences open or about to open, and its limit is 2 "
                        "(maxNumSequence); end one before you begin another");
    answer(0, CN_E_HANDLER_FAILED, CN_STATE_BYTES_UNKNOWN); /* the first one opens nothing */
    begin(&c, "shop/c", CN_ROW_START);
    assert_int_equal(c.finals, 0);
    answer_all(rig, fake);
}

/* Only the worker knows whether the store has a sequence. */
static void
at_the_limit_a_stored_sequence_goes_on(void **state)
{
    struct client c;

    (void)state;
    worker_comes(2);
    limit_sequences(2);
    begin(&c, "shop/b", 0);
    assert_true(fake->rows[fake->next].flags & CN_ROW_MUST_EXIST);
    answer(0, 0, 10);
    assert_int_equal(c.error, 0);
    begin(&c, "shop/z", 0);
    assert_true(fake->rows[fake->next].flags & CN_ROW_MUST_EXIST);
    answer(0, CN_E_SEQUENCE_UNKNOWN, CN_STATE_BYTES_UNKNOWN);
    assert_int_equal(c.error, CN_E_KEY_LIMIT);
    begin(&c, "shop/z", CN_ROW_START);
    assert_int_equal(c.error, CN_E_KEY_LIMIT);
    begin(&c, "shop/z", CN_ROW_MUST_EXIST); /* the client asks for no new one */
    answer(0, CN_E_SEQUENCE_UNKNOWN, CN_STATE_BYTES_UNKNOWN);
    assert_int_equal(c.error, CN_E_SEQUENCE_UNKNOWN);
    begin(&c, "shop/b", CN_ROW_START); /* the same number of sequences */
    answer(CN_ANSWER_OPENED, 0, 10);
    assert_int_equal(c.error, 0);
    expect_use(2, 20);
}

static void
a_full_key_can_only_end_sequences(void **state)
{
    struct client c;

    (void)state;
    worker_comes(0);
    cn_account_set_limits(shop, &(struct cn_key_limits){.stored_bytes = 10});
    begin(&c, "shop/a", 0);
    answer(CN_ANSWER_OPENED, 0, 10);
    begin(&c, "shop/a", 0);
    assert_int_equal(c.error, CN_E_KEY_LIMIT);
    begin(&c, "shop/b", 0);
    assert_int_equal(c.error, CN_E_KEY_LIMIT);
    begin(&c, "shop/a", CN_ROW_END);
    answer(CN_ANSWER_ENDED, 0, 0);
    begin(&c, "shop/b", 0);
    answer(CN_ANSWER_OPENED, 0, 1);
    assert_int_equal(c.error, 0);
}

/* Its last answers were perhaps lost, and a worker's own store is lost with it. */
static void
the_store_is_counted_again_after_a_death(void **state)
{
    struct client c;

    (void)state;
    worker_comes(0);
    begin(&c, "shop/a", 0);
    answer(CN_ANSWER_OPENED, 0, 10);
    pass(rig, SOON_MS);
    fake_die(fake, false, "killed");
    expect_use(1, 10);
    fake = fake_attach(rig);
    pass(rig, SOON_MS);
    list(0, "");
    expect_use(0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_change_the_numbers),
        TEST(the_store_is_counted_first),
        TEST(a_start_replaces_what_is_in_the_store),
        TEST(steps_go_on_while_the_store_is_counted),
        TEST(a_place_is_reserved_until_the_answer),
        TEST(at_the_limit_a_stored_sequence_goes_on),
        TEST(a_full_key_can_only_end_sequences),
        TEST(the_store_is_counted_again_after_a_death),
    };

    return cmocka_run_group_tests_name("scheduler.owned", tests, NULL, NULL);
}
