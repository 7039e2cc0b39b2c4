/* management/models/registry_test.c - tests names and default versions, and views over several
 * loops. */
#include "management/models/registry.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"

#define LOOPS 3

static struct cn_loop *loops[LOOPS];
static struct cn_registry *registry;
static int queues[8]; /* their addresses stand for queues */

static int
set_up(void **state)
{
    unsigned i;

    (void)state;
    for (i = 0; i < LOOPS; i++)
        assert_int_equal(cn_loop_create(i, &loops[i], NULL), 0);
    registry = cn_registry_create(loops, LOOPS);
    return 0;
}

static void
drop(struct cn_version *version)
{
    cn_registry_remove(registry, version);
    cn_registry_forget(version);
    cn_model_about_fini(&version->about);
    cn_free(version);
}

static void
turn_all(unsigned times)
{
    unsigned i;

    while (times-- > 0)
        for (i = 0; i < LOOPS; i++)
            cn_loop_turn(loops[i], 0);
}

static void
publish(void)
{
    cn_registry_publish(registry, NULL, NULL);
    turn_all(6);
}

static int
tear_down(void **state)
{
    struct cn_list *models = cn_registry_models(registry), *node;
    unsigned i;

    (void)state;
    while (!cn_list_empty(models)) {
        node = cn_container_of(models->next, struct cn_model, link)->versions.next;
        drop(cn_container_of(node, struct cn_version, link));
    }
    publish();
    cn_registry_destroy(registry);
    for (i = 0; i < LOOPS; i++)
        cn_loop_destroy(loops[i]);
    return 0;
}

static struct cn_version *
make(const char *name, const char *version_name)
{
    struct cn_version *version = cn_alloc(sizeof *version);

    cn_list_init(&version->link);
    version->about.name = cn_strdup(name);
    version->about.version = cn_strdup(version_name);
    version->phase = CN_VERSION_UP;
    return version;
}

static struct cn_version *
add(const char *name, const char *version_name, unsigned queue)
{
    struct cn_version *version = make(name, version_name);

    version->queue = (struct cn_model_queue *)&queues[queue];
    assert_int_equal(cn_registry_add(registry, version, NULL), 0);
    return version;
}

static void *
lookup(const char *name, const char *version, struct cn_error *err)
{
    return cn_registry_lookup(registry, cn_str_from(name), cn_str_from(version), err);
}

/* A name means its default version: the first one, until another is chosen. */
static void
the_first_version_is_the_default(void **state)
{
    struct cn_version *second;
    struct cn_error err;

    (void)state;
    add("m", "1.0", 0);
    second = add("m", "2.0", 1);
    publish();
    assert_ptr_equal(lookup("m", "", &err), &queues[0]);
    assert_ptr_equal(lookup("m", "2.0", &err), &queues[1]);
    cn_registry_set_default(second);
    publish();
    assert_ptr_equal(lookup("m", "", &err), &queues[1]);
}

/* Clients and scripts look for TorchServe's messages. */
static void
unknown_names_get_torchserves_words(void **state)
{
    struct cn_error err;

    (void)state;
    add("m", "1.0", 0);
    publish();
    assert_null(lookup("n", "", &err));
    assert_int_equal(err.code, CN_E_MODEL_NOT_FOUND);
    assert_string_equal(err.message, "Model not found: n");
    assert_null(lookup("m", "3", &err));
    assert_int_equal(err.code, CN_E_VERSION_NOT_FOUND);
    assert_string_equal(err.message, "Model version: 3 does not exist for model: m");
}

/* Two models with the same name and version would be one too many, even if the old one is still
 * ending. */
static void
the_same_version_twice_is_a_conflict(void **state)
{
    struct cn_version *first = add("m", "1.0", 0), *again = make("m", "1.0");
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_registry_add(registry, again, &err), CN_E_CONFLICT);
    assert_string_equal(err.message, "Model version 1.0 is already registered for model m");
    cn_registry_remove(registry, first);
    assert_int_equal(cn_registry_add(registry, again, &err), CN_E_CONFLICT);
    cn_registry_forget(first);
    cn_model_about_fini(&first->about);
    cn_free(first);
    assert_int_equal(cn_registry_add(registry, again, &err), 0);
}

/* Without a name only one model can be meant: the only one of the command line. */
static void
the_single_startup_model_needs_no_name(void **state)
{
    struct cn_version *first, *newer, *other;
    struct cn_error err;

    (void)state;
    add("a", "1.0", 0);
    publish();
    assert_null(cn_registry_lookup_startup(registry, &err));
    assert_int_equal(err.code, CN_E_BAD_REQUEST);
    assert_string_equal(err.message, "Parameter model_name is required.");
    first = add("m", "1.0", 1);
    first->at_startup = true;
    newer = add("m", "2.0", 2);
    publish();
    assert_ptr_equal(cn_registry_lookup_startup(registry, &err), &queues[1]);
    cn_registry_set_default(newer);
    publish();
    assert_ptr_equal(cn_registry_lookup_startup(registry, &err), &queues[2]);
    other = add("z", "1.0", 3);
    other->at_startup = true;
    publish();
    assert_null(cn_registry_lookup_startup(registry, &err));
}

/* Views are searched by bisection: each of many models must be found, in whatever order they were
 * added. */
static void
all_of_many_models_are_found(void **state)
{
    static const char *const names[] = {"m5", "a", "zz", "m", "m50", "b", "M", "0"};
    unsigned i;

    (void)state;
    for (i = 0; i < 8; i++)
        add(names[i], "1", i);
    publish();
    for (i = 0; i < 8; i++)
        assert_ptr_equal(lookup(names[i], "", NULL), &queues[i]);
    assert_null(lookup("m500", "", NULL));
}

/* A version that is only reserved has no queue: it cannot be found, and cannot become the default
 * yet. */
static void
a_version_without_queue_is_not_found(void **state)
{
    struct cn_version *version = add("m", "1.0", 0);
    struct cn_error err;

    (void)state;
    version->phase = CN_VERSION_REGISTERING;
    publish();
    assert_null(lookup("m", "", &err));
    assert_null(cn_registry_find(registry, "m", NULL, &err));
    add("m", "2.0", 1);
    publish();
    assert_null(lookup("m", "", &err));
    assert_ptr_equal(lookup("m", "2.0", &err), &queues[1]);
}

static void
set_flag(void *ctx)
{
    *(bool *)ctx = true;
}

/* A queue may be closed once nobody can find it. So a publication is finished when the slowest loop
 * has ended the turn in which it took the view. */
static void
a_publication_waits_for_every_loop(void **state)
{
    struct cn_version *version = add("m", "1.0", 0);
    bool done = false;
    int i;

    (void)state;
    publish();
    drop(version);
    cn_registry_publish(registry, set_flag, &done);
    for (i = 0; i < 10; i++) {
        cn_loop_turn(loops[0], 0);
        cn_loop_turn(loops[1], 0);
    }
    assert_false(done);
    assert_null(lookup("m", "", NULL)); /* on loop 1 */
    cn_loop_turn(loops[2], 0);          /* takes the view */
    cn_loop_turn(loops[0], 0);
    assert_false(done);
    cn_loop_turn(loops[2], 0); /* one turn later */
    cn_loop_turn(loops[0], 0);
    assert_true(done);
}

/* --- over threads */

struct reader {
    pthread_t thread;
    struct cn_loop *loop;
    struct cn_deferred again;
    unsigned long seen;
};

static void
look(struct cn_deferred *again)
{
    struct reader *reader = cn_container_of(again, struct reader, again);
    struct cn_model_queue *queue =
        cn_registry_lookup(registry, CN_STR("m"), (struct cn_str){NULL, 0}, NULL);

    /* This would touch a queue that was freed. */
    if (queue) {
        assert_int_equal(*(int *)queue, 42);
        reader->seen++;
    }
    cn_loop_defer(reader->loop, again); /* in the next turn, which does not wait */
}

static void *
read_for_ever(void *arg)
{
    struct reader *reader = arg;

    reader->again = (struct cn_deferred){.fn = look};
    cn_loop_defer(reader->loop, &reader->again);
    cn_loop_run(reader->loop);
    return NULL;
}

/* Busy loops never see a queue that is gone; ThreadSanitizer and AddressSanitizer check this. */
static void
running_loops_never_find_what_is_gone(void **state)
{
    struct reader readers[LOOPS - 1];
    struct cn_version *version;
    bool done;
    int *queue;
    unsigned i;

    (void)state;
    for (i = 1; i < LOOPS; i++) {
        readers[i - 1] = (struct reader){.loop = loops[i]};
        assert_int_equal(
            pthread_create(&readers[i - 1].thread, NULL, read_for_ever, &readers[i - 1]), 0);
    }
    for (i = 0; i < 200; i++) {
        version = make("m", "1.0");
        queue = cn_alloc(sizeof *queue);
        *queue = 42;
        version->queue = (struct cn_model_queue *)queue;
        assert_int_equal(cn_registry_add(registry, version, NULL), 0);
        cn_registry_publish(registry, NULL, NULL);
        cn_loop_turn(loops[0], 0);
        cn_registry_remove(registry, version);
        done = false;
        cn_registry_publish(registry, set_flag, &done);
        while (!done)
            cn_loop_turn(loops[0], 100);
        cn_registry_forget(version);
        cn_model_about_fini(&version->about);
        cn_free(version);
        cn_free(queue);
    }
    for (i = 1; i < LOOPS; i++) {
        cn_loop_stop(loops[i]);
        pthread_join(readers[i - 1].thread, NULL);
        cn_list_remove(&readers[i - 1].again.link);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_version_is_the_default, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_names_get_torchserves_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_version_twice_is_a_conflict, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_single_startup_model_needs_no_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_of_many_models_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_version_without_queue_is_not_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_publication_waits_for_every_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(running_loops_never_find_what_is_gone, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("management.registry", tests, NULL, NULL);
}
