/* scheduler/queue/job_group_test.c - tests the waiting jobs of one sequence. */
#include "scheduler/queue/job_group.h"

#include "scheduler/test_support.h"

/* Jobs run one at a time, in the order of their arrival. The next one runs when the one before has
 * been answered. */
static void
jobs_leave_one_by_one_in_order(void **state)
{
    struct cn_job a, b;
    struct cn_job_group group;

    (void)state;
    cn_job_group_init(&group);
    assert_null(cn_job_group_take(&group));
    assert_true(cn_job_group_push(&group, &a, 2));
    assert_true(cn_job_group_push(&group, &b, 2));
    assert_ptr_equal(cn_job_group_next(&group), &a);
    assert_ptr_equal(cn_job_group_take(&group), &a);
    assert_null(cn_job_group_next(&group));
    assert_null(cn_job_group_take(&group));
    cn_job_group_settle(&group);
    assert_ptr_equal(cn_job_group_take(&group), &b);
    assert_false(cn_job_group_idle(&group));
    cn_job_group_settle(&group);
    assert_true(cn_job_group_idle(&group));
}

/* A full group refuses; the job in flight does not count. */
static void
full_group_refuses(void **state)
{
    struct cn_job a, b, c;
    struct cn_job_group group;

    (void)state;
    cn_job_group_init(&group);
    assert_true(cn_job_group_push(&group, &a, 1));
    assert_false(cn_job_group_push(&group, &b, 1));
    cn_job_group_take(&group);
    assert_true(cn_job_group_push(&group, &b, 1));
    assert_false(cn_job_group_push(&group, &c, 1));
    assert_int_equal(group.waiting, 1);
}

/* A job that comes back goes before all that wait, even if the group is full. */
static void
put_back_goes_to_the_front(void **state)
{
    struct cn_job a, b;
    struct cn_job_group group;

    (void)state;
    cn_job_group_init(&group);
    cn_job_group_push(&group, &a, 1);
    cn_job_group_take(&group);
    cn_job_group_push(&group, &b, 1);
    cn_job_group_put_back(&group, &a);
    assert_int_equal(group.waiting, 2);
    assert_ptr_equal(cn_job_group_take(&group), &a);
}

/* A cancelled job is taken out from the middle of the group. */
static void
removed_job_leaves_no_gap(void **state)
{
    struct cn_job a, b, c;
    struct cn_job_group group;

    (void)state;
    cn_job_group_init(&group);
    cn_job_group_push(&group, &a, 3);
    cn_job_group_push(&group, &b, 3);
    cn_job_group_push(&group, &c, 3);
    cn_job_group_remove(&group, &b);
    assert_ptr_equal(cn_job_group_take(&group), &a);
    cn_job_group_settle(&group);
    assert_ptr_equal(cn_job_group_take(&group), &c);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_leave_one_by_one_in_order),
        cmocka_unit_test(full_group_refuses),
        cmocka_unit_test(put_back_goes_to_the_front),
        cmocka_unit_test(removed_job_leaves_no_gap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
