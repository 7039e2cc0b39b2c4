/* tracing/trace_test.c - what a trace keeps of its step. */
#include "tracing/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
nobody(void *ctx)
{
    (void)ctx;
}

/* Traces wait in rings, so they are small whatever a client sends. An id of the v2 protocol may be
 * as long as its request. */
static void
a_long_request_id_is_cut_at_a_character(void **state)
{
    static char id[70000];
    struct cn_answer answer = {.status = 200};
    struct cn_row row = {.request_id = {id, sizeof(id)}};
    struct cn_trace *trace;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof(id); i += 3)
        memcpy(id + i, "\xe2\x82\xac", 3); /* a character of three bytes */
    cn_tracing_start(
        &(struct cn_tracing){.rate = CN_TRACE_RATE_ALL, .queue = 2, .n_loops = 1, .wake = nobody});
    trace = cn_trace_begin(&row, &row, "m", "1.0", 1);
    assert_non_null(trace);
    assert_int_equal(strlen(trace->request_id), 255);
    assert_memory_equal(trace->request_id, id, 255);
    assert_string_equal(trace->model, "m");
    assert_string_equal(trace->state, "");
    cn_trace_answered(trace, &row, &answer, CN_STR(""), 2);
    assert_int_equal(row.request_id.len, sizeof(id)); /* the handler gets all of it */
    cn_trace_send(trace, 0);
    cn_tracing_stop();
}

static void
trace_step(const char *id, unsigned loop)
{
    struct cn_answer answer = {.status = 200};
    struct cn_row row = {.request_id = cn_str_from(id)};
    struct cn_trace *trace = cn_trace_begin(&row, &row, "m", "1.0", 1);

    assert_non_null(trace);
    cn_trace_answered(trace, &row, &answer, CN_STR(""), 2);
    cn_trace_send(trace, loop);
}

/* One loop has more traces than the collector takes. */
static void
no_loop_keeps_the_others_from_the_collector(void **state)
{
    struct cn_trace *trace;
    bool found = false;

    (void)state;
    cn_tracing_start(
        &(struct cn_tracing){.rate = CN_TRACE_RATE_ALL, .queue = 8, .n_loops = 2, .wake = nobody});
    trace_step("other", 1);
    for (int i = 0; i < 4; i++)
        trace_step("busy", 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cn_traces_take(&trace, 1), 1);
        found = found || strcmp(trace->request_id, "other") == 0;
        cn_trace_free(trace);
    }
    assert_true(found);
    cn_tracing_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_loop_keeps_the_others_from_the_collector),
        cmocka_unit_test(a_long_request_id_is_cut_at_a_character),
    };

    return cmocka_run_group_tests_name("tracing.trace", tests, NULL, NULL);
}
