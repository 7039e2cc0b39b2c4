/* scheduler/queue/soak_test.c - runs thousands of random events and checks after each that the
 * promises hold.
 *
 * Clients send, cancel and leave. Workers answer, fail, die, are late and retire. Time passes. The
 * test checks that one row of a sequence runs at a time, in order, over all workers; that credit is
 * kept; that each job gets exactly one final answer; and that the queue is empty at the end.
 */
#include <stdlib.h>

#include "scheduler/test_support.h"

#define SEQUENCES 12
#define CLIENTS 64
#define WORKERS 3
#define EVENTS 6000

struct place {
    struct fake fake;
    bool retiring, retired;
    unsigned closes_answered;
};

struct soak {
    struct rig *rig;
    uint64_t random;
    struct client clients[CLIENTS];
    bool busy[CLIENTS];
    struct place places[WORKERS];
    unsigned numbers[SEQUENCES]; /* the last one given to a client */
    unsigned seen[SEQUENCES];    /* the last one that a worker got */
    struct fake *runs_at[SEQUENCES];
    unsigned sent, done, died;
};

static void
config_soak(struct cn_model_config *config)
{
    config->batch_size = 3;
    config->job_queue_size = 40;
    config->max_num_sequence = 8;
    config->max_sequence_job_queue_size = 4;
    config->sequence_max_idle_ms = 300;
    config->sequence_timeout_ms = 3000;
    config->response_timeout_s = 1;
}

static unsigned
roll(struct soak *soak, unsigned n)
{
    soak->random = soak->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(soak->random >> 33) % n;
}

static void
collect(struct soak *soak)
{
    unsigned i;

    for (i = 0; i < CLIENTS; i++) {
        if (!soak->busy[i] || !soak->clients[i].finals)
            continue;
        assert_int_equal(soak->clients[i].finals, 1);
        memset(&soak->clients[i].job, 0xdd, sizeof(soak->clients[i].job));
        soak->busy[i] = false;
        soak->done++;
    }
}

/* Checks what the worker got since the last call. */
static void
check_rows(struct soak *soak, struct fake *fake)
{
    unsigned i = fake->n_rows;

    if (fake->n_rows == fake->next)
        fake->n_rows = fake->next = i = 0;
    fake_read(fake);
    for (; i < fake->n_rows; i++) {
        const struct seen_row *row = &fake->rows[i];
        unsigned sequence = (unsigned)atoi(row->id + 1), number = (unsigned)atoi(row->body);

        assert_null(soak->runs_at[sequence]);
        if (row->flags & CN_ROW_REDELIVERED)
            assert_true(number >= soak->seen[sequence]);
        else
            assert_true(number > soak->seen[sequence]);
        soak->seen[sequence] = number;
        soak->runs_at[sequence] = fake;
    }
    assert_true(fake->n_rows - fake->next <= 6);
    assert_int_equal(fake->n_rows - fake->next, cn_worker_link_in_flight(fake->link));
}

static void
look(struct soak *soak)
{
    unsigned i;

    settle(soak->rig);
    collect(soak);
    for (i = 0; i < WORKERS; i++)
        if (soak->places[i].fake.link)
            check_rows(soak, &soak->places[i].fake);
}

static void
event_send(struct soak *soak)
{
    unsigned i = roll(soak, CLIENTS), sequence = roll(soak, SEQUENCES);
    char id[8], body[16];

    if (soak->busy[i])
        return;
    snprintf(id, sizeof(id), "s%u", sequence);
    snprintf(body, sizeof(body), "%u", ++soak->numbers[sequence]);
    soak->busy[i] = true;
    soak->sent++;
    client_send(soak->rig, &soak->clients[i], id, body,
                roll(soak, 8) == 0    ? CN_ROW_START
                : roll(soak, 12) == 0 ? CN_ROW_END
                                      : 0);
    if (roll(soak, 4) == 0)
        soak->clients[i].job.deadline_ms = cn_now_ms() + roll(soak, 500);
}

static void
event_cancel(struct soak *soak)
{
    unsigned i = roll(soak, CLIENTS);

    if (soak->busy[i])
        cn_model_queue_cancel(soak->rig->queue, &soak->clients[i].job);
}

static void
answer_row(struct soak *soak, struct fake *fake)
{
    /* Mostly the oldest row, but rows may be answered in any order. */
    unsigned at = fake->next + (roll(soak, 3) == 0 ? roll(soak, fake->n_rows - fake->next) : 0);
    struct seen_row row = fake->rows[at];
    struct cn_answer answer = answer_to(&row);

    if (roll(soak, 5) == 0) {
        answer.flags = 0;
        fake_send(fake, &answer);
        if (roll(soak, 2))
            return;
        answer.flags = CN_ANSWER_FINAL;
    }
    switch (roll(soak, 12)) {
    case 0:
        answer.error_code = CN_E_HANDLER_FAILED;
        answer.generation = 0;
        break;
    case 1:
        answer.flags |= CN_ANSWER_ENDED;
        break;
    case 2:
        answer.flags |= CN_ANSWER_CLOSED_BEFORE;
        answer.error_code = CN_E_SEQUENCE_EXPIRED;
        break;
    case 3:
        answer.generation = 1 + roll(soak, 5);
        answer.flags |= CN_ANSWER_OPENED;
        break;
    default:
        break;
    }
    fake_send(fake, &answer);
    fake->rows[at] = fake->rows[fake->next];
    fake->next++;
    soak->runs_at[atoi(row.id + 1)] = NULL;
}

static void
event_answer(struct soak *soak)
{
    struct place *place = &soak->places[roll(soak, WORKERS)];

    if (!place->fake.link || place->fake.overdue)
        return;
    if (place->fake.next < place->fake.n_rows)
        answer_row(soak, &place->fake);
    if (place->fake.n_closes > place->closes_answered && roll(soak, 2)) {
        fake_closed(&place->fake, 1);
        place->closes_answered++;
    }
}

static void
note_retired(void *ctx)
{
    ((struct place *)ctx)->retired = true;
}

static void
take_away(struct soak *soak, struct place *place, bool overdue)
{
    unsigned i;

    assert_int_equal(place->fake.lost, 0);
    if (place->retired)
        assert_int_equal(cn_worker_link_in_flight(place->fake.link), 0);
    for (i = 0; i < SEQUENCES; i++)
        if (soak->runs_at[i] == &place->fake)
            soak->runs_at[i] = NULL;
    fake_die(&place->fake, overdue, "random death");
    cn_buf_fini(&place->fake.in);
    soak->died++;
}

static void
event_worker(struct soak *soak)
{
    struct place *place = &soak->places[roll(soak, WORKERS)];
    int fds[2];

    if (!place->fake.link) {
        memset(place, 0, sizeof(*place));
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        place->fake.fd = fds[1];
        place->fake.queue = soak->rig->queue;
        assert_int_equal(cn_worker_link_create(soak->rig->loop, fds[0], 1, 1 << 20, &fake_ops,
                                               &place->fake, &place->fake.link, NULL),
                         0);
        cn_model_queue_attach(soak->rig->queue, place->fake.link);
    } else if (place->retired || place->fake.overdue || roll(soak, 8) == 0) {
        take_away(soak, place, place->fake.overdue);
    } else if (!place->retiring && roll(soak, 8) == 0) {
        place->retiring = true;
        cn_model_queue_retire(soak->rig->queue, place->fake.link, note_retired, place);
    }
}

static void
event(struct soak *soak)
{
    unsigned kind = roll(soak, 100);

    if (kind < 40)
        event_send(soak);
    else if (kind < 48)
        event_cancel(soak);
    else if (kind < 85)
        event_answer(soak);
    else if (kind < 92)
        event_worker(soak);
    else if (kind < 93)
        cn_model_queue_set_expected(soak->rig->queue, roll(soak, 2), "nobody comes");
    else
        cn_clock_advance(roll(soak, 120));
    if (roll(soak, 3) == 0)
        look(soak);
}

static void
run(uint64_t seed)
{
    struct soak *soak = cn_alloc(sizeof(*soak));
    struct cn_model_queue_stats stats;
    unsigned i;

    soak->rig = rig_create(config_soak);
    soak->random = seed;
    for (i = 0; i < EVENTS; i++)
        event(soak);
    look(soak);
    stats = rig_stats(soak->rig);
    assert_true(stats.waiting_jobs <= 40 + 6 * WORKERS);
    assert_true(stats.redispatched > 0);
    for (i = 0; i < WORKERS; i++)
        if (soak->places[i].fake.link)
            take_away(soak, &soak->places[i], false);
    cn_model_queue_close(soak->rig->queue, CN_E_DRAINING, "over", true, rig_empty, soak->rig);
    settle(soak->rig);
    collect(soak);
    assert_int_equal(soak->rig->empty, 1);
    assert_int_equal(soak->sent, soak->done);
    stats = rig_stats(soak->rig);
    assert_int_equal(stats.waiting_jobs + stats.in_flight_jobs, 0);
    assert_in_range(stats.jobs, 1, soak->sent); /* without those that were cancelled at once */
    rig_destroy(soak->rig);
    cn_free(soak);
}

/* Whatever happens, in whatever order, the promises of model_queue.h hold. */
static void
promises_hold_whatever_happens(void **state)
{
    const char *seed = getenv("SOAK_SEED");
    uint64_t i;

    (void)state;
    if (seed) {
        run(strtoull(seed, NULL, 10));
        return;
    }
    for (i = 1; i <= 20; i++)
        run(i);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_hold_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
