/* store/journal/salvage/journal_damage_test.c - damaged and missing files of a journal store are
 * noticed, and no older value comes back. */
#include "store/journal/test_journal.h"

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

/* A process that is killed while it writes to the ledger may leave the beginning of an entry there.
 * The next process writes the whole entry, so nothing is missing from the ledger later. */
static void
the_beginning_of_a_ledger_entry_is_completed(void **state)
{
    static const char zeros[24];
    const off_t last_end = 64 + 3 * 64; /* the header, and three entries with one key each */
    struct cn_store *store = open_small(*state);
    uint32_t words[3];
    char path[256];
    int fd;

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(step(store, i, words[i] = i + 1, 24, NULL), 0);
    cn_store_close(store);
    path_in(*state, "ledger.0", path);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, sizeof(zeros), last_end - 24), 24);
    close(fd);
    store = open_small(*state);
    assert_int_equal(step(store, 0, words[0] = 4, 24, NULL), 0);
    cn_store_close(store);
    assert_int_equal(count_refused(*state, words, 3), 0);
    assert_false(is_told(*state));
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(altered_bytes_are_told),
        WITH_DIR(missing_files_are_told),
        WITH_DIR(a_missing_lmdb_makes_all_suspect),
        WITH_DIR(lost_keys_are_accepted),
        WITH_DIR(the_beginning_of_a_ledger_entry_is_completed),
    };

    return cmocka_run_group_tests_name("cache.journal_damage", tests, NULL, NULL);
}
