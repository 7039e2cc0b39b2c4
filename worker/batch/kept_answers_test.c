/* worker/batch/kept_answers_test.c - tests the list of earlier answers in a record: what is found
 * in it, and what a limit leaves of it. */
#include "worker/batch/kept_answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Fills the record of a step whose answer is its number, behind the steps in `list`. */
static struct cn_record
step_record(uint64_t step, struct cn_str list, char text[24])
{
    snprintf(text, 24, "%llu", (unsigned long long)step);
    return (struct cn_record){
        .flags = CN_RECORD_HAS_STATE | CN_RECORD_HAS_ANSWER | CN_RECORD_ASKED | CN_RECORD_KEYED,
        .generation = 7,
        .step = step,
        .opened_wall_ms = 1000,
        .last_wall_ms = 2000,
        .keys = CN_STR("12345678"),
        .request_hash = 100 + step,
        .content_type = CN_STR("text/plain; charset=utf-8"),
        .body = cn_str_from(text),
        .state = CN_STR("a state that must not be kept"),
        .earlier = list,
    };
}

/* Makes the list that stands behind step `n`: n - 1, n - 2, ..., 1. */
static struct cn_buf
list_of(uint64_t n)
{
    struct cn_buf list, next;
    char text[24];

    cn_buf_init(&list, 0);
    for (uint64_t step = 1; step < n; step++) {
        const struct cn_record record = step_record(step, cn_buf_str(&list), text);

        cn_buf_init(&next, 0);
        cn_kept_append(&record, &next);
        assert_false(next.failed);
        cn_buf_fini(&list);
        list = next;
    }
    return list;
}

static void
every_kept_answer_is_found_by_its_number(void **state)
{
    struct cn_buf list = list_of(5), encoded;
    struct cn_record record, got, kept;
    char text[24], wanted[24];

    (void)state;
    record = step_record(5, cn_buf_str(&list), text);
    cn_buf_init(&encoded, 0);
    assert_int_equal(cn_record_encode(&record, &encoded, NULL), 0);
    assert_int_equal(cn_record_decode(cn_buf_str(&encoded), &got, NULL), 0);
    assert_true(cn_str_eq(got.earlier, cn_buf_str(&list)));
    for (uint64_t step = 1; step < 5; step++) {
        snprintf(wanted, sizeof(wanted), "%llu", (unsigned long long)step);
        assert_true(cn_kept_find(&got, step, &kept));
        assert_true(cn_str_eq(kept.body, cn_str_from(wanted)));
        assert_int_equal(kept.request_hash, 100 + step);
        assert_int_equal(kept.state.len + kept.keys.len + kept.earlier.len, 0);
    }
    assert_false(cn_kept_find(&got, 5, &kept));
    assert_false(cn_kept_find(&got, 0, &kept));
    for (size_t len = 0; len < encoded.len; len++)
        assert_int_equal(cn_record_decode((struct cn_str){encoded.data, len}, &kept, NULL),
                         CN_E_STATE_STORE);
    cn_buf_fini(&encoded);
    cn_buf_fini(&list);
}

static void
answers_of_another_generation_are_not_found(void **state)
{
    struct cn_buf list = list_of(3);
    struct cn_record record, kept;
    char text[24];

    (void)state;
    record = step_record(3, cn_buf_str(&list), text);
    record.generation = 8;
    assert_false(cn_kept_find(&record, 2, &kept));
    cn_buf_fini(&list);
}

static void
answers_of_a_closed_sequence_say_so(void **state)
{
    struct cn_buf list = list_of(3);
    struct cn_record record, kept;
    char text[24];

    (void)state;
    record = step_record(3, cn_buf_str(&list), text);
    record.flags |= CN_RECORD_TOMBSTONE;
    assert_true(cn_kept_find(&record, 2, &kept));
    assert_true(kept.flags & CN_RECORD_TOMBSTONE);
    cn_buf_fini(&list);
}

/* A limit never cuts an answer into pieces, and leaves the newest ones. */
static void
a_limit_leaves_the_newest(void **state)
{
    struct cn_buf list = list_of(5);
    const struct cn_str all = cn_buf_str(&list), one = cn_kept_cut(all, 1, UINT64_MAX);
    struct cn_record record, kept;
    char text[24];

    (void)state;
    assert_true(one.len > 0 && one.len < all.len);
    assert_int_equal(cn_kept_cut(all, 9, UINT64_MAX).len, all.len);
    assert_int_equal(cn_kept_cut(all, 0, UINT64_MAX).len, 0);
    assert_int_equal(cn_kept_cut(all, 9, one.len - 1).len, 0);
    assert_int_equal(cn_kept_cut(all, 9, one.len).len, one.len);
    assert_int_equal(cn_kept_cut((struct cn_str){NULL, 0}, 9, 100).len, 0);
    record = step_record(5, cn_kept_cut(all, 2, UINT64_MAX), text);
    assert_true(cn_kept_find(&record, 4, &kept) && cn_kept_find(&record, 3, &kept));
    assert_false(cn_kept_find(&record, 2, &kept));
    cn_buf_fini(&list);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kept_answer_is_found_by_its_number),
        cmocka_unit_test(answers_of_another_generation_are_not_found),
        cmocka_unit_test(answers_of_a_closed_sequence_say_so),
        cmocka_unit_test(a_limit_leaves_the_newest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
