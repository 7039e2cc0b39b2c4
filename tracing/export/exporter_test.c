/* tracing/export/exporter_test.c - the end of the server does not wait for a collector's name. */
#include "tracing/export/exporter.h"

#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "tracing/trace.h"

#define SILENT_MS 20000 /* how long a resolver may wait for name servers that do not answer */

static atomic_bool over; /* the name server is not needed any more */
static atomic_uint n_asked, n_answered;

/* Takes the place of the C library's function: the name server does not answer. */
int
getaddrinfo(const char *restrict node, const char *restrict service,
            const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
    const uint64_t until_ms = cn_now_ms() + SILENT_MS;

    (void)node, (void)service, (void)hints, (void)out;
    atomic_fetch_add(&n_asked, 1);
    while (!atomic_load(&over) && cn_now_ms() < until_ms)
        usleep(1000);
    atomic_fetch_add(&n_answered, 1);
    return EAI_AGAIN;
}

static void
send_trace(void)
{
    const struct cn_answer answer = {.status = 200};
    struct cn_row row = {.job_id = 1};
    struct cn_trace *trace = cn_trace_begin(&row, &row, "m", "1.0", 1);

    assert_non_null(trace);
    cn_trace_answered(trace, &row, &answer, CN_STR(""), 2);
    cn_trace_send(trace, 0);
}

static void
the_end_waits_two_seconds_while_a_name_is_looked_up(void **state)
{
    const struct cn_exporter_options options = {.endpoint = "http://collector.example:4318",
                                                .service = "s",
                                                .instance = "i",
                                                .timeout_ms = 60000,
                                                .interval_ms = 10,
                                                .rate = CN_TRACE_RATE_ALL,
                                                .queue = 8,
                                                .n_loops = 1};
    struct cn_exporter *exporter;
    struct cn_error err;
    uint64_t begun_ms;
    unsigned before;

    (void)state;
    atomic_store(&over, true); /* for what libcurl's libraries look up when they are set up */
    assert_int_equal(cn_exporter_start(&options, &exporter, &err), 0);
    atomic_store(&over, false);
    before = atomic_load(&n_asked);
    send_trace();
    while (atomic_load(&n_asked) == before)
        usleep(1000);
    begun_ms = cn_now_ms();
    cn_exporter_stop(exporter);
    assert_true(cn_now_ms() - begun_ms < SILENT_MS / 2);
    assert_true(cn_trace_counts().dropped > 0);
    atomic_store(&over, true);
    while (atomic_load(&n_answered) < atomic_load(&n_asked)) /* libcurl's thread is to end, too */
        usleep(1000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_waits_two_seconds_while_a_name_is_looked_up),
    };

    return cmocka_run_group_tests_name("tracing.exporter", tests, NULL, NULL);
}
