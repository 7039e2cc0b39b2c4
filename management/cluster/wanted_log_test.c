/* management/cluster/wanted_log_test.c - tests that no change of the set of models is lost when the
 * store comes back without it. */
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/test_support.h"
#include "management/cluster/wanted.h"

/* What two nodes have seen, and what the store has. */
static struct cn_wanted a, b, store;
static uint64_t generation;
static char lost[CN_ERROR_MESSAGE_MAX + 100];

static int
set_up(void **state)
{
    (void)state;
    a.has_log = true;
    generation = 0;
    lost[0] = '\0';
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_wanted_fini(&a);
    cn_wanted_fini(&b);
    cn_wanted_fini(&store);
    return 0;
}

/* A node reads what another one has written. */
static void
copy(const struct cn_wanted *from, struct cn_wanted *to)
{
    struct cn_error err;
    struct cn_buf text;

    cn_wanted_fini(to);
    cn_buf_init(&text, 0);
    cn_wanted_print(from, &text);
    assert_int_equal(cn_wanted_parse(cn_buf_str(&text), to, &err), 0);
    cn_buf_fini(&text);
}

static void
change(struct cn_wanted *set, enum cn_wanted_kind kind, const char *version, int64_t workers)
{
    static unsigned n_changes;
    struct cn_wanted_change what = {.kind = kind,
                                    .model = {.name = (char *)"m",
                                              .version = (char *)version,
                                              .min_workers = workers,
                                              .max_workers = workers},
                                    .generation = ++generation};
    struct cn_error err;
    char id[CN_WANTED_ID_MAX], digest[20];
    bool changed;

    snprintf(what.change_id, sizeof what.change_id, "c%u", ++n_changes);
    snprintf(id, sizeof id, "i%u", n_changes);
    snprintf(digest, sizeof digest, "d%lld", (long long)workers);
    if (kind == CN_WANTED_REGISTER) {
        what.model.id = id;
        what.model.url = (char *)"m.mar";
        what.model.digest = digest;
    }
    assert_int_equal(cn_wanted_apply(set, &what, &changed, NULL, &err), 0);
    assert_true(changed);
}

static void
note_lost(void *ctx, const struct cn_wanted_change *what, const struct cn_error *err)
{
    (void)ctx;
    snprintf(lost, sizeof lost, "%s %s: %s", cn_wanted_kind_word(what->kind), what->model.version,
             err->message);
}

/* A node that has seen `mine` looks at the store. Returns whether it writes. */
static bool
look(const struct cn_wanted *mine)
{
    struct cn_wanted kept = {0};
    bool writes;

    copy(mine, &kept);
    writes = cn_wanted_merge(&store, &kept, false, generation + 1, note_lost, NULL);
    generation += writes;
    cn_wanted_fini(&kept);
    return writes;
}

static const char *
versions(const struct cn_wanted *set)
{
    static char out[200];

    out[0] = '\0';
    for (uint32_t i = 0; i < set->n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s:%lld ", set->models[i].version,
                 set->models[i].is_default ? "*" : "", (long long)set->models[i].min_workers);
    return out;
}

static void
what_the_store_has_in_addition_is_taken(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    assert_false(look(&a));
    change(&store, CN_WANTED_REGISTER, "2", 1);
    assert_false(look(&a));
    assert_string_equal(versions(&store), "1*:1 2:1 ");
}

static void
an_older_set_gets_the_lost_changes_back(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    change(&a, CN_WANTED_REGISTER, "2", 1);
    change(&a, CN_WANTED_SET_DEFAULT, "2", 1);
    change(&a, CN_WANTED_UNREGISTER, "1", 1);
    assert_true(look(&a));
    assert_string_equal(versions(&store), "2*:1 ");
    assert_false(look(&a));
    copy(&(struct cn_wanted){.has_log = true}, &store); /* all data are gone */
    assert_true(look(&a));
    assert_string_equal(versions(&store), "2*:1 ");
}

/* Two nodes each know a change that the store has lost, and a third one has made a new one. The
 * generations of all three are the same. */
static void
sets_that_parted_become_one(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    change(&a, CN_WANTED_REGISTER, "2", 1);
    copy(&store, &b);
    generation = 1;
    change(&b, CN_WANTED_REGISTER, "3", 1);
    generation = 1;
    change(&store, CN_WANTED_REGISTER, "4", 1);
    assert_true(look(&a));
    assert_true(look(&b));
    assert_false(look(&a));
    assert_false(look(&b));
    assert_int_equal(store.n, 4);
    assert_string_equal(store.models[0].version, "1");
    assert_true(store.models[0].is_default);
}

/* The lost change is the older one. */
static void
the_last_change_of_the_same_thing_wins(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    change(&a, CN_WANTED_SCALE, "1", 2);
    change(&store, CN_WANTED_SCALE, "1", 4);
    assert_true(look(&a));
    assert_string_equal(versions(&store), "1*:4 ");
    assert_false(look(&a));
}

/* Both archives cannot be served under one name. The nodes agree on one of them, and say so. */
static void
a_change_that_contradicts_is_dropped_once(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    copy(&a, &b);
    change(&a, CN_WANTED_REGISTER, "2", 7);
    change(&store, CN_WANTED_REGISTER, "2", 8);
    copy(&store, &b);
    assert_true(look(&a));
    assert_non_null(strstr(lost, "register 2: Model version 2 is already registered"));
    assert_string_equal(versions(&store), "1*:1 2:7 ");
    assert_false(look(&a));
    assert_false(look(&b));
}

/* The version was registered anew meanwhile: the unregistration does not mean that one. */
static void
an_unregistration_concerns_the_registration_that_it_meant(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    change(&a, CN_WANTED_REGISTER, "2", 1);
    copy(&a, &store);
    change(&a, CN_WANTED_UNREGISTER, "2", 1);
    change(&a, CN_WANTED_REGISTER, "2", 9);
    change(&store, CN_WANTED_UNREGISTER, "2", 1);
    assert_true(look(&a));
    assert_string_equal(versions(&store), "1*:1 2:9 ");
}

/* More changes than the log holds were made since the failover, so the store's set is the base. */
static void
a_lost_change_comes_back_after_many_others(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    generation = 30;
    change(&a, CN_WANTED_REGISTER, "2", 1);
    generation = 10;
    for (int i = 0; i < 2 * CN_WANTED_LOG_MAX; i++)
        change(&store, CN_WANTED_SCALE, "1", 10 + i);
    assert_true(look(&a));
    assert_string_equal(versions(&store), "1*:41 2:1 ");
    assert_int_equal(store.n_log, CN_WANTED_LOG_MAX);
    assert_false(look(&a));
}

/* A node that slept for long must not undo what the others did. */
static void
an_old_set_changes_nothing(void **state)
{
    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    for (int i = 0; i < 2 * CN_WANTED_LOG_MAX; i++)
        change(&store, CN_WANTED_SCALE, "1", 10 + i);
    assert_false(look(&a));
    assert_string_equal(versions(&store), "1*:41 ");
}

/* Older versions of Continuo write no log; then the higher generation counts. */
static void
without_a_log_the_generation_decides(void **state)
{
    struct cn_wanted kept = {0};

    (void)state;
    change(&a, CN_WANTED_REGISTER, "1", 1);
    copy(&a, &store);
    change(&a, CN_WANTED_REGISTER, "2", 1);
    store.has_log = false;
    copy(&a, &kept);
    assert_false(cn_wanted_merge(&store, &kept, false, 9, note_lost, NULL));
    assert_int_equal(store.n, 1);
    assert_true(cn_wanted_merge(&store, &kept, true, 9, note_lost, NULL));
    assert_int_equal(store.n, 2);
    cn_wanted_fini(&kept);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_the_store_has_in_addition_is_taken),
        TEST(an_older_set_gets_the_lost_changes_back),
        TEST(sets_that_parted_become_one),
        TEST(the_last_change_of_the_same_thing_wins),
        TEST(a_change_that_contradicts_is_dropped_once),
        TEST(an_unregistration_concerns_the_registration_that_it_meant),
        TEST(a_lost_change_comes_back_after_many_others),
        TEST(an_old_set_changes_nothing),
        TEST(without_a_log_the_generation_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
