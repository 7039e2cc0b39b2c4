/* store/valkey/test_store.h - shared stores as the tests of this folder open them. */
#ifndef CN_STORE_VALKEY_TEST_STORE_H
#define CN_STORE_VALKEY_TEST_STORE_H

#include "store/link/test_server.h"
#include "store/record/record.h"
#include "store/shared_store.h"
#include "store/store.h"

/* The states of version 1 of the model m. `hosts` is borrowed. */
static inline struct cn_shared_options
test_store_options(const struct cn_shared_host *hosts, uint32_t n_hosts, uint32_t timeout_ms)
{
    return (struct cn_shared_options){.hosts = hosts,
                                      .n_hosts = n_hosts,
                                      .master = "",
                                      .user = "",
                                      .password = "",
                                      .prefix = "t",
                                      .model = "m",
                                      .version = "1",
                                      .timeout_ms = timeout_ms};
}

static inline struct cn_store *
test_store_open(const struct cn_shared_options *options)
{
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    if (cn_shared_store_open(options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

/* Returns the step that the store holds; 0: nothing. */
static inline uint64_t
test_store_step(struct cn_store *store, const char *key)
{
    struct cn_record found = {0};
    struct cn_str value;

    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_get(store, cn_str_from(key), &value, NULL), 0);
    if (value.ptr)
        assert_int_equal(cn_record_decode(value, &found, NULL), 0);
    cn_store_abort(store);
    return found.step;
}

#endif
