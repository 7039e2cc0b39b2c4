/* store/lmdb/lmdb_store_test.c - LMDB with other formats, damaged files and full disks. */
#include "store/lmdb/lmdb_store.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "store/disk_store.h"
#include "store/lmdb/test_lmdb.h"

static int
remove_dir(void **state)
{
    umount2(*state, MNT_DETACH); /* after a failed test of the full disk */
    return test_dir_tear_down(state);
}

static void
raw_put(const char *dir, const char *key, size_t key_len, const char *value, size_t len)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val k = {key_len, (char *)key}, v = {len, (char *)value};

    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void
raw_remove_piece(const char *dir, const char *key, size_t key_len)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val k = {key_len, (char *)key};

    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 1), 0);
    assert_int_equal(mdb_env_open(env, dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "\2pieces", 0, &dbi), 0);
    assert_int_equal(mdb_del(txn, dbi, &k, NULL), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

/* An older program must not touch what a newer one wrote. */
static void
newer_store_is_refused(void **state)
{
    struct cn_lmdb_options options = {.dir = *state, .max_bytes = 1 << 20};
    struct cn_store *store = open_store(*state, 1 << 20);
    struct cn_error err;

    cn_store_close(store);
    raw_put(*state, "\0format", 7, "\7\0\0\0", 4);
    assert_int_equal(cn_lmdb_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_null(store);
    assert_non_null(strstr(err.message, "format 7"));
    assert_non_null(strstr(err.message, "newer Continuo"));
    assert_int_equal(err.sys_errno, ENOTSUP); /* it is not damaged */
}

/* There was no release with another format: such a store is refused, and stays as it is. */
static void
older_store_is_refused(void **state)
{
    struct cn_disk_options options = {.dir = *state,
                                      .max_bytes = 1 << 20,
                                      .journal_max_bytes = 1 << 20,
                                      .check_max_bytes = UINT64_MAX};
    struct cn_store *store = open_store(*state, 1 << 20);
    struct cn_error err;
    char path[256];

    cn_store_close(store);
    raw_put(*state, "\0format", 7, "\5\0\0\0", 4);
    for (int i = 0; i < 2; i++) {
        options.read_only = i == 1;
        assert_int_equal(cn_disk_store_open(&options, &store, &err), CN_E_STATE_STORE);
        assert_null(store);
        assert_non_null(strstr(err.message, "format 5"));
        assert_non_null(strstr(err.message, "older Continuo"));
        assert_int_equal(err.sys_errno, ENOTSUP);
    }
    snprintf(path, sizeof(path), "%s/DAMAGED", (char *)*state);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof(path), "%s/CHECKED", (char *)*state);
    unlink(path);
}

/* A value that lacks one of its pieces ends before it, which the record's checksum shows. */
static void
a_missing_piece_ends_its_value(void **state)
{
    static char large[20000];
    struct cn_store *store = open_store(*state, 1 << 20);
    struct cn_str got;

    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_put(store, CN_STR("a"), (struct cn_str){large, sizeof(large)}, NULL),
                     0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
    raw_remove_piece(*state, "\2\0\1a\0\0\0\3", 8);
    store = open_store(*state, 1 << 20);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_get(store, CN_STR("a"), &got, NULL), 0);
    assert_int_equal(got.len, 3 * 4072);
    assert_int_equal(cn_store_remove(store, CN_STR("a"), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(cn_store_count(store), 0);
    cn_store_close(store);
}

/* A folder of LMDB that is not a store is refused. */
static void
other_files_are_refused(void **state)
{
    struct cn_lmdb_options options = {.dir = *state, .max_bytes = 1 << 20};
    struct cn_store *store;
    struct cn_error err;
    char path[256];
    FILE *file;

    options.read_only = true;
    assert_int_equal(cn_lmdb_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "holds no store"));
    options.read_only = false;
    snprintf(path, sizeof(path), "%s/data.mdb", (char *)*state);
    file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("not a database ", file);
    fclose(file);
    assert_int_equal(cn_lmdb_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "not a store"));
    options.dir = "/nonexistent/folder";
    assert_int_equal(cn_lmdb_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "/nonexistent/folder"));
}

/* `power` opens, commits and reads in the same way, also while another process reads. */
static void
synced_store_and_a_second_reader(void **state)
{
    struct cn_lmdb_options options = {.dir = *state, .max_bytes = 1 << 20, .sync = true};
    struct cn_store *writer;
    struct cn_str got;
    int status;
    pid_t pid;

    assert_int_equal(cn_lmdb_store_open(&options, &writer, NULL), 0);
    assert_int_equal(cn_store_begin(writer, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_put(writer, CN_STR("a"), CN_STR("1"), NULL), 0);
    assert_int_equal(cn_store_commit(writer, NULL), 0);
    pid = fork();
    if (pid == 0) {
        struct cn_lmdb_options look = {.dir = *state, .read_only = true};
        struct cn_store *reader;

        _exit(!(cn_lmdb_store_open(&look, &reader, NULL) == 0 && cn_store_count(reader) == 1 &&
                cn_store_begin(reader, CN_STORE_READ, NULL) == 0 &&
                cn_store_get(reader, CN_STR("a"), &got, NULL) == 0 && cn_str_eq(got, CN_STR("1"))));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    cn_store_close(writer);
}

/* One transaction that asks for more than the limit is refused with the limit; reads go on. */
static void
over_the_limit_leaves_the_store_readable(void **state)
{
    struct cn_store *store = open_store(*state, 256 << 10);
    static char value[100000];
    struct cn_error err = {0};
    struct cn_str got;
    char key[16];
    int rc = 0;

    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_put(store, CN_STR("kept"), CN_STR("1"), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    for (unsigned i = 0; i < 10 && rc == 0; i++)
        rc = cn_store_put(store, key_of(key, i), (struct cn_str){value, sizeof(value)}, &err);
    assert_int_equal(rc, 1);
    assert_int_equal(err.code, CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "262144"));
    cn_store_abort(store);
    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_get(store, CN_STR("kept"), &got, NULL), 0);
    assert_true(cn_str_eq(got, CN_STR("1")));
    cn_store_close(store);
}

/* If the disk is full before the limit is reached, the batch fails, what was there stays, and
 * sequences can be ended. */
static void
full_disk_fails_the_commit_only(void **state)
{
    static char value[50000];
    struct cn_store *store;
    struct cn_error err = {0};
    struct cn_str got;
    char key[16];
    unsigned n = 0;
    int rc = 0;

    if (mount("tmpfs", *state, "tmpfs", 0, "size=2m") != 0) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip(); /* only root may mount */
    }
    store = open_store(*state, 1u << 30);
    while (rc == 0 && n < 100) {
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        rc = cn_store_put(store, key_of(key, n), (struct cn_str){value, sizeof(value)}, &err);
        if (rc == 0 && (rc = cn_store_commit(store, &err)) == 0)
            n++;
        cn_store_abort(store);
    }
    print_message("%u values of 50 kB, then: %s\n", n, err.message);
    assert_int_equal(rc, CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, *state));
    assert_in_range(n, 20, 45);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(cn_store_begin(store, CN_STORE_READ, &err), 0);
        assert_int_equal(cn_store_get(store, key_of(key, i), &got, NULL), 0);
        assert_int_equal(got.len, sizeof(value));
        cn_store_abort(store);
    }
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cn_store_put(store, key_of(key, i), CN_STR("tombstone"), &err), 0);
    assert_int_equal(cn_store_commit(store, &err), 0);
    for (unsigned i = 0; i < 2; i++) { /* the next commit can use freed room */
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        assert_int_equal(cn_store_put(store, CN_STR("s"), CN_STR("small"), NULL), 0);
        assert_int_equal(cn_store_commit(store, &err), 0);
    }
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(
        cn_store_put(store, CN_STR("new"), (struct cn_str){value, sizeof(value)}, &err), 0);
    assert_int_equal(cn_store_commit(store, &err), 0);
    cn_store_close(store);
    assert_int_equal(umount(*state), 0);
}

/* Without room for its files a store does not open and says why. No signal ends the process. */
static void
a_full_disk_opens_no_new_store(void **state)
{
    static char zeros[4096];
    struct cn_lmdb_options options = {.dir = *state, .max_bytes = 1 << 20};
    struct cn_store *store;
    struct cn_error err = {0};
    char path[256];
    int fd;

    if (mount("tmpfs", *state, "tmpfs", 0, "size=64k") != 0) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip(); /* only root may mount */
    }
    snprintf(path, sizeof(path), "%s/ballast", (char *)*state);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof(zeros)) > 0) {
    }
    close(fd);
    assert_int_equal(cn_lmdb_store_open(&options, &store, &err), CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "free some space"));
    assert_int_equal(umount(*state), 0);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(newer_store_is_refused),
        WITH_DIR(older_store_is_refused),
        WITH_DIR(a_missing_piece_ends_its_value),
        WITH_DIR(other_files_are_refused),
        WITH_DIR(synced_store_and_a_second_reader),
        WITH_DIR(over_the_limit_leaves_the_store_readable),
        WITH_DIR(full_disk_fails_the_commit_only),
        WITH_DIR(a_full_disk_opens_no_new_store),
    };

    return cmocka_run_group_tests_name("cache.lmdb_store", tests, NULL, NULL);
}
