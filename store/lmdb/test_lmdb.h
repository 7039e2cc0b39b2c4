/* store/lmdb/test_lmdb.h - opens stores and makes keys for the tests of LMDB. Only tests include
 * it. */
#ifndef CN_STORE_LMDB_TEST_LMDB_H
#define CN_STORE_LMDB_TEST_LMDB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "store/lmdb/lmdb_store.h"

static inline struct cn_store *
open_store(const char *dir, uint64_t max_bytes)
{
    struct cn_lmdb_options options = {.dir = dir, .max_bytes = max_bytes};
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    if (cn_lmdb_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static inline struct cn_str
key_of(char out[16], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 16, "seq_%u", i)};
}

#endif
