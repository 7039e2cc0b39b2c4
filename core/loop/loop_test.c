/* core/loop/loop_test.c - a loop's turn, its mailbox, and what happens around an unwatch. */
#include "core/loop/loop.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "core/tuning/tuning.h"
#include "metrics/counters/metrics.h"

static struct cn_loop *loop;
static char trace[64]; /* one letter for each thing that ran */
static size_t traced;

static void
note(char what)
{
    if (traced < sizeof(trace) - 1)
        trace[traced++] = what;
    trace[traced] = '\0';
}

static int
set_up(void **state)
{
    (void)state;
    traced = 0;
    trace[0] = '\0';
    return cn_loop_create(3, &loop, NULL);
}

static int
tear_down(void **state)
{
    (void)state;
    cn_loop_destroy(loop);
    return 0;
}

struct pipe_watch {
    struct cn_watch watch;
    struct cn_watch *unwatches; /* the callback unwatches this one */
    struct pipe_watch *becomes; /* and makes this a watch of the same descriptor */
    int fds[2];
};

static void
open_pipe(struct pipe_watch *p)
{
    assert_int_equal(pipe(p->fds), 0);
    assert_int_equal(write(p->fds[1], "x", 1), 1);
}

static void
close_pipe(struct pipe_watch *p)
{
    close(p->fds[0]);
    close(p->fds[1]);
}

static void
on_pipe(struct cn_watch *watch, uint32_t events)
{
    struct pipe_watch *p = cn_container_of(watch, struct pipe_watch, watch);

    assert_true(events & EPOLLIN);
    note('f');
    if (p->unwatches) {
        int fd = p->unwatches->fd;

        cn_loop_unwatch(loop, p->unwatches);
        if (p->becomes)
            assert_int_equal(cn_loop_watch(loop, &p->becomes->watch, fd, EPOLLIN, NULL), 0);
    }
}

struct posted {
    struct cn_msg msg;
    unsigned number;
    struct cn_loop *to; /* posted again, by the loop itself */
};

static void
on_message(struct cn_msg *msg)
{
    struct posted *posted = cn_container_of(msg, struct posted, msg);
    struct cn_loop *to = posted->to;

    note('m');
    posted->to = NULL;
    if (to)
        cn_loop_post(to, msg);
}

static void
on_message_in_time(struct cn_msg *msg)
{
    (void)msg;
    note('m');
    assert_int_equal(cn_loop_now_ms(loop), cn_now_ms());
}

static void
on_timer(struct cn_timer *timer)
{
    (void)timer;
    note('t');
}

static struct cn_deferred *defer_again;

static void
on_deferred(struct cn_deferred *deferred)
{
    (void)deferred;
    note('d');
    if (defer_again)
        cn_loop_defer(loop, defer_again);
}

/* Tests the order of a turn: deferred work handles, in the same turn, what the first parts have
 * collected. */
static void
a_turn_goes_in_its_order(void **state)
{
    struct posted posted = {.msg.fn = on_message};
    struct pipe_watch p = {.watch.fn = on_pipe};
    struct cn_deferred deferred = {.fn = on_deferred};
    struct cn_timer timer;

    (void)state;
    cn_loop_defer(loop, &deferred);
    cn_loop_defer(loop, &deferred); /* harmless */
    cn_timer_init(&timer, on_timer);
    cn_timer_set(cn_loop_wheel(loop), &timer, cn_loop_now_ms(loop));
    cn_loop_post(loop, &posted.msg);
    open_pipe(&p);
    assert_int_equal(cn_loop_watch(loop, &p.watch, p.fds[0], EPOLLIN, NULL), 0);
    cn_loop_turn(loop, 1000);
    assert_string_equal(trace, "ftmd");
    cn_loop_unwatch(loop, &p.watch);
    close_pipe(&p);
}

/* The memory of a closed connection is gone, so events that were fetched before must not find it.
 */
static void
unwatch_drops_events_already_fetched(void **state)
{
    struct pipe_watch a = {.watch.fn = on_pipe}, b = {.watch.fn = on_pipe};

    (void)state;
    open_pipe(&a);
    open_pipe(&b);
    a.unwatches = &b.watch;
    b.unwatches = &a.watch; /* the one that is called first unwatches the other */
    assert_int_equal(cn_loop_watch(loop, &a.watch, a.fds[0], EPOLLIN, NULL), 0);
    assert_int_equal(cn_loop_watch(loop, &b.watch, b.fds[0], EPOLLIN, NULL), 0);
    cn_loop_turn(loop, 1000);
    assert_string_equal(trace, "f");
    cn_loop_unwatch(loop, &a.watch);
    cn_loop_unwatch(loop, &b.watch); /* twice is harmless */
    cn_loop_turn(loop, 0);
    assert_string_equal(trace, "f");
    close_pipe(&a);
    close_pipe(&b);
}

/* accept() may return the number of the descriptor that was just closed. Events of the old one must
 * not reach the new one. */
static void
a_reused_descriptor_gets_no_old_events(void **state)
{
    struct pipe_watch a = {.watch.fn = on_pipe}, b = {.watch.fn = on_pipe};
    struct pipe_watch next = {.watch.fn = on_pipe};

    (void)state;
    open_pipe(&a);
    open_pipe(&b);
    a.unwatches = &b.watch;
    b.unwatches = &a.watch;
    a.becomes = b.becomes = &next;
    assert_int_equal(cn_loop_watch(loop, &a.watch, a.fds[0], EPOLLIN, NULL), 0);
    assert_int_equal(cn_loop_watch(loop, &b.watch, b.fds[0], EPOLLIN, NULL), 0);
    cn_loop_turn(loop, 1000);
    assert_string_equal(trace, "f"); /* `next` is called in the next turn, not for the old event */
    cn_loop_unwatch(loop, &a.watch);
    cn_loop_unwatch(loop, &b.watch);
    cn_loop_turn(loop, 1000);
    assert_string_equal(trace, "ff");
    cn_loop_unwatch(loop, &next.watch);
    close_pipe(&a);
    close_pipe(&b);
}

static void
rewatch_changes_what_is_waited_for(void **state)
{
    struct pipe_watch p = {.watch.fn = on_pipe};

    (void)state;
    open_pipe(&p);
    assert_int_equal(cn_loop_watch(loop, &p.watch, p.fds[0], 0, NULL), 0);
    cn_loop_turn(loop, 0);
    assert_string_equal(trace, "");
    assert_int_equal(cn_loop_rewatch(loop, &p.watch, EPOLLIN, NULL), 0);
    cn_loop_turn(loop, 0);
    assert_string_equal(trace, "f");
    cn_loop_unwatch(loop, &p.watch);
    close_pipe(&p);
}

/* An error that can be answered, with the number in it. */
static void
watching_what_is_not_open_fails(void **state)
{
    struct cn_watch watch = {.fn = on_pipe};
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(cn_loop_watch(loop, &watch, 9999, EPOLLIN, &err), CN_E_IO);
    assert_string_equal(err.message, "cannot watch descriptor 9999: Bad file descriptor");
    cn_loop_unwatch(loop, &watch);
}

/* A message that a loop posts to itself runs in the next turn. Otherwise it could keep the loop
 * from everything else. */
static void
a_message_posted_by_a_message_waits_for_the_next_turn(void **state)
{
    struct posted posted = {.msg.fn = on_message, .to = loop};

    (void)state;
    cn_loop_post(loop, &posted.msg);
    cn_loop_turn(loop, 1000);
    assert_string_equal(trace, "m");
    cn_loop_turn(loop, 10000); /* does not wait */
    assert_string_equal(trace, "mm");
}

static void
deferred_by_deferred_work_runs_in_the_next_turn(void **state)
{
    struct cn_deferred deferred = {.fn = on_deferred};

    (void)state;
    defer_again = &deferred;
    cn_loop_defer(loop, &deferred);
    cn_loop_turn(loop, 0);
    assert_string_equal(trace, "d");
    defer_again = NULL;
    cn_loop_turn(loop, 10000); /* does not wait */
    assert_string_equal(trace, "dd");
}

enum { POSTERS = 4, EACH = 20000 };

static struct posted *messages; /* POSTERS * EACH */
static unsigned last_seen[POSTERS], received;

static void
on_counted(struct cn_msg *msg)
{
    struct posted *posted = cn_container_of(msg, struct posted, msg);
    unsigned poster = (unsigned)(posted - messages) / EACH;

    assert_true(cn_loop_is_here(loop));
    assert_ptr_equal(cn_loop_current(), loop);
    assert_int_equal(posted->number, last_seen[poster] + 1);
    last_seen[poster] = posted->number;
    if (++received == POSTERS * EACH)
        cn_loop_stop(loop);
}

static void *
post_all(void *arg)
{
    struct posted *mine = arg;
    unsigned i;

    assert_null(cn_loop_current());
    for (i = 0; i < EACH; i++) {
        mine[i].msg.fn = on_counted;
        mine[i].number = i + 1;
        cn_loop_post(loop, &mine[i].msg);
    }
    return NULL;
}

/* No message is lost or doubled, each sender's order is kept, and no wake-up is missed. */
static void
post_from_threads(void)
{
    pthread_t threads[POSTERS];
    unsigned i;

    received = 0;
    memset(last_seen, 0, sizeof(last_seen));
    messages = calloc(POSTERS * EACH, sizeof(*messages));
    for (i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, messages + i * EACH), 0);
    cn_loop_run(loop);
    for (i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(received, POSTERS * EACH);
    assert_null(cn_loop_current());
    assert_true(cn_metrics_get(cn_loop_metrics(loop), CN_M_LOOP_TURNS) > 0);
    assert_int_equal(cn_loop_index(loop), 3);
    free(messages);
}

static void
messages_of_many_threads_arrive_in_order(void **state)
{
    (void)state;
    post_from_threads();
}

/* Nobody writes an event to a loop that is awake, so it must look for messages before it falls
 * asleep. */
static void
messages_end_a_busy_wait(void **state)
{
    (void)state;
    cn_loop_set_busy_wait(loop, 50);
    post_from_threads();
}

/* A stop that comes before the loop runs is not forgotten. */
static void
stop_ends_a_loop_that_has_not_begun(void **state)
{
    (void)state;
    cn_loop_stop(loop);
    cn_loop_run(loop);
}

/* Set-up and clean-up may touch a loop that nobody runs. */
static void
assertions_hold_outside_of_run(void **state)
{
    (void)state;
    cn_assert_on_loop(loop);
    assert_false(cn_loop_is_here(loop));
    cn_loop_turn(loop, 0);
    assert_true(cn_loop_is_here(loop));
}

/* When a test moves the clock, a loop that sleeps for hours must notice. This test is the last one,
 * because the clock stays frozen. */
static void
a_moved_clock_is_seen_while_waiting(void **state)
{
    struct cn_timer timer;
    unsigned turns = 0;

    cn_clock_freeze(); /* it may be behind the machine's clock, so a new loop is made */
    tear_down(state);
    set_up(state);
    cn_loop_turn(loop, 0);
    cn_timer_init(&timer, on_timer);
    cn_timer_set(cn_loop_wheel(loop), &timer, cn_now_ms() + 7200000);
    cn_loop_turn(loop, -1);
    assert_string_equal(trace, "");
    cn_clock_advance(7200000);
    while (trace[0] == '\0' && turns++ < 3)
        cn_loop_turn(loop, -1);
    assert_string_equal(trace, "t");
    assert_true(cn_loop_now_ms(loop) == cn_now_ms());
}

/* The loop's time is the frozen clock's. */
static void
let_time_pass(struct cn_watch *watch, uint32_t events)
{
    static struct posted late;

    on_pipe(watch, events);
    cn_clock_advance(3600 * 1000);
    late = (struct posted){.msg.fn = on_message_in_time};
    cn_loop_post(loop, &late.msg);
}

/* A message is never handled at a time before it was posted, and timers that were due by then have
 * fired. */
static void
mail_is_not_from_the_future(void **state)
{
    struct pipe_watch p = {.watch.fn = let_time_pass};
    struct cn_timer timer;

    cn_clock_freeze();
    tear_down(state);
    set_up(state);
    open_pipe(&p);
    cn_timer_init(&timer, on_timer);
    cn_timer_set(cn_loop_wheel(loop), &timer, cn_now_ms() + 60 * 1000);
    assert_int_equal(cn_loop_watch(loop, &p.watch, p.fds[0], EPOLLIN, NULL), 0);
    cn_loop_turn(loop, 0);
    assert_string_equal(trace, "ftm");
    cn_loop_unwatch(loop, &p.watch);
    close_pipe(&p);
}

/* The first of two pipes: it stands for a worker whose answer lets a client send its next step. */
static struct pipe_watch *client;

static void
on_answer(struct cn_watch *watch, uint32_t events)
{
    on_pipe(watch, events);
    cn_loop_answered(loop);
    assert_int_equal(write(client->fds[1], "y", 1), 1);
}

static void
on_step(struct cn_watch *watch, uint32_t events)
{
    static struct cn_deferred dispatch = {.fn = on_deferred};

    on_pipe(watch, events);
    cn_loop_defer(loop, &dispatch);
}

/* Steps that came while others were answered go to the worker together with those that the turn
 * already has, unless the loop polls. That does not depend on whether answers are counted. */
static void
steps_after_answers_are_sent_with_the_others(void **state)
{
    struct pipe_watch answer = {.watch.fn = on_answer}, step = {.watch.fn = on_step},
                      next = {.watch.fn = on_step};

    const uint64_t tunings = cn_tuning_bits;

    for (unsigned i = 0; i < 4; i++) {
        const uint32_t busy_wait_us = i % 2 ? 100 : 0;
        const bool counts = i < 2;

        tear_down(state);
        set_up(state);
        cn_tuning_set(counts ? tunings : tunings & ~(UINT64_C(1) << CN_TUNING_STAGE_TIMES));
        cn_loop_set_busy_wait(loop, busy_wait_us);
        open_pipe(&answer);
        open_pipe(&step);
        assert_int_equal(pipe(next.fds), 0);
        client = &next;
        assert_int_equal(cn_loop_watch(loop, &answer.watch, answer.fds[0], EPOLLIN | EPOLLET, NULL),
                         0);
        assert_int_equal(cn_loop_watch(loop, &step.watch, step.fds[0], EPOLLIN | EPOLLET, NULL), 0);
        assert_int_equal(cn_loop_watch(loop, &next.watch, next.fds[0], EPOLLIN | EPOLLET, NULL), 0);
        cn_loop_turn(loop, 0);
        cn_loop_turn(loop, 0);
        assert_string_equal(trace, busy_wait_us ? "ffdfd" : "fffd");
        assert_int_equal(cn_metrics_get(cn_loop_metrics(loop), CN_M_REPLY_TIME), counts);
        close_pipe(&answer);
        close_pipe(&step);
        close_pipe(&next);
    }
    cn_tuning_set(tunings);
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(a_turn_goes_in_its_order),
        LOOP_TEST(unwatch_drops_events_already_fetched),
        LOOP_TEST(a_reused_descriptor_gets_no_old_events),
        LOOP_TEST(rewatch_changes_what_is_waited_for),
        LOOP_TEST(watching_what_is_not_open_fails),
        LOOP_TEST(a_message_posted_by_a_message_waits_for_the_next_turn),
        LOOP_TEST(deferred_by_deferred_work_runs_in_the_next_turn),
        LOOP_TEST(messages_of_many_threads_arrive_in_order),
        LOOP_TEST(messages_end_a_busy_wait),
        LOOP_TEST(stop_ends_a_loop_that_has_not_begun),
        LOOP_TEST(assertions_hold_outside_of_run),
        LOOP_TEST(a_moved_clock_is_seen_while_waiting),
        LOOP_TEST(mail_is_not_from_the_future),
        LOOP_TEST(steps_after_answers_are_sent_with_the_others),
    };

    return cmocka_run_group_tests_name("core.loop", tests, NULL, NULL);
}
