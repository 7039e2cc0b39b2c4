/* metrics/counters/infer_stats_test.c - tests the sums of inference statistics. */
#include "metrics/counters/infer_stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t phases[CN_INFER_N_PHASES] = {1, 20, 300};

/* A batch counts once, however many rows it had. Sizes that never ran are not listed. */
static void
executions_are_kept_by_size(void **state)
{
    struct cn_infer_stats *stats = cn_infer_stats_create();
    struct cn_infer_counts counts;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    cn_infer_executed(stats, 2, 1000, phases);
    cn_infer_executed(stats, 5, 2000, phases);
    cn_infer_executed(stats, 2, 3000, phases);
    cn_infer_executed(stats, 0, 9000, phases);
    cn_infer_executed(stats, UINT32_MAX, 4000, phases);
    cn_infer_read(stats, &arena, &counts);
    assert_int_equal(counts.executions, 4);
    assert_int_equal(counts.last_wall_ms, 4000);
    assert_int_equal(counts.n_batches, 3);
    assert_int_equal(counts.batches[0].size, 2);
    assert_int_equal(counts.batches[0].executions, 2);
    assert_int_equal(counts.batches[0].phase_us[CN_INFER_OUTPUT], 600);
    assert_int_equal(counts.batches[1].size, 5);
    assert_int_equal(counts.batches[2].size, CN_INFER_BATCHES_MAX);
    assert_int_equal(counts.inferences, 0);
    cn_arena_fini(&arena);
    cn_infer_stats_destroy(stats);
}

/* compute_* counts successful requests that were not replayed. A failure counts nowhere else. */
static void
requests_count_as_clients_expect(void **state)
{
    struct cn_infer_stats *stats = cn_infer_stats_create();
    struct cn_infer_done done = {
        .batch = 4, .total_us = 1000, .queue_us = 679, .phase_us = {1, 20, 300}};
    struct cn_infer_counts counts;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    cn_infer_succeeded(stats, &done);
    done.batch = 0;
    cn_infer_succeeded(stats, &done);
    done.replayed = true;
    cn_infer_succeeded(stats, &done);
    cn_infer_failed(stats, CN_INFER_BACKEND, 50);
    cn_infer_read(stats, &arena, &counts);
    assert_int_equal(counts.inferences, 5);
    assert_int_equal(counts.success.count, 3);
    assert_int_equal(counts.success.us, 3000);
    assert_int_equal(counts.queue.count, 3);
    assert_int_equal(counts.hits.count, 1);
    assert_int_equal(counts.phases[CN_INFER_HANDLER].count, 2);
    assert_int_equal(counts.phases[CN_INFER_HANDLER].us, 40);
    assert_int_equal(counts.fail.count, 1);
    assert_int_equal(counts.fail.us, 50);
    assert_int_equal(counts.failures[CN_INFER_BACKEND], 1);
    assert_int_equal(counts.failures[CN_INFER_REJECTED], 0);
    cn_arena_fini(&arena);
    cn_infer_stats_destroy(stats);
}

/* A stream of two pieces and an end without data. Positions beyond the bound are counted together.
 */
static void
responses_are_kept_by_position(void **state)
{
    struct cn_infer_stats *stats = cn_infer_stats_create();
    struct cn_infer_counts counts;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    cn_infer_response(stats, 0, CN_RESPONSE_DATA, phases);
    cn_infer_response(stats, 1, CN_RESPONSE_DATA, phases);
    cn_infer_response(stats, 2, CN_RESPONSE_EMPTY, phases);
    cn_infer_read(stats, &arena, &counts);
    assert_int_equal(counts.n_positions, 3);
    assert_int_equal(counts.positions[0].success.count, 1);
    assert_int_equal(counts.positions[0].success.us, 320);
    assert_int_equal(counts.positions[1].output.us, 300);
    assert_int_equal(counts.positions[2].success.count, 0);
    assert_int_equal(counts.positions[2].empty.count, 1);
    cn_infer_response(stats, CN_INFER_RESPONSES_MAX + 5, CN_RESPONSE_CANCELED, phases);
    cn_infer_read(stats, &arena, &counts);
    assert_int_equal(counts.n_positions, CN_INFER_RESPONSES_MAX);
    assert_int_equal(counts.positions[CN_INFER_RESPONSES_MAX - 1].cancel.count, 1);
    cn_arena_fini(&arena);
    cn_infer_stats_destroy(stats);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(executions_are_kept_by_size),
        cmocka_unit_test(requests_count_as_clients_expect),
        cmocka_unit_test(responses_are_kept_by_position),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
