/* store/journal/journal_store_test.c - the journal store: deaths at any point, several processes,
 * damage and full disks, always compared with what a plain table would say. */
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

static int
remove_dir(void **state)
{
    umount2(*state, MNT_DETACH); /* after a failed test of the full disk */
    return test_dir_tear_down(state);
}

static struct cn_store *
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

static struct cn_store *
open_small(const char *dir)
{
    return open_with(dir, (struct cn_disk_options){0});
}

static struct cn_str
key_of(char out[32], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 32, "session-%u", i)};
}

static void
begin(struct cn_store *store, enum cn_store_txn kind)
{
    struct cn_error err = {0};

    if (cn_store_begin(store, kind, &err) != 0)
        fail_msg("%s", err.message);
}

/* Puts a value of this word: as its owner with a hint, or as anybody without one. */
static void
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

static void
put_word(struct cn_store *store, unsigned key, uint32_t word, size_t len)
{
    put_word_by(store, key, word, len, NULL);
}

/* Returns the word that a key's value repeats, or 0 if there is no such key. */
static uint32_t
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

static uint32_t
get_word(struct cn_store *store, unsigned key)
{
    struct cn_str value;
    char bytes[32];

    assert_int_equal(cn_store_get(store, key_of(bytes, key), &value, NULL), 0);
    return word_of(value);
}

/* Expects exactly these words in the store: by key, in a scan, and in their number. */
static void
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

static uint32_t
draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

/* Keys are written, removed, dropped, drained, and the store is opened again. It always agrees with
 * a plain table. */
static void
it_says_what_a_table_would(void **state)
{
    uint32_t words[400] = {0}, then[400], seed = 7, round = 0;
    struct cn_store *store = open_small(*state);
    char bytes[32];

    for (; round < 3000; round++) {
        uint32_t n = 1 + draw(&seed, 12), range = draw(&seed, 3) ? 20 : 400;

        memcpy(then, words, sizeof(words));
        begin(store, CN_STORE_WRITE);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = draw(&seed, range);

            assert_int_equal(get_word(store, key), then[key]);
            if (draw(&seed, 5) == 0) {
                assert_int_equal(cn_store_remove(store, key_of(bytes, key), NULL), 0);
                then[key] = 0;
            } else {
                then[key] = round * 16 + i + 1;
                put_word(store, key, then[key], 4 + draw(&seed, draw(&seed, 20) ? 100 : 2500) * 4);
            }
            assert_int_equal(get_word(store, key), then[key]);
        }
        if (draw(&seed, 6) == 0) {
            cn_store_abort(store);
        } else {
            assert_int_equal(cn_store_commit(store, NULL), 0);
            memcpy(words, then, sizeof(words));
        }
        if (draw(&seed, 2))
            cn_store_work_off(store);
        if (draw(&seed, 100) == 0)
            cn_store_maintain(store);
        if (draw(&seed, 100) == 0) {
            cn_store_close(store);
            store = open_with(*state, (struct cn_disk_options){.read_only = true});
            expect_words(store, words, 400);
            cn_store_close(store);
            store = open_small(*state);
        }
        if (round % 16 == 0)
            expect_words(store, words, 400);
    }
    expect_words(store, words, 400);
    cn_store_close(store);
}

/* --- deaths --- */

static enum cn_store_point dies_at;
static unsigned passings;

static void
die_there(enum cn_store_point point)
{
    if (point == dies_at && passings-- == 0)
        raise(SIGKILL);
}

/* Commits rounds for ever and reports each committed one through the pipe. Each round puts 8 keys,
 * and every fourth one also removes a key. */
static _Noreturn void
write_rounds(const char *dir, uint32_t round, int pipe_fd, bool sync)
{
    struct cn_disk_options options = {.dir = dir,
                                      .max_bytes = 64u << 20,
                                      .journal_max_bytes = SMALL,
                                      .sync = sync,
                                      .passing = die_there};
    struct cn_store *store;
    char key[32];

    if (cn_disk_store_open(&options, &store, NULL) != 0)
        _exit(1);
    for (;; round++) {
        if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
            _exit(2);
        for (unsigned i = 0; i < 8; i++)
            put_word(store, (round * 8 + i) % KEYS, round, 64 + (round * 97 + i * 31) % 200 * 4);
        if (round % 4 == 0 &&
            cn_store_remove(store, key_of(key, ((round + 3) * 8) % KEYS), NULL) != 0)
            _exit(3);
        if (cn_store_commit(store, NULL) != 0)
            _exit(4);
        if (write(pipe_fd, &round, sizeof(round)) != sizeof(round))
            _exit(5);
        cn_store_work_off(store);
    }
}

/* Computes what the store holds after this round. */
static void
words_after(uint32_t round, uint32_t words[KEYS])
{
    memset(words, 0, sizeof(*words) * KEYS);
    for (uint32_t r = round > 2 * KEYS ? round - 2 * KEYS : 1; r <= round; r++) {
        for (unsigned i = 0; i < 8; i++)
            words[(r * 8 + i) % KEYS] = r;
        if (r % 4 == 0)
            words[((r + 3) * 8) % KEYS] = 0;
    }
}

/* Runs a writer until it dies. Checks the newest round that the store has, and returns it. */
static uint32_t
run_to_death(const char *dir, uint32_t newest, unsigned moment_us, bool sync)
{
    struct cn_store *store;
    uint32_t acked = newest, round, words[KEYS];
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        write_rounds(dir, newest + 1, fds[1], sync);
    }
    close(fds[1]);
    if (moment_us) {
        if (read(fds[0], &round, sizeof(round)) == sizeof(round))
            acked = round;
        usleep(moment_us);
        kill(pid, SIGKILL);
    }
    while (read(fds[0], &round, sizeof(round)) == sizeof(round))
        acked = round;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    store = open_small(dir);
    begin(store, CN_STORE_READ);
    round = get_word(store, ((acked + 1) * 8 + 1) % KEYS) == acked + 1 ? acked + 1 : acked;
    cn_store_abort(store);
    words_after(round, words);
    expect_words(store, words, KEYS);
    cn_store_close(store);
    return round;
}

/* This is the promise of `durability: process`: a kill -9 at any moment loses no committed step,
 * and no part of an uncommitted one is there. */
static void
kill_9_loses_nothing_committed(void **state)
{
    uint32_t newest = 0, seed = 20261121;

    passings = UINT32_MAX;
    for (int n = 0; n < 60; n++)
        newest = run_to_death(*state, newest, 1 + draw(&seed, 3000), n % 8 == 7);
    assert_in_range(newest, 60, UINT32_MAX);
}

/* The same holds at the points where the journal and LMDB differ most. */
static void
death_at_each_point_loses_nothing(void **state)
{
    uint32_t newest = 0;

    for (unsigned n = 0; n < 12; n++)
        for (dies_at = CN_STORE_APPENDED; dies_at <= CN_STORE_DRAINED; dies_at++) {
            passings = n / 2 * (dies_at == CN_STORE_APPENDED ? 1 : 3);
            newest = run_to_death(*state, newest, 0, n % 2);
        }
    assert_in_range(newest, 100, UINT32_MAX);
}

/* If a process dies before it has listed a new key in LMDB, another process that has had the store
 * open all the time lists it. */
static void
a_key_of_the_dead_is_listed_by_the_living(void **state)
{
    int to_child[2], status;
    struct cn_store *store;
    uint32_t words[4] = {0};
    char byte;
    pid_t pid;

    assert_int_equal(pipe(to_child), 0);
    pid = fork();
    if (pid == 0) {
        dies_at = CN_STORE_APPENDED;
        passings = 1;
        store = open_with(*state, (struct cn_disk_options){.passing = die_there});
        if (read(to_child[0], &byte, 1) != 1)
            _exit(1);
        begin(store, CN_STORE_WRITE);
        put_word(store, 1, 11, 40);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        begin(store, CN_STORE_WRITE);
        put_word(store, 2, 12, 40);
        cn_store_remove(store, CN_STR("session-0"), NULL);
        cn_store_commit(store, NULL);
        _exit(2);
    }
    store = open_small(*state);
    begin(store, CN_STORE_WRITE);
    put_word(store, 0, 10, 40);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(write(to_child[1], "g", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    words[1] = 11;
    words[2] = 12;
    expect_words(store, words, 4);
    cn_store_close(store);
    close(to_child[0]);
    close(to_child[1]);
}

/* --- several processes --- */

static _Noreturn void
count_up(const char *dir, unsigned who, uint32_t rounds)
{
    struct cn_store *store = open_small(dir);
    uint32_t seed = who * 7919 + 1;

    for (uint32_t i = 0; i < rounds; i++) {
        if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
            _exit(2);
        for (unsigned k = 0; k < 3; k++) {
            unsigned key = draw(&seed, KEYS);

            put_word(store, key, get_word(store, key) + 1, 64 + draw(&seed, 100) * 4);
        }
        if (cn_store_commit(store, NULL) != 0)
            _exit(3);
        if (draw(&seed, 3) == 0)
            cn_store_work_off(store);
        if (draw(&seed, 50) == 0)
            usleep(1000); /* meanwhile others fill both files */
    }
    cn_store_close(store);
    _exit(0);
}

/* Workers share the folder. Each one sees what the others wrote, and none overwrites it, whichever
 * of them drains. */
static void
processes_share_a_journal(void **state)
{
    uint64_t sum = 0;
    struct cn_store *store;
    pid_t pids[4];
    int status;

    for (unsigned i = 0; i < 4; i++)
        if ((pids[i] = fork()) == 0)
            count_up(*state, i, 2000);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    store = open_small(*state);
    begin(store, CN_STORE_READ);
    for (unsigned i = 0; i < KEYS; i++)
        sum += get_word(store, i);
    cn_store_abort(store);
    assert_int_equal(sum, 4 * 2000 * 3);
    cn_store_close(store);
}

/* --- damage --- */

static size_t
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

static void
poke(const char *dir, const char *name, size_t at, char byte)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* --- damage --- */

static const char *const kept[] = {"data.mdb", "journal.0", "journal.1", "ledger.0", "ledger.1"};
#define N_KEPT (sizeof(kept) / sizeof(*kept))

static struct {
    char *bytes;
    size_t len;
} copies[N_KEPT];

static void
path_in(const char *dir, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", dir, name);
}

static void
copies_take(const char *dir)
{
    for (size_t i = 0; i < N_KEPT; i++) {
        free(copies[i].bytes);
        copies[i].bytes = malloc(4 << 20);
        copies[i].len = slurp(dir, kept[i], copies[i].bytes, 4 << 20);
    }
}

static void
copies_restore(const char *dir)
{
    char path[256];
    FILE *file;

    for (size_t i = 0; i < N_KEPT; i++) {
        path_in(dir, kept[i], path);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(copies[i].bytes, 1, copies[i].len, file), copies[i].len);
        fclose(file);
    }
    path_in(dir, CN_STORE_DAMAGED, path);
    unlink(path);
}

static void
copies_free(void)
{
    for (size_t i = 0; i < N_KEPT; i++) {
        free(copies[i].bytes);
        copies[i].bytes = NULL;
    }
}

static bool
is_told(const char *dir)
{
    char path[256];

    path_in(dir, CN_STORE_DAMAGED, path);
    return access(path, F_OK) == 0;
}

/* Opens the store and returns how many of these keys were refused as damaged; each of the others
 * must have its newest word. No key may be refused unless the file DAMAGED is there. */
static unsigned
count_refused(const char *dir, const uint32_t *words, unsigned n)
{
    struct cn_store *store = open_small(dir);
    unsigned refused = 0;

    begin(store, CN_STORE_READ);
    for (unsigned i = 0; i < n; i++) {
        struct cn_str value;
        char bytes[32];
        int rc = cn_store_get(store, key_of(bytes, i), &value, NULL);

        if (rc == CN_E_STATE_DAMAGED)
            refused++;
        else
            assert_int_equal(rc ? 0 : word_of(value), words[i]);
    }
    cn_store_close(store);
    assert_true(refused == 0 || is_told(dir));
    return refused;
}

/* Writes six transactions of three keys each. The first ones rewrite keys 0 to 2; the last two add
 * keys 3 to 5 and rewrite key 0. */
static void
write_six(const char *dir, uint32_t words[6])
{
    struct cn_store *store = open_small(dir);

    memset(words, 0, 6 * sizeof(*words));
    for (uint32_t round = 1; round <= 6; round++) {
        begin(store, CN_STORE_WRITE);
        for (unsigned i = 0; i < 3; i++) {
            unsigned key = round < 5 ? i : round == 5 ? 3 + i : i == 0 ? 0 : 2 + i;

            put_word(store, key, round, 24);
            words[key] = round;
        }
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    cn_store_close(store);
    copies_take(dir);
}

/* Each byte of a journal and of its ledger is altered in turn: there is never an older value, a
 * wrong one, a missing one that would begin anew, or a crash; and damage is reported. */
static void
altered_bytes_are_told(void **state)
{
    uint32_t words[6];
    unsigned refused = 0, told = 0, n = 0, most = 0, r;

    write_six(*state, words);
    for (unsigned f = 1; f <= 3; f += 2)
        for (size_t at = 0; at < 1300; at += 11, n++) {
            poke(*state, kept[f], at, (char)(copies[f].bytes[at] ^ (1 << at % 8)));
            r = count_refused(*state, words, 6);
            assert_true(f == 1 || r == 0); /* the journal alone is enough */
            refused += r > 0;
            most = r > most ? r : most;
            told += is_told(*state);
            copies_restore(*state);
        }
    assert_in_range(told, 80, n);
    assert_in_range(refused, 30, told);
    assert_in_range(most, 1, 4); /* the keys of one transaction that no other one has */
    assert_int_equal(count_refused(*state, words, 6), 0);
    assert_false(is_told(*state));
    copies_free();
}

/* If a file is emptied, deleted, cut or replaced, the store knows by key what is lost. */
static void
missing_files_are_told(void **state)
{
    uint32_t words[6];
    char path[256];

    write_six(*state, words);
    for (size_t f = 0; f < N_KEPT; f++) {
        if (f == 2 || f == 4)
            continue; /* nothing was written to them */
        path_in(*state, kept[f], path);
        for (unsigned how = 0; how < 3; how++) {
            if (f == 0 && how != 1)
                continue; /* LMDB refuses a cut file */
            if (how == 1)
                assert_int_equal(unlink(path), 0);
            else
                assert_int_equal(truncate(path, how == 0 ? 0 : 400), 0);
            if (count_refused(*state, words, 6) != (f == 1 ? 6u : 0u))
                fail_msg("%s, way %u: %u refused", kept[f], how, count_refused(*state, words, 6));
            assert_true(is_told(*state));
            copies_restore(*state);
        }
    }
    copies_free();
}

/* LMDB has what the journal held before. If LMDB's file is gone, nobody can know which sequences
 * there were. */
static void
a_missing_lmdb_makes_all_suspect(void **state)
{
    struct cn_store *store = open_small(*state);
    struct cn_str value;
    uint64_t dropped;
    char path[256], bytes[32];

    for (unsigned i = 0; i < 3000; i++) { /* more than the first file takes */
        begin(store, CN_STORE_WRITE);
        put_word(store, i % 200, i + 1, 4000);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    while (cn_store_maintain(store) > 0)
        ;
    cn_store_close(store);
    path_in(*state, "data.mdb", path);
    unlink(path);
    store = open_small(*state);
    assert_true(is_told(*state));
    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, key_of(bytes, 70000), &value, NULL), CN_E_STATE_DAMAGED);
    cn_store_abort(store);
    assert_int_equal(cn_store_accept_loss(store, &dropped, NULL), 0);
    assert_false(is_told(*state));
    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, key_of(bytes, 70000), &value, NULL), 0);
    assert_null(value.ptr);
    cn_store_close(store);
}

/* A lost sequence is refused until the loss is accepted or the sequence begins anew. The others
 * continue, also through restarts. */
static void
lost_keys_are_accepted(void **state)
{
    struct cn_str value;
    uint32_t words[6];
    uint64_t dropped;
    struct cn_store *store;
    char path[256], bytes[32];

    write_six(*state, words);
    path_in(*state, "journal.0", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(count_refused(*state, words, 6), 6);
    assert_int_equal(count_refused(*state, words, 6), 6); /* as before */
    store = open_small(*state);
    begin(store, CN_STORE_WRITE);
    put_word(store, 2, 77, 24); /* a start */
    put_word(store, 9, 78, 24);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(cn_store_accept_loss(store, &dropped, NULL), 0);
    assert_int_equal(dropped, 5);
    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, key_of(bytes, 0), &value, NULL), 0);
    assert_null(value.ptr);
    assert_int_equal(get_word(store, 2), 77);
    assert_int_equal(get_word(store, 9), 78);
    cn_store_close(store);
    assert_false(is_told(*state));
    copies_free();
}

/* --- full --- */

/* A commit for which the file system has no room never appears, and what was there before stays
 * usable. */
static void
a_failed_append_leaves_nothing(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 8u << 20});
    uint32_t words[200] = {0}, key = 0;
    struct rlimit was, limit;
    struct cn_error err = {0};
    int rc = 0;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = (struct rlimit){1u << 20, was.rlim_max}; /* also for LMDB's file */
    begin(store, CN_STORE_WRITE);
    put_word(store, 0, 1, 4000);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    words[0] = 1;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (key = 1; rc == 0 && key < 200; key++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, key, key + 1, 12000);
        rc = cn_store_commit(store, &err);
        if (rc == 0)
            words[key] = key + 1;
    }
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(rc, CN_E_STATE_STORE);
    assert_in_range(key, 20, 199);
    expect_words(store, words, 200);
    cn_store_close(store);
    store = open_small(*state);
    expect_words(store, words, 200);
    begin(store, CN_STORE_WRITE);
    put_word(store, key, key + 1, 12000);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    words[key] = key + 1;
    expect_words(store, words, 200);
    cn_store_close(store);
}

/* Makes one commit as the worker does. */
static int
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

/* When the disk is full, the batch fails with a message. Existing sequences can still make steps,
 * and ending sequences makes room. */
static void
full_disk_fails_what_grows_only(void **state)
{
    uint32_t words[300] = {0}, n = 0, round = 1000;
    struct cn_store *store;
    struct cn_error err = {0};
    int rc = 0;

    if (mount("tmpfs", *state, "tmpfs", 0, "size=6m") != 0) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip(); /* only root may mount */
    }
    store = open_with(
        *state, (struct cn_disk_options){.journal_max_bytes = 64u << 20, .max_bytes = 1u << 30});
    while (n < 300 && (rc = step(store, n, n + 1, 16000, &err)) == 0) {
        words[n] = n + 1;
        n++;
    }
    print_message("%u values of 16 kB, then: %s\n", n, err.message);
    assert_int_equal(rc, CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, *state));
    assert_in_range(n, 60, 350);
    expect_words(store, words, 300);
    for (unsigned i = 0; i < 500; i++, round++) { /* steps go on while the files keep their size */
        if (step(store, i % n, round, 16000, &err) != 0)
            fail_msg("step %u: %s", i, err.message);
        words[i % n] = round;
        cn_store_work_off(store);
    }
    expect_words(store, words, 300);
    begin(store, CN_STORE_WRITE);
    for (unsigned i = 0; i < 5; i++) {
        put_word(store, i, 5, 40);
        words[i] = 5;
    }
    assert_int_equal(cn_store_commit(store, &err), 0);
    for (unsigned i = 0; i < 200; i++, round++) {
        if (step(store, 6, round, 16000, &err) != 0)
            fail_msg("step %u: %s", i, err.message);
        words[6] = round;
        cn_store_work_off(store);
    }
    assert_int_equal(step(store, n + 1, n + 2, 16000, &err), 0);
    words[n + 1] = n + 2;
    expect_words(store, words, 300);
    cn_store_close(store);
    store = open_small(*state);
    expect_words(store, words, 300);
    cn_store_close(store);
    assert_int_equal(umount(*state), 0);
}

/* storeMaxBytes includes what is still in the journal. */
static void
the_limit_counts_the_journal(void **state)
{
    struct cn_store *store = open_with(
        *state, (struct cn_disk_options){.max_bytes = 4u << 20, .journal_max_bytes = 64u << 20});
    struct cn_error err = {0};
    unsigned n = 0;
    char key[32];
    static char value[10000];
    int rc = 0;

    for (; rc == 0 && n < 1000; n++) {
        begin(store, CN_STORE_WRITE);
        rc = cn_store_put(store, key_of(key, n), (struct cn_str){value, sizeof(value)}, &err);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    assert_int_equal(rc, 1);
    assert_non_null(strstr(err.message, "state.storeMaxBytes"));
    assert_in_range(n, 250, 400);
    for (int i = 0; i < 10; i++)
        cn_store_maintain(store);
    begin(store, CN_STORE_WRITE); /* it is not larger than before, so it is accepted */
    assert_int_equal(
        cn_store_put(store, key_of(key, 0), (struct cn_str){value, sizeof(value)}, &err), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
}

/* A store that processes fill and empty again and again, and in which they die, uses the room that
 * it has: large values fill the holes that small ones have left. */
static void
fill_and_empty(const char *dir, unsigned round)
{
    static char value[500000];
    struct cn_store *store = open_with(
        dir, (struct cn_disk_options){.max_bytes = 8u << 20, .journal_max_bytes = 256u << 10});
    const unsigned stay = test_next_random() % 3 ? 0 : test_next_random() % 8;
    char key[32];
    unsigned n = 0;
    int rc = 0;

    for (; rc == 0 && n < 100; n++) {
        begin(store, CN_STORE_WRITE);
        rc = cn_store_put(store, key_of(key, 1000 * (round % 3) + n),
                          (struct cn_str){value, sizeof(value) - test_next_random() % 90000}, NULL);
        for (unsigned i = 0; i < 8; i++)
            put_word(store, test_next_random() % 300, round + 1,
                     100 + 4 * (test_next_random() % 500));
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    for (unsigned i = 0; i < 3 * 30; i++) {
        if (i % 30 < stay && round % 5)
            continue;
        begin(store, CN_STORE_WRITE);
        assert_int_equal(cn_store_remove(store, key_of(key, 1000 * (i / 30) + i % 30), NULL), 0);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    if (test_next_random() % 2)
        cn_store_maintain(store);
    if (test_next_random() % 2)
        kill(getpid(), SIGKILL);
    cn_store_close(store);
}

static void
the_file_stays_near_its_limit(void **state)
{
    struct stat stat;
    char path[256];
    int status;

    for (unsigned round = 0; round < 60; round++) {
        pid_t child = fork();

        if (child == 0) {
            for (unsigned i = 0; i < 100 * round; i++)
                test_next_random();
            fill_and_empty(*state, round);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    }
    snprintf(path, sizeof(path), "%s/data.mdb", (char *)*state);
    assert_int_equal(lstat(path, &stat), 0);
    print_message("%ld bytes\n", (long)stat.st_size);
    assert_in_range(stat.st_size, 8 << 20, 11 << 20);
}

/* Opening reads the journal in several parts, and other processes continue to write between them.
 */
static void
a_long_journal_is_read_in_parts(void **state)
{
    const struct cn_disk_options options = {.journal_max_bytes = 32u << 20};
    struct cn_store *store = open_with(*state, options);
    const unsigned n = 20000;
    int status;
    pid_t child;

    for (unsigned i = 0; i < n; i++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, i, i + 1, 700);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    child = fork();
    if (child == 0) {
        struct cn_store *reader = open_with(*state, options);
        char key[32];
        struct cn_str got;

        begin(reader, CN_STORE_WRITE);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(cn_store_get(reader, key_of(key, i), &got, NULL), 0);
            assert_true(word_of(got) == i + 1 || word_of(got) == i + 7);
        }
        put_word(reader, n, 5, 8);
        assert_int_equal(cn_store_commit(reader, NULL), 0);
        cn_store_close(reader);
        _exit(0);
    }
    for (unsigned i = 0; waitpid(child, &status, WNOHANG) == 0; i++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, i % n, i % n + 7, 700);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    assert_int_equal(status, 0);
    assert_int_equal(cn_store_count(store), n + 1);
    cn_store_close(store);
}

/* States of few busy sequences are never drained to LMDB, because the newer file always has them.
 */
static void
busy_keys_stay_in_the_journal(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 64u << 20});
    static char data[1 << 20];
    size_t len, found = 0;

    for (uint32_t round = 1; round <= 20000; round++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, round % 10, 0x5a5a5a5a, 400);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    assert_in_range(cn_store_bytes(store), 1 << 18, 4 << 20);
    cn_store_close(store);
    len = slurp(*state, "data.mdb", data, sizeof(data));
    for (size_t at = 0; at + 400 < len; at += 4)
        found += memcmp(data + at, "ZZZZZZZZ", 8) == 0;
    assert_int_equal(found, 0);
}

/* With more keys than a processor's caches hold, prefetching in look-ups and in the drain is only
 * an optimisation: the results are the same. */
static void
many_keys_are_fetched_ahead(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 1u << 20});
    static uint32_t words[MANY];
    static struct cn_store_hint known[MANY]; /* of every other value, by its owner */
    const struct cn_store_hint *hints[CN_PREFETCH_MAX] = {NULL};
    struct cn_str keys[CN_PREFETCH_MAX];
    char bytes[CN_PREFETCH_MAX][32];

    memset(words, 0, sizeof(words));
    memset(known, 0, sizeof(known));
    for (unsigned round = 0; round < 4 * MANY; round += CN_PREFETCH_MAX) {
        unsigned first = round < MANY ? round : (unsigned)test_next_random() % (MANY / 3);

        for (unsigned i = 0; i < CN_PREFETCH_MAX; i++)
            keys[i] = key_of(bytes[i], first + i);
        for (unsigned i = 0; i < CN_PREFETCH_MAX; i += 2)
            hints[i] = &known[first + i];
        cn_store_prefetch(store, keys, hints, 0);
        cn_store_prefetch(store, keys, hints, CN_PREFETCH_MAX);
        begin(store, CN_STORE_WRITE);
        for (unsigned i = 0; i < CN_PREFETCH_MAX; i++) {
            assert_int_equal(get_word(store, first + i), words[first + i]);
            put_word_by(store, first + i, words[first + i] = round + 1, 60,
                        i % 2 ? NULL : &known[first + i]);
        }
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    expect_words(store, words, MANY);
    cn_store_close(store);
    store = open_with(*state, (struct cn_disk_options){.journal_max_bytes = 1u << 20});
    expect_words(store, words, MANY);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(it_says_what_a_table_would),
        WITH_DIR(kill_9_loses_nothing_committed),
        WITH_DIR(death_at_each_point_loses_nothing),
        WITH_DIR(a_key_of_the_dead_is_listed_by_the_living),
        WITH_DIR(processes_share_a_journal),
        WITH_DIR(altered_bytes_are_told),
        WITH_DIR(missing_files_are_told),
        WITH_DIR(a_missing_lmdb_makes_all_suspect),
        WITH_DIR(lost_keys_are_accepted),
        WITH_DIR(a_failed_append_leaves_nothing),
        WITH_DIR(full_disk_fails_what_grows_only),
        WITH_DIR(the_limit_counts_the_journal),
        WITH_DIR(the_file_stays_near_its_limit),
        WITH_DIR(a_long_journal_is_read_in_parts),
        WITH_DIR(busy_keys_stay_in_the_journal),
        WITH_DIR(many_keys_are_fetched_ahead),
    };

    return cmocka_run_group_tests_name("cache.journal_store", tests, NULL, NULL);
}
