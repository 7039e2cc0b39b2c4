/* core/containers/table_test.c - tests the hash table against a plain array, which is simple enough
 * to be right. */
#include "core/containers/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/test_support.h"

#define ITEMS 20000

struct item {
    char key[16];
    bool in;
    int seen;
};

static struct item items[ITEMS];

static struct cn_str
key_of(const void *item)
{
    return cn_str_from(((const struct item *)item)->key);
}

static void
make_items(void)
{
    int i;

    for (i = 0; i < ITEMS; i++) {
        snprintf(items[i].key, sizeof(items[i].key), "seq-%d", i);
        items[i].in = false;
    }
}

/* Open addressing that removes entries without marks goes wrong in this case. */
static void
random_inserts_and_removes_agree_with_an_array(void **state)
{
    struct cn_table *table = cn_table_create(key_of);
    size_t count = 0;
    int i;

    (void)state;
    make_items();
    for (i = 0; i < 400000; i++) {
        struct item *item = &items[test_next_random() % ITEMS];

        if (item->in) {
            assert_ptr_equal(cn_table_remove(table, key_of(item)), item);
            count--;
        } else {
            assert_null(cn_table_remove(table, key_of(item)));
            cn_table_insert(table, item);
            count++;
        }
        item->in = !item->in;
        assert_int_equal(cn_table_count(table), count);
    }
    for (i = 0; i < ITEMS; i++)
        assert_ptr_equal(cn_table_find(table, key_of(&items[i])), items[i].in ? &items[i] : NULL);
    cn_table_destroy(table);
}

static void
visit(struct cn_table *table, bool (*removes)(const struct item *))
{
    struct item *item;
    size_t cursor = 0;
    int i;

    for (i = 0; i < ITEMS; i++)
        items[i].seen = 0;
    while ((item = cn_table_next(table, &cursor))) {
        assert_true(item->in);
        item->seen++;
        if (removes(item)) {
            assert_ptr_equal(cn_table_remove(table, key_of(item)), item);
            item->in = false;
            item->seen += 10;
        }
    }
    assert_null(cn_table_next(table, &cursor));
}

static bool
remove_none(const struct item *item)
{
    (void)item;
    return false;
}

static bool
remove_some(const struct item *item)
{
    (void)item;
    return test_next_random() % 2 == 0;
}

static bool
remove_all(const struct item *item)
{
    (void)item;
    return true;
}

/* When a model drains, the server walks its sequences and closes them on the way. Each one is met
 * exactly once. */
static void
each_item_is_visited_once_even_while_removing(void **state)
{
    bool (*const ways[])(const struct item *) = {remove_none, remove_some, remove_all};
    struct cn_table *table = cn_table_create(key_of);
    unsigned way;
    int i;

    (void)state;
    make_items();
    for (way = 0; way < 3; way++) {
        for (i = 0; i < ITEMS; i++)
            if (!items[i].in) {
                items[i].in = true;
                cn_table_insert(table, &items[i]);
            }
        visit(table, ways[way]);
        for (i = 0; i < ITEMS; i++)
            assert_int_equal(items[i].seen, items[i].in ? 1 : 11);
    }
    assert_int_equal(cn_table_count(table), 0);
    cn_table_destroy(table);
}

/* A record that is written again takes the place of the old one, and its neighbours stay. */
static void
an_item_takes_anothers_place(void **state)
{
    static struct item again[ITEMS];
    struct cn_table *table = cn_table_create(key_of);
    int i;

    (void)state;
    make_items();
    memcpy(again, items, sizeof(again));
    for (i = 0; i < ITEMS; i++)
        assert_null(cn_table_put(table, &items[i]));
    for (i = 0; i < ITEMS; i += 2)
        assert_ptr_equal(cn_table_put(table, &again[i]), &items[i]);
    assert_int_equal(cn_table_count(table), ITEMS);
    for (i = 0; i < ITEMS; i++)
        assert_ptr_equal(cn_table_find(table, key_of(&items[i])),
                         i % 2 == 0 ? &again[i] : &items[i]);
    cn_table_destroy(table);
}

static void
an_empty_table_answers(void **state)
{
    struct cn_table *table = cn_table_create(key_of);
    size_t cursor = 0;

    (void)state;
    assert_null(cn_table_find(table, CN_STR("x")));
    assert_null(cn_table_find(table, cn_str_from(NULL)));
    assert_null(cn_table_remove(table, CN_STR("x")));
    assert_null(cn_table_next(table, &cursor));
    cn_table_destroy(table);
    cn_table_destroy(NULL);
}

/* A prefetch is only a hint: it may be asked for in a large, a small or an empty table. */
static void
fetching_changes_nothing(void **state)
{
    struct cn_table *table = cn_table_create(key_of);
    struct cn_str keys[CN_PREFETCH_MAX];
    void *found[CN_PREFETCH_MAX];

    (void)state;
    make_items();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CN_PREFETCH_MAX; i++)
            keys[i] = key_of(&items[test_next_random() % ITEMS]);
        cn_table_prefetch(table, keys, 0, sizeof(struct item), NULL);
        cn_table_prefetch(table, keys, CN_PREFETCH_MAX, sizeof(struct item), found);
        for (int i = 0; i < CN_PREFETCH_MAX; i++)
            assert_ptr_equal(found[i], round < 2 ? NULL : cn_table_find(table, keys[i]));
        for (int i = round * 50; round < 2 && i < (round ? ITEMS * 3 / 4 : 50); i++)
            cn_table_insert(table, &items[i]);
    }
    for (int i = 0; i < ITEMS; i++)
        assert_ptr_equal(cn_table_find(table, key_of(&items[i])),
                         i < ITEMS * 3 / 4 ? &items[i] : NULL);
    cn_table_destroy(table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_inserts_and_removes_agree_with_an_array),
        cmocka_unit_test(an_item_takes_anothers_place),
        cmocka_unit_test(each_item_is_visited_once_even_while_removing),
        cmocka_unit_test(an_empty_table_answers),
        cmocka_unit_test(fetching_changes_nothing),
    };

    return cmocka_run_group_tests_name("core.table", tests, NULL, NULL);
}
