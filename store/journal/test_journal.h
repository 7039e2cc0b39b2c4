/* store/journal/test_journal.h - a small journal store and its table of words. Only the tests of
 * this folder include it. */
#ifndef CN_STORE_JOURNAL_TEST_JOURNAL_H
#define CN_STORE_JOURNAL_TEST_JOURNAL_H

#include "core/memory/prefetch.h"
#include "store/disk_store.h"
#include "store/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "core/test_support.h"
#include "store/store.h"

#define KEYS 64
#define SMALL (16u << 10) /* a journal that is full again and again */
#define MANY (250u * CN_PREFETCH_MAX)

static inline int
remove_dir(void **state)
{
    umount2(*state, MNT_DETACH); /* after a failed test of the full disk */
    return test_dir_tear_down(state);
}

/* Is there the report of damage? */
static inline bool
is_told(const char *dir)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/" CN_STORE_DAMAGED, dir);
    return access(path, F_OK) == 0;
}

static inline struct cn_store *
open_with(const char *dir, struct cn_disk_options options)
{
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    options.dir = dir;
    options.check_max_bytes = UINT64_MAX;
    options.recheck = true;
    options.max_bytes = options.max_bytes ? options.max_bytes : 64u << 20;
    options.journal_max_bytes = options.journal_max_bytes ? options.journal_max_bytes : SMALL;
    if (cn_disk_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static inline struct cn_store *
open_small(const char *dir)
{
    return open_with(dir, (struct cn_disk_options){0});
}

static inline struct cn_str
key_of(char out[32], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 32, "session-%u", i)};
}

static inline void
begin(struct cn_store *store, enum cn_store_txn kind)
{
    struct cn_error err = {0};

    if (cn_store_begin(store, kind, &err) != 0)
        fail_msg("%s", err.message);
}

/* Puts a value of this word: as its owner with a hint, or as anybody without one. */
static inline void
put_word_by(struct cn_store *store, unsigned key, uint32_t word, size_t len,
            struct cn_store_hint *hint)
{
    static uint32_t words[4096];
    struct cn_str value = {(char *)words, len};
    char bytes[32];

    for (size_t i = 0; i < len / 4; i++)
        words[i] = word;
    assert_int_equal(hint ? cn_store_replace(store, key_of(bytes, key), value, hint, NULL)
                          : cn_store_put(store, key_of(bytes, key), value, NULL),
                     0);
}

static inline void
put_word(struct cn_store *store, unsigned key, uint32_t word, size_t len)
{
    put_word_by(store, key, word, len, NULL);
}

/* Returns the word that a key's value repeats, or 0 if there is no such key. */
static inline uint32_t
word_of(struct cn_str value)
{
    uint32_t word;

    if (!value.ptr)
        return 0;
    assert_true(value.len >= 4 && value.len % 4 == 0);
    memcpy(&word, value.ptr, sizeof(word));
    for (size_t at = 0; at < value.len; at += 4)
        assert_memory_equal(value.ptr + at, &word, 4);
    return word;
}

static inline uint32_t
get_word(struct cn_store *store, unsigned key)
{
    struct cn_str value;
    char bytes[32];

    assert_int_equal(cn_store_get(store, key_of(bytes, key), &value, NULL), 0);
    return word_of(value);
}

/* Expects exactly these words in the store: by key, in a scan, and in their number. */
static inline void
expect_words(struct cn_store *store, const uint32_t *words, unsigned n_keys)
{
    char at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, key, value;
    unsigned live = 0, seen = 0;

    begin(store, CN_STORE_READ);
    for (unsigned i = 0; i < n_keys; i++) {
        assert_int_equal(get_word(store, i), words[i]);
        live += words[i] != 0;
    }
    for (;; seen++) {
        assert_int_equal(cn_store_next(store, after, &key, &value, NULL), 0);
        if (!key.ptr)
            break;
        if (seen > 0) {
            size_t len = key.len < after.len ? key.len : after.len;
            int order = memcmp(after.ptr, key.ptr, len);

            assert_true(order < 0 || (order == 0 && after.len < key.len));
        }
        memcpy(at, key.ptr, key.len);
        after.len = key.len;
        at[key.len] = '\0';
        assert_int_equal(word_of(value), words[atoi(at + 8)]);
    }
    cn_store_abort(store);
    assert_int_equal(seen, live);
    assert_int_equal(cn_store_count(store), live);
}

static inline uint32_t
draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

/* --- damage --- */

static inline size_t
slurp(const char *dir, const char *name, char *out, size_t max)
{
    char path[256];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "r");
    assert_non_null(file);
    n = fread(out, 1, max, file);
    fclose(file);
    return n;
}

/* Makes one commit as the worker does. */
static inline int
step(struct cn_store *store, unsigned key, uint32_t word, size_t len, struct cn_error *err)
{
    int rc;

    begin(store, CN_STORE_WRITE);
    put_word(store, key, word, len);
    rc = cn_store_commit(store, err);
    if (rc == 0 || cn_store_maintain(store) == 0)
        return rc;
    begin(store, CN_STORE_WRITE);
    put_word(store, key, word, len);
    return cn_store_commit(store, err);
}

#endif
