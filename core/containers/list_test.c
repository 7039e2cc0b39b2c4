/* core/containers/list_test.c - the intrusive list. */
#include "core/containers/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct item {
    int value;
    struct cn_list link;
};

static void
make(struct item *items, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        items[i].value = i;
        cn_list_init(&items[i].link);
    }
}

static void
expect(struct cn_list *head, const int *values, int count)
{
    struct cn_list *node;
    int i = 0;

    cn_list_for_each(node, head) {
        assert_true(i < count);
        assert_int_equal(cn_container_of(node, struct item, link)->value, values[i++]);
    }
    assert_int_equal(i, count);
}

static void
keeps_the_order_of_both_ends(void **state)
{
    struct item items[3];
    struct cn_list head;

    (void)state;
    make(items, 3);
    cn_list_init(&head);
    assert_true(cn_list_empty(&head));
    assert_null(cn_list_pop_front(&head));
    cn_list_push_back(&head, &items[1].link);
    cn_list_push_back(&head, &items[2].link);
    cn_list_push_front(&head, &items[0].link);
    expect(&head, (int[]){0, 1, 2}, 3);
    assert_ptr_equal(cn_list_pop_front(&head), &items[0].link);
    assert_false(cn_list_linked(&items[0].link));
    assert_true(cn_list_linked(&items[1].link));
}

/* An owner may remove an item without asking whether it is in a list. */
static void
removing_twice_is_harmless(void **state)
{
    struct item items[2];
    struct cn_list head, *node, *tmp;

    (void)state;
    make(items, 2);
    cn_list_init(&head);
    cn_list_push_back(&head, &items[0].link);
    cn_list_push_back(&head, &items[1].link);
    cn_list_for_each_safe(node, tmp, &head)
        cn_list_remove(node);
    cn_list_remove(&items[0].link);
    assert_true(cn_list_empty(&head));
}

static void
splice_moves_all_to_the_end(void **state)
{
    struct item items[4];
    struct cn_list to, from;
    int i;

    (void)state;
    make(items, 4);
    cn_list_init(&to);
    cn_list_init(&from);
    cn_list_splice_back(&to, &from);
    assert_true(cn_list_empty(&to));
    for (i = 0; i < 4; i++)
        cn_list_push_back(i < 2 ? &to : &from, &items[i].link);
    cn_list_splice_back(&to, &from);
    expect(&to, (int[]){0, 1, 2, 3}, 4);
    assert_true(cn_list_empty(&from));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_order_of_both_ends),
        cmocka_unit_test(removing_twice_is_harmless),
        cmocka_unit_test(splice_moves_all_to_the_end),
    };

    return cmocka_run_group_tests_name("core.list", tests, NULL, NULL);
}
