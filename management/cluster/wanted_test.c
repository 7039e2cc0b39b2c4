/* management/cluster/wanted_test.c - tests the set of models that all nodes serve. */
#include "management/cluster/wanted.h"

#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/test_support.h"

#define ENTRY(version, id, is_default)                                                             \
    "{\"name\":\"m\",\"version\":\"" version "\",\"url\":\"m.mar\",\"digest\":\"d" version         \
    "\",\"id\":\"" id "\",\"default\":" is_default "}"
#define LOG(changes) "{\"layout\":1,\"models\":[],\"changesSince\":0,\"changes\":" changes "}"
#define CHANGE(generation, id)                                                                     \
    "{\"kind\":\"scale\",\"name\":\"m\",\"version\":\"1\",\"generation\":" generation              \
    ",\"change\":\"" id "\"}"
#define SET(entries) "{\"layout\":1,\"models\":[" entries "]}"

static struct cn_wanted wanted;
static struct cn_error err;
static bool changed;
static char id[CN_WANTED_ID_MAX];

static int
tear_down(void **state)
{
    (void)state;
    cn_wanted_fini(&wanted);
    return 0;
}

static int
apply(enum cn_wanted_kind kind, const char *version, const char *digest, const char *its_id)
{
    const struct cn_wanted_change change = {.kind = kind,
                                            .model = {.name = (char *)"m",
                                                      .version = (char *)version,
                                                      .url = (char *)"m.mar",
                                                      .digest = (char *)digest,
                                                      .id = (char *)its_id,
                                                      .min_workers = 3,
                                                      .max_workers = 4},
                                            .retire_wall_ms = 77,
                                            .change_id = "c",
                                            .generation = wanted.n_log + 1};

    return cn_wanted_apply(&wanted, &change, &changed, id, &err);
}

static void
a_set_is_read_as_it_was_written(void **state)
{
    struct cn_wanted again;
    struct cn_buf text;

    (void)state;
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "aa", "id1"), 0);
    assert_int_equal(apply(CN_WANTED_REGISTER, "2.0", "bb", "id2"), 0);
    wanted.models[1].handler = cn_strdup("h.lua");
    cn_buf_init(&text, 0);
    cn_wanted_print(&wanted, &text);
    assert_int_equal(cn_wanted_parse(cn_buf_str(&text), &again, &err), 0);
    assert_int_equal(again.n, 2);
    assert_true(again.models[0].is_default && !again.models[1].is_default);
    assert_string_equal(again.models[1].handler, "h.lua");
    assert_null(again.models[0].handler);
    assert_string_equal(again.models[1].id, "id2");
    assert_int_equal(again.models[1].max_workers, 4);
    assert_true(again.has_log && again.n_log == 2 && again.log[1].generation == 2);
    assert_string_equal(again.log[1].model.digest, "bb");
    cn_buf_fini(&text);
    cn_wanted_fini(&again);
}

/* The text comes from a store that other programs can write to. */
static void
a_damaged_set_is_refused_with_the_entry(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{", "is not JSON"},
        {"{\"layout\":2,\"models\":[]}", "has layout 2; this version of Continuo knows layout 1"},
        {"{\"layout\":1}", "\"models\" must be an array"},
        {SET("3"), "\"name\" of entry 1"},
        {SET("{\"name\":\"m\",\"version\":\"\"}"), "\"version\" of entry 1"},
        {SET(ENTRY("1", "a", "true") ",{\"name\":\"n\"}"), "\"version\" of entry 2"},
        {SET("{\"name\":\"m\",\"version\":\"1\",\"url\":\"u\",\"digest\":\"d\",\"id\":\"i\","
             "\"minWorkers\":-1,\"default\":true}"),
         "\"minWorkers\" of entry 1"},
        {SET(ENTRY("1", "0123456789abcdef0", "true")), "the \"id\" of entry 1 is too long"},
        {SET(ENTRY("1", "a", "true") "," ENTRY("1", "b", "false")), "version 1 twice"},
        {SET(ENTRY("1", "a", "false")), "must have one default version"},
        {SET(ENTRY("1", "a", "true") "," ENTRY("2", "b", "true")), "must have one default version"},
        {LOG("3"), "\"changes\" must be an array"},
        {LOG("[{\"kind\":\"scale\"}]"), "change 1: name or version is missing"},
        {LOG("[{\"kind\":\"register\",\"name\":\"m\"}]"), "\"version\" of change 1"},
        {LOG("[" CHANGE("1", "0123456789abcdef0") "]"), "\"change\" is missing or too long"},
        {LOG("[" CHANGE("0", "a") "]"), "change 1: \"generation\" is out of range"},
        {LOG("[" CHANGE("5", "a") "," CHANGE("4", "b") "]"), "lower than the one before"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cn_wanted_parse(cn_str_from(cases[i].text), &wanted, &err), CN_E_PROTOCOL);
        if (!strstr(err.message, cases[i].why))
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_null(wanted.models);
    }
}

/* Nodes that start together register the same models; that must not be a conflict. */
static void
the_same_archive_may_be_registered_twice_but_not_another_one(void **state)
{
    (void)state;
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "aa", "id1"), 0);
    assert_true(changed);
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "aa", "id2"), 0);
    assert_false(changed);
    assert_string_equal(id, "id1");
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "bb", "id3"), CN_E_CONFLICT);
    assert_false(changed);
    assert_int_equal(wanted.n, 1);
}

/* Readers would take the whole set for damaged. */
static void
what_readers_refuse_is_not_written(void **state)
{
    char url[2100];

    (void)state;
    memset(url, 'a', sizeof(url));
    url[sizeof(url) - 1] = '\0';
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", url, "id1"), CN_E_BAD_REQUEST);
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "\xe8", "id1"), CN_E_BAD_REQUEST);
    assert_int_equal(wanted.n, 0);
}

static void
the_default_moves_and_the_version_before_it_retires(void **state)
{
    (void)state;
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "aa", "id1"), 0);
    assert_int_equal(apply(CN_WANTED_REGISTER, "2.0", "bb", "id2"), 0);
    assert_int_equal(apply(CN_WANTED_UNREGISTER, "1.0", NULL, NULL), CN_E_VERSION_IN_USE);
    assert_int_equal(apply(CN_WANTED_SET_DEFAULT, "3.0", NULL, NULL), CN_E_VERSION_NOT_FOUND);
    assert_int_equal(apply(CN_WANTED_SET_DEFAULT, "2.0", NULL, NULL), 0);
    assert_int_equal(cn_wanted_find(&wanted, "m", "1.0")->retire_wall_ms, 77);
    assert_ptr_equal(cn_wanted_find(&wanted, "m", NULL), cn_wanted_find(&wanted, "m", "2.0"));
    /* A deadline that passed for an earlier registration means nothing to the present one. */
    assert_int_equal(apply(CN_WANTED_RETIRED, "1.0", NULL, "other"), 0);
    assert_int_equal(wanted.n, 2);
    assert_int_equal(apply(CN_WANTED_RETIRED, "1.0", NULL, "id1"), 0);
    assert_int_equal(wanted.n, 1);
    /* The default version stays. */
    assert_int_equal(apply(CN_WANTED_RETIRED, "2.0", NULL, "id2"), 0);
    assert_int_equal(wanted.n, 1);
}

static void
what_is_unknown_cannot_be_changed(void **state)
{
    (void)state;
    assert_int_equal(apply(CN_WANTED_SCALE, NULL, NULL, NULL), CN_E_MODEL_NOT_FOUND);
    assert_int_equal(apply(CN_WANTED_UNREGISTER, NULL, NULL, NULL), CN_E_MODEL_NOT_FOUND);
    assert_int_equal(apply(CN_WANTED_REGISTER, "1.0", "aa", "id1"), 0);
    assert_int_equal(apply(CN_WANTED_SCALE, "9.0", NULL, NULL), CN_E_VERSION_NOT_FOUND);
    assert_int_equal(apply(CN_WANTED_SCALE, NULL, NULL, NULL), 0);
    assert_false(changed); /* it has these workers already */
    assert_int_equal(apply(CN_WANTED_UNREGISTER, "1.0", NULL, NULL), 0);
    assert_string_equal(id, "id1");
    assert_int_equal(wanted.n, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_set_is_read_as_it_was_written, tear_down),
        cmocka_unit_test_teardown(a_damaged_set_is_refused_with_the_entry, tear_down),
        cmocka_unit_test_teardown(what_readers_refuse_is_not_written, tear_down),
        cmocka_unit_test_teardown(the_same_archive_may_be_registered_twice_but_not_another_one,
                                  tear_down),
        cmocka_unit_test_teardown(the_default_moves_and_the_version_before_it_retires, tear_down),
        cmocka_unit_test_teardown(what_is_unknown_cannot_be_changed, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
