/* store/journal/salvage/repair_room_test.c - a store is repaired whatever its size. The repair
 * knows no limits of the model, because the server asks for it before the model is loaded. */
#include "store/journal/test_journal.h"

#define N_WORDS 400
#define VALUE_BYTES 200000

static void
put_large(struct cn_store *store, uint32_t i)
{
    char *bytes = malloc(VALUE_BYTES), key[32];
    struct cn_error err = {0};

    assert_non_null(bytes);
    memset(bytes, (int)('a' + i % 26), VALUE_BYTES);
    begin(store, CN_STORE_WRITE);
    assert_int_equal(cn_store_put(store, key_of(key, i), (struct cn_str){bytes, VALUE_BYTES}, NULL),
                     0);
    if (cn_store_commit(store, &err) != 0)
        fail_msg("%s", err.message);
    cn_store_work_off(store);
    free(bytes);
}

static void
expect_large(struct cn_store *store, uint32_t i)
{
    struct cn_str value;
    char key[32];

    assert_int_equal(cn_store_get(store, key_of(key, i), &value, NULL), 0);
    assert_int_equal(value.len, VALUE_BYTES);
    assert_int_equal(value.ptr[0], 'a' + i % 26);
    assert_int_equal(value.ptr[VALUE_BYTES - 1], 'a' + i % 26);
}

static void
lose_ledger(const char *dir, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(truncate(path, 0), 0);
}

static void
a_store_beyond_the_limit_is_repaired(void **state)
{
    struct cn_store *store = open_with(
        *state, (struct cn_disk_options){.max_bytes = 512u << 20, .journal_max_bytes = 16u << 20});

    for (uint32_t i = 0; i < N_WORDS; i++)
        put_large(store, i);
    cn_store_close(store);
    lose_ledger(*state, "ledger.0");
    lose_ledger(*state, "ledger.1");
    store = open_with(*state, (struct cn_disk_options){.max_bytes = 1u << 20,
                                                       .journal_max_bytes = 65536,
                                                       .repair_only = true});
    begin(store, CN_STORE_READ);
    for (uint32_t i = 0; i < N_WORDS; i++)
        expect_large(store, i);
    cn_store_abort(store);
    cn_store_close(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_store_beyond_the_limit_is_repaired, test_dir_set_up,
                                        remove_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
