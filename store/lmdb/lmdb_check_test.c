/* store/lmdb/lmdb_check_test.c - what LMDB writes is whole, and damage to it is found before LMDB
 * sees it. */
#include "store/lmdb/lmdb_check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "store/lmdb/lmdb_seal.h"
#include "store/lmdb/lmdb_store.h"

#define KEYS 300u
#define PAGE 4096u
#define LARGEST 30000u

static uint32_t words[KEYS]; /* the newest round of each key, 0: removed */
static uint32_t sizes[KEYS];

static struct cn_store *
open_store(const char *dir)
{
    struct cn_lmdb_options options = {.dir = dir, .max_bytes = 64u << 20};
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    if (cn_lmdb_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static struct cn_str
key_of(char out[64], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 64, "%0*u", 4 + (int)(i % 40), i)};
}

/* A value repeats the number of its round. */
static struct cn_str
value_of(uint32_t round, uint32_t size)
{
    static uint32_t value[LARGEST / 4];

    for (size_t i = 0; i < size / 4; i++)
        value[i] = round;
    return (struct cn_str){(char *)value, size / 4 * 4};
}

static void
write_round(struct cn_store *store, uint32_t round, bool large)
{
    char bytes[64];

    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    for (unsigned n = 1 + test_next_random() % 20; n > 0; n--) {
        const unsigned key = test_next_random() % KEYS, dice = test_next_random() % 20;

        if (dice == 0) {
            assert_int_equal(cn_store_remove(store, key_of(bytes, key), NULL), 0);
            words[key] = 0;
            continue;
        }
        words[key] = round;
        sizes[key] =
            dice == 1 ? 0 : 8 + test_next_random() % (dice < 4 && large ? LARGEST - 8 : 200);
        assert_int_equal(cn_store_put(store, key_of(bytes, key), value_of(round, sizes[key]), NULL),
                         0);
    }
    assert_int_equal(cn_store_commit(store, NULL), 0);
}

static int
open_data(const char *dir)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/data.mdb", dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool
is_whole(int fd)
{
    struct cn_lmdb_report report;
    bool whole;

    assert_int_equal(cn_lmdb_check(fd, &report, NULL), 0);
    whole = report.whole;
    assert_true(whole || report.text.len > 0);
    cn_lmdb_report_fini(&report);
    return whole;
}

/* The file is whole after every commit, whatever was written and removed. */
static void
what_lmdb_writes_is_whole(void **state)
{
    struct cn_store *store = open_store(*state);
    struct cn_lmdb_report report;
    int fd = open_data(*state);

    for (uint32_t round = 1; round <= 300; round++) {
        write_round(store, round, round % 3 != 0);
        assert_int_equal(cn_lmdb_check(fd, &report, NULL), 0);
        if (!report.whole)
            fail_msg("round %u: %.*s", round, CN_STR_ARG(cn_buf_str(&report.text)));
        assert_true(report.keys_known && report.values_sure && report.free_known);
        cn_lmdb_report_fini(&report);
        if (round % 50 == 0) {
            cn_store_close(store);
            store = open_store(*state);
        }
    }
    cn_store_close(store);
    close(fd);
}

/* --- damage --- */

struct shown {
    unsigned values, keys;
    bool older;
};

/* A value is shown only if it is the newest one of its key. */
static void
look(void *ctx, bool pieces, struct cn_str key, struct cn_str value)
{
    struct shown *shown = ctx;
    uint32_t word = 0;
    char number[64] = "";
    unsigned i;

    if (pieces || key.ptr[0] != 1)
        return;
    memcpy(number, key.ptr + 1, key.len - 1);
    i = (unsigned)strtoul(number, NULL, 10);
    assert_in_range(i, 0, KEYS - 1);
    shown->keys++;
    if (!value.ptr)
        return;
    assert_int_equal(cn_lmdb_seal_check(key, value), CN_LMDB_SEAL_INTACT);
    shown->values++;
    if (value.len > CN_LMDB_SEAL_BYTES)
        memcpy(&word, value.ptr, 4);
    shown->older = shown->older || words[i] == 0 || word != (sizes[i] < 4 ? 0 : words[i]) ||
                   (value.len - CN_LMDB_SEAL_BYTES) % 4 != 0;
}

/* LMDB reads everything without a crash, as it was written. */
static void
expect_all(const char *dir)
{
    struct cn_store *store = open_store(dir);
    struct cn_str value;
    char bytes[64];

    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(cn_store_get(store, key_of(bytes, i), &value, NULL), 0);
        assert_int_equal(value.ptr != NULL, words[i] != 0);
        if (words[i])
            assert_true(cn_str_eq(value, value_of(words[i], sizes[i])));
    }
    cn_store_close(store);
}

static char *original;
static size_t original_bytes;

static void
restore(int fd)
{
    assert_int_equal(pwrite(fd, original, original_bytes, 0), original_bytes);
    assert_int_equal(ftruncate(fd, (off_t)original_bytes), 0);
}

static void
prepare(void **state, int *fd)
{
    struct cn_store *store = open_store(*state);

    memset(words, 0, sizeof(words));
    for (uint32_t round = 1; round <= 150; round++)
        write_round(store, round, true);
    cn_store_close(store);
    *fd = open_data(*state);
    original_bytes = (size_t)lseek(*fd, 0, SEEK_END);
    original = malloc(original_bytes);
    assert_int_equal(pread(*fd, original, original_bytes, 0), original_bytes);
}

/* Alters the file in one of many ways. */
static void
harm(int fd, unsigned how)
{
    const size_t pages = original_bytes / PAGE;
    size_t page = test_next_random() % pages, other = test_next_random() % pages;
    char bytes[PAGE], swapped[PAGE];

    memcpy(bytes, original + page * PAGE, PAGE);
    memcpy(swapped, original + other * PAGE, PAGE);
    switch (how % 8) {
    case 0: /* a header, or one of the first pointers */
        bytes[test_next_random() % 32] ^= (char)(1 << test_next_random() % 8);
        break;
    case 1:
        memset(bytes, 0, PAGE);
        break;
    case 2:
        for (size_t i = 0; i < PAGE; i++)
            bytes[i] = (char)test_next_random();
        break;
    case 3: /* swapped with another page, headers and all */
        assert_int_equal(pwrite(fd, bytes, PAGE, (off_t)(other * PAGE)), PAGE);
        memcpy(bytes, swapped, PAGE);
        break;
    case 4: /* the content of another page under this one's number: it may be an older state */
        memcpy(bytes + 8, swapped + 8, PAGE - 8);
        break;
    case 5:
        assert_int_equal(ftruncate(fd, (off_t)(page * PAGE + test_next_random() % PAGE)), 0);
        return;
    case 6: /* a meta page's fields */
        page = test_next_random() % 2;
        memcpy(bytes, original + page * PAGE, PAGE);
        bytes[test_next_random() % 152] ^= (char)(1 << test_next_random() % 8);
        break;
    default:
        bytes[test_next_random() % PAGE] ^= (char)(1 << test_next_random() % 8);
        break;
    }
    assert_int_equal(pwrite(fd, bytes, PAGE, (off_t)(page * PAGE)), PAGE);
}

/* Either the damage is found and only newest values are shown, or the altered byte has no effect
 * and LMDB reads everything. */
static void
damage_is_found_or_harms_nobody(void **state)
{
    unsigned found = 0, values = 0, total = 0;
    int fd;

    prepare(state, &fd);
    assert_true(is_whole(fd));
    for (unsigned i = 0; i < KEYS; i++)
        total += words[i] != 0;
    for (unsigned n = 0; n < 2000; n++) {
        struct cn_lmdb_report report;
        struct shown shown = {0};
        const struct cn_lmdb_receiver receiver = {look, &shown};

        harm(fd, n);
        assert_int_equal(cn_lmdb_check(fd, &report, NULL), 0);
        if (report.whole) {
            expect_all(*state);
        } else {
            found++;
            assert_int_equal(cn_lmdb_visit(fd, &report, &receiver, NULL), 0);
            if (shown.older)
                fail_msg("trial %u shows an older value: %.*s", n,
                         CN_STR_ARG(cn_buf_str(&report.text)));
            if (report.keys_known && shown.keys < total)
                fail_msg("trial %u shows %u of %u keys: %.*s", n, shown.keys, total,
                         CN_STR_ARG(cn_buf_str(&report.text)));
            values += shown.values;
        }
        cn_lmdb_report_fini(&report);
        restore(fd);
    }
    assert_in_range(found, 500, 2000);
    assert_in_range(values / found, total / 2, total);
    free(original);
    close(fd);
}

/* An altered key is distinguished from an altered value. */
static void
keys_and_values_are_told_apart(void **state)
{
    struct cn_store *store = open_store(*state);
    struct cn_lmdb_report report;
    char *file, *at;
    size_t bytes;
    int fd;

    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_put(store, CN_STR("session-1"), CN_STR("its value"), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
    fd = open_data(*state);
    bytes = (size_t)lseek(fd, 0, SEEK_END);
    file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    at = memmem(file, bytes, "session-1its value", 18);
    assert_non_null(at);
    at[12] ^= 1;
    assert_int_equal(cn_lmdb_check(fd, &report, NULL), 0);
    assert_false(report.whole);
    assert_true(report.keys_known);
    assert_int_equal(report.lost_values, 1);
    cn_lmdb_report_fini(&report);
    at[12] ^= 1;
    at[8] ^= 1;
    assert_int_equal(cn_lmdb_check(fd, &report, NULL), 0);
    assert_false(report.whole);
    assert_false(report.keys_known);
    cn_lmdb_report_fini(&report);
    munmap(file, bytes);
    close(fd);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, test_dir_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DIR(what_lmdb_writes_is_whole),
        WITH_DIR(damage_is_found_or_harms_nobody),
        WITH_DIR(keys_and_values_are_told_apart),
    };

    return cmocka_run_group_tests_name("cache.lmdb_check", tests, NULL, NULL);
}
