/* store/lmdb/lmdb_kill_test.c - LMDB under kill -9, of writers and of readers. */
#include "store/lmdb/lmdb_store.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "store/lmdb/test_lmdb.h"

#define KEYS 64
#define KILLS 40

/* A value repeats the number of its round, so that a torn one shows. */
static void
fill(uint32_t *words, size_t n, uint32_t round)
{
    for (size_t i = 0; i < n; i++)
        words[i] = round;
}

/* Commits rounds for ever and reports each committed one through the pipe. */
static _Noreturn void
write_rounds(const char *dir, uint32_t round, int pipe_fd)
{
    struct cn_lmdb_options options = {.dir = dir, .max_bytes = 64u << 20};
    struct cn_store *store;
    uint32_t words[1024];
    char key[16];

    if (cn_lmdb_store_open(&options, &store, NULL) != 0)
        _exit(1);
    for (;; round++) {
        if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
            _exit(2);
        for (unsigned i = 0; i < 8; i++) {
            fill(words, 1024, round);
            if (cn_store_put(store, key_of(key, (round * 8 + i) % KEYS),
                             (struct cn_str){(char *)words, 64 + (round * 97 + i * 31) % 900 * 4},
                             NULL) != 0)
                _exit(3);
        }
        if (cn_store_commit(store, NULL) != 0)
            _exit(4);
        if (write(pipe_fd, &round, sizeof(round)) != sizeof(round))
            _exit(5);
    }
}

/* Reads the writer's reports, and kills it some moments after `rounds` of them. */
static uint32_t
kill_after(pid_t pid, int pipe_fd, unsigned rounds, unsigned moment_us)
{
    uint32_t round, last = 0;
    int status;

    for (unsigned i = 0; i < rounds; i++) {
        assert_int_equal(read(pipe_fd, &round, sizeof(round)), sizeof(round));
        last = round;
    }
    if (moment_us)
        usleep(moment_us);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (read(pipe_fd, &round, sizeof(round)) == sizeof(round))
        last = round;
    return last;
}

/* Expects everything up to `acked`, completely, and at most one round more. */
static uint32_t
verify(const char *dir, uint32_t acked)
{
    struct cn_store *store = open_store(dir, 64u << 20);
    uint32_t newest = 0, word;
    struct cn_str got;
    char key[16];

    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(cn_store_get(store, key_of(key, i), &got, NULL), 0);
        if (!got.ptr)
            continue;
        assert_true(got.len >= 64 && got.len % 4 == 0);
        memcpy(&word, got.ptr, sizeof(word));
        for (size_t at = 0; at < got.len; at += 4)
            assert_memory_equal(got.ptr + at, &word, 4);
        if (word > newest)
            newest = word;
    }
    assert_in_range(newest, acked, acked + 1);
    for (unsigned back = 0; back < 8 && back < newest; back++) { /* all 8 of each round */
        for (unsigned i = 0; i < 8; i++) {
            uint32_t round = newest - back;

            assert_int_equal(cn_store_get(store, key_of(key, (round * 8 + i) % KEYS), &got, NULL),
                             0);
            assert_non_null(got.ptr);
            assert_memory_equal(got.ptr, &round, 4);
        }
    }
    cn_store_close(store);
    return newest;
}

/* The promise of `durability: process`: kill -9 at any moment loses nothing that was committed. */
static void
kill_9_loses_nothing_committed(void **state)
{
    uint32_t newest = 0, seed = 20261121;

    for (int n = 0; n < KILLS; n++) {
        int fds[2];
        pid_t pid;

        assert_int_equal(pipe(fds), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(fds[0]);
            write_rounds(*state, newest + 1, fds[1]);
        }
        close(fds[1]);
        seed = seed * 1664525 + 1013904223;
        newest = verify(*state, kill_after(pid, fds[0], 1 + (seed >> 8) % 40, (seed >> 16) % 700));
        close(fds[0]);
    }
    assert_in_range(newest, KILLS, UINT32_MAX);
}

/* A child that holds a read transaction until it is killed. */
static pid_t
start_reader(const char *dir)
{
    int fds[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct cn_lmdb_options options = {.dir = dir, .max_bytes = 2u << 20};
        struct cn_store *store;

        if (cn_lmdb_store_open(&options, &store, NULL) != 0 ||
            cn_store_begin(store, CN_STORE_READ, NULL) != 0 || write(fds[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

/* A worker that died while it was reading must not fill the store: its pages are used again. */
static void
dead_reader_is_let_go(void **state)
{
    struct cn_store *store = open_store(*state, 2u << 20);
    static char value[50000];
    struct cn_error err = {0};
    pid_t reader;
    int rc = 0;

    reader = start_reader(*state);
    kill(reader, SIGKILL);
    waitpid(reader, NULL, 0);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = cn_store_begin(store, CN_STORE_WRITE, &err);
        if (rc == 0 && (rc = cn_store_put(store, CN_STR("s"), (struct cn_str){value, sizeof(value)},
                                          &err)) == 0)
            rc = cn_store_commit(store, &err);
        cn_store_abort(store);
    }
    assert_int_equal(rc, CN_E_STATE_STORE); /* this is what a dead reader does to LMDB */
    assert_non_null(strstr(err.message, "is full"));
    assert_int_equal(cn_store_maintain(store), 1);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        assert_int_equal(
            cn_store_put(store, CN_STR("s"), (struct cn_str){value, sizeof(value)}, NULL), 0);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    cn_store_close(store);
}

/* Opening a store does the same, so that a restarted worker need not wait for a timer. */
static void
dead_reader_is_let_go_at_open(void **state)
{
    struct cn_store *store = open_store(*state, 2u << 20);
    pid_t reader = start_reader(*state);

    kill(reader, SIGKILL);
    waitpid(reader, NULL, 0);
    cn_store_close(store);
    store = open_store(*state, 2u << 20);
    assert_int_equal(cn_store_maintain(store), 0);
    cn_store_close(store);
}

/* If a worker is killed in the middle of a transaction, the other workers can write at once. */
static void
dead_writer_blocks_nobody(void **state)
{
    struct cn_store *store = open_store(*state, 2u << 20);
    struct cn_str got;

    for (int i = 0; i < 10; i++) {
        int fds[2];
        char byte;
        pid_t pid;

        assert_int_equal(pipe(fds), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) { /* does not touch the parent's store */
            struct cn_lmdb_options options = {.dir = *state, .max_bytes = 2u << 20};
            struct cn_store *own;

            if (cn_lmdb_store_open(&options, &own, NULL) != 0 ||
                cn_store_begin(own, CN_STORE_WRITE, NULL) != 0 ||
                cn_store_put(own, CN_STR("torn"), CN_STR("1"), NULL) != 0 ||
                write(fds[1], "w", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        close(fds[1]);
        assert_int_equal(read(fds[0], &byte, 1), 1);
        close(fds[0]);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        assert_int_equal(cn_store_get(store, CN_STR("torn"), &got, NULL), 0);
        assert_null(got.ptr);
        assert_int_equal(cn_store_put(store, CN_STR("whole"), CN_STR("1"), NULL), 0);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    assert_int_equal(cn_store_count(store), 1);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, test_dir_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DIR(kill_9_loses_nothing_committed),
        WITH_DIR(dead_reader_is_let_go),
        WITH_DIR(dead_reader_is_let_go_at_open),
        WITH_DIR(dead_writer_blocks_nobody),
    };

    return cmocka_run_group_tests_name("store.lmdb_kill", tests, NULL, NULL);
}
