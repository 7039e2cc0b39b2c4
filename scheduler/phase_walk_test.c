/* scheduler/phase_walk_test.c - walks through the scheduler's tables of phases: of jobs, of their
 * messages, of worker links and of the credit of workers.
 *
 * Random events happen to two versions of a model, from fixed seeds. Clients send, cancel and
 * consume bytes, on the queue's loop and on another one. Workers answer, stream, die, hang, retire,
 * stop reading and break off. Time passes. The linker replaces the functions that move an object by
 * functions of this test (--wrap, CMakeLists.txt), which note each move before it is made. A move
 * that a table forbids aborts the process. If a pair of a table was never seen in all walks, the
 * test fails: that move never happens in the code, or the walks no longer reach it.
 */
#include "config/model/batching.h"
#include "config/model/model_io.h"
#include "scheduler/queue/job_phases.h"
#include "scheduler/test_support.h"

#define WALKS 60
#define EVENTS 2000
#define CLIENTS 32
#define PLACES 3 /* workers of each version */
#define LARGE_BYTES (3u << 20)

/* --- what is noted */

static uint32_t job_pairs[CN_JOB_N_PHASES], message_pairs[CN_JOB_MESSAGE_N_PHASES];
static uint32_t link_pairs[CN_LINK_N_PHASES], credit_pairs[CN_CREDIT_N_PHASES];

void __real_cn_job_to(struct cn_job *job, enum cn_job_phase phase);
void __real_cn_job_message_to(uint8_t *message, enum cn_job_message_phase phase);
void __real_cn_worker_link_to(struct cn_worker_link *link, enum cn_worker_link_phase phase);
void __real_cn_worker_link_credit_to(struct cn_worker_link *link,
                                     enum cn_worker_credit_phase phase);
void __wrap_cn_job_to(struct cn_job *job, enum cn_job_phase phase);
void __wrap_cn_job_message_to(uint8_t *message, enum cn_job_message_phase phase);
void __wrap_cn_worker_link_to(struct cn_worker_link *link, enum cn_worker_link_phase phase);
void __wrap_cn_worker_link_credit_to(struct cn_worker_link *link,
                                     enum cn_worker_credit_phase phase);

void
__wrap_cn_job_to(struct cn_job *job, enum cn_job_phase phase)
{
    job_pairs[job->phase] |= 1u << phase;
    __real_cn_job_to(job, phase);
}

void
__wrap_cn_job_message_to(uint8_t *message, enum cn_job_message_phase phase)
{
    message_pairs[*message] |= 1u << phase;
    __real_cn_job_message_to(message, phase);
}

void
__wrap_cn_worker_link_to(struct cn_worker_link *link, enum cn_worker_link_phase phase)
{
    link_pairs[link->phase] |= 1u << phase;
    __real_cn_worker_link_to(link, phase);
}

void
__wrap_cn_worker_link_credit_to(struct cn_worker_link *link, enum cn_worker_credit_phase phase)
{
    credit_pairs[link->credit_phase] |= 1u << phase;
    __real_cn_worker_link_credit_to(link, phase);
}

/* Names each pair of the table that was not seen, and each pair that was seen and is not in the
 * table. */
static unsigned
compare(const char *what, const struct cn_phase *table, const uint32_t *pairs, unsigned n)
{
    unsigned wrong = 0;

    for (unsigned from = 0; from < n; from++) {
        const uint32_t differ = table[from].followers ^ pairs[from];

        for (unsigned to = 0; to < n; to++) {
            if (!(differ & 1u << to))
                continue;
            wrong++;
            print_error("%s: %s -> %s is %s\n", what, table[from].name, table[to].name,
                        cn_phase_may_follow(table, from, to) ? "in the table, but was never seen"
                                                             : "not in the table");
        }
    }
    return wrong;
}

/* --- the world of one walk */

struct place {
    struct fake fake;
    bool retiring, retired, streams[SEEN_MAX];
    unsigned closes_answered;
};

struct world {
    struct rig *rig;       /* without its queue */
    struct cn_loop *other; /* some clients are on this loop */
    struct cn_model_queue *queues[2];
    unsigned n_queues;
    uint64_t random;
    struct client clients[CLIENTS];
    struct cn_model_queue *at[CLIENTS]; /* NULL: the client has no job */
    struct place places[2][PLACES];
    unsigned sent, done, deaths;
    char *large;
};

static struct world *the_world; /* for version_at(), which gets no context */

static unsigned
roll(struct world *world, unsigned n)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(world->random >> 33) % n;
}

static int
version_at(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
           struct cn_error *err)
{
    (void)ctx;
    (void)name;
    (void)err;
    *out = i < the_world->n_queues ? the_world->queues[i] : NULL;
    return 0;
}

static void
config_walk(struct cn_model_config *config)
{
    config->batch_size = 2;
    config->job_queue_size = 30;
    config->max_num_sequence = 6;
    config->max_sequence_job_queue_size = 4;
    config->sequence_max_idle_ms = 300;
    config->sequence_timeout_ms = 3000;
    config->response_timeout_s = 1;
    config->stream_bytes = 64;
}

static void
settle_all(struct world *world)
{
    for (unsigned i = 0; i < 3; i++) {
        settle(world->rig);
        cn_loop_turn(world->other, 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (!world->at[i] || !world->clients[i].finals)
            continue;
        memset(&world->clients[i].job, 0xdd, sizeof(world->clients[i].job));
        world->at[i] = NULL;
        world->done++;
    }
}

/* --- clients */

static void
event_send(struct world *world)
{
    unsigned i = roll(world, CLIENTS), way = roll(world, 12);
    struct client *client = &world->clients[i];
    struct cn_model_queue *queue = world->queues[roll(world, world->n_queues)];
    char id[8];

    if (world->at[i])
        return;
    snprintf(id, sizeof(id), "s%u", roll(world, 6));
    client_prepare(client, roll(world, 2) ? world->rig->loop : world->other, id, "x",
                   way == 0   ? CN_ROW_START
                   : way == 1 ? CN_ROW_END
                   : way < 6  ? CN_ROW_MUST_EXIST
                              : 0);
    if (roll(world, 40) == 0)
        client->part.data = (struct cn_str){world->large, LARGE_BYTES};
    if (roll(world, 6) == 0)
        client->job.deadline_ms = cn_now_ms() + roll(world, 300);
    if (world->n_queues > 1 && roll(world, 3)) {
        queue = world->queues[1];
        client->job.any_version = true;
    }
    world->at[i] = queue;
    world->sent++;
    cn_model_queue_submit(queue, &client->job);
}

static void
event_client(struct world *world)
{
    unsigned i = roll(world, CLIENTS);

    if (!world->at[i])
        return;
    if (roll(world, 3) == 0)
        cn_model_queue_cancel(world->at[i], &world->clients[i].job);
    else
        cn_model_queue_consumed(&world->clients[i].job, 1 + roll(world, 64));
}

/* --- workers */

/* Answers a question about the place of a sequence, or an order to move it. The fake workers
 * remember nothing, so answers may contradict each other, as they may after a crash. */
static void
answer_move(struct world *world, const struct seen_row *row, struct cn_answer *answer)
{
    bool here = roll(world, 2);

    if (row->move_op == CN_MOVE_IMPORT && !here) {
        answer->error_code = CN_E_HANDLER_FAILED;
        answer->body = CN_STR("cannot migrate");
        return;
    }
    answer->flags |= here ? CN_ANSWER_HERE : CN_ANSWER_ELSEWHERE;
    if (!here)
        answer->error_code = CN_E_SEQUENCE_UNKNOWN;
    else if (row->move_op == CN_MOVE_BURY)
        answer->flags |= roll(world, 2) ? CN_ANSWER_ENDED : CN_ANSWER_CLOSED_BEFORE;
}

static void
answer_step(struct world *world, struct cn_answer *answer)
{
    switch (roll(world, 10)) {
    case 0:
        answer->error_code = CN_E_HANDLER_FAILED;
        break;
    case 1:
        answer->flags |= CN_ANSWER_ENDED;
        break;
    case 2:
        answer->flags |= CN_ANSWER_CLOSED_BEFORE;
        answer->error_code = CN_E_SEQUENCE_EXPIRED;
        break;
    case 3:
        answer->flags |= CN_ANSWER_OPENED;
        break;
    default:
        break;
    }
}

/* Answers one of the worker's rows, in any order. Returns false if the row streams on. */
static bool
answer_row(struct world *world, struct place *place, unsigned at)
{
    const struct seen_row *row = &place->fake.rows[at];
    struct cn_answer answer = answer_to(row);
    bool moves = (row->flags & CN_ROW_MOVE) && row->move_op != CN_MOVE_TOLD, final = true;

    if (moves) {
        answer_move(world, row, &answer);
    } else if (place->streams[at] || roll(world, 3) == 0) {
        final = place->streams[at] && roll(world, 3) == 0;
        place->streams[at] = true;
        answer.flags = CN_ANSWER_LIVE | (final ? CN_ANSWER_FINAL : 0u) |
                       (roll(world, 3) == 0 ? CN_ANSWER_COMMITTED : 0u);
        if (roll(world, 2))
            answer.body = CN_STR("");
    } else if ((row->flags & CN_ROW_ASK) && roll(world, 2)) {
        answer.flags |= CN_ANSWER_ELSEWHERE | (roll(world, 4) ? 0u : CN_ANSWER_PENDING);
        answer.error_code = CN_E_SEQUENCE_UNKNOWN;
    } else {
        answer_step(world, &answer);
    }
    fake_send(&place->fake, &answer);
    return final;
}

static bool
can_talk(const struct place *place)
{
    return place->fake.link && place->fake.fd >= 0 && !place->fake.lost && !place->fake.overdue;
}

static void
event_answer(struct world *world)
{
    struct place *place = &world->places[roll(world, world->n_queues)][roll(world, PLACES)];
    struct fake *fake = &place->fake;
    unsigned at;

    if (!can_talk(place))
        return;
    fake_read(fake);
    if (fake->n_closes > place->closes_answered) {
        fake_closed(fake, 1);
        place->closes_answered++;
    }
    if (fake->next == fake->n_rows)
        return;
    at = fake->next + roll(world, fake->n_rows - fake->next);
    if (!answer_row(world, place, at))
        return;
    fake->rows[at] = fake->rows[fake->next];
    place->streams[at] = place->streams[fake->next];
    fake->next++;
}

static void
note_retired(void *ctx)
{
    ((struct place *)ctx)->retired = true;
}

static void
bury(struct world *world, struct place *place)
{
    if (place->fake.fd >= 0)
        close(place->fake.fd);
    if (cn_list_linked(&place->fake.link->attached))
        cn_model_queue_detach(place->fake.queue, place->fake.link, place->fake.overdue, "it died");
    cn_worker_link_destroy(place->fake.link);
    cn_buf_fini(&place->fake.in);
    memset(place, 0, sizeof(*place));
    world->deaths++;
}

static void
start_worker(struct world *world, struct place *place, struct cn_model_queue *queue)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    place->fake.fd = fds[1];
    place->fake.queue = queue;
    assert_int_equal(cn_worker_link_create(world->rig->loop, fds[0], 1, 1 << 20, &fake_ops,
                                           &place->fake, &place->fake.link, NULL),
                     0);
    if (roll(world, 6))
        cn_model_queue_attach(queue, place->fake.link);
}

/* A worker ends, or begins to end, in one of the ways in which workers do. */
static void
end_worker(struct world *world, struct place *place)
{
    const int none[2] = {-1, -1};

    switch (roll(world, 6)) {
    case 0: /* it dies */
        bury(world, place);
        break;
    case 1: /* it breaks off, and the server notices this first */
        close(place->fake.fd);
        place->fake.fd = -1;
        break;
    case 2: /* it no longer reads, which the next write finds out */
        shutdown(place->fake.fd, SHUT_RD);
        break;
    case 3: /* a write fails between two turns, and the owner destroys the link */
        close(place->fake.fd);
        place->fake.fd = -1;
        cn_worker_link_send_fork(place->fake.link, CN_STR("w"), none);
        bury(world, place);
        break;
    default:
        if (place->retiring || !cn_list_linked(&place->fake.link->attached))
            break;
        place->retiring = true;
        cn_model_queue_retire(place->fake.queue, place->fake.link, note_retired, place);
        break;
    }
}

static void
event_worker(struct world *world)
{
    unsigned version = roll(world, world->n_queues);
    struct place *place = &world->places[version][roll(world, PLACES)];
    const struct fake *fake = &place->fake;
    bool full = fake->n_rows > SEEN_MAX / 2 || fake->n_cancels > SEEN_MAX / 2;

    if (!fake->link)
        start_worker(world, place, world->queues[version]);
    else if (full || place->retired || fake->overdue || fake->lost)
        bury(world, place);
    else if (fake->fd >= 0 && roll(world, 4) == 0)
        end_worker(world, place);
}

/* --- a walk */

static void
event(struct world *world)
{
    unsigned kind = roll(world, 100);

    if (kind < 35)
        event_send(world);
    else if (kind < 45)
        event_client(world);
    else if (kind < 80)
        event_answer(world);
    else if (kind < 90)
        event_worker(world);
    else if (kind < 91)
        cn_model_queue_set_swap_policy(world->queues[world->n_queues - 1],
                                       (enum cn_swap_policy)roll(world, 4));
    else if (kind < 92)
        cn_model_queue_set_expected(world->queues[roll(world, world->n_queues)], roll(world, 2),
                                    "nobody comes");
    else
        cn_clock_advance(roll(world, kind == 99 ? 1200 : 60));
    if (roll(world, 3) == 0)
        settle_all(world);
}

/* With `slots` a worker has one sequence at a time (policy.h), and there is one version. */
static struct world *
world_create(uint64_t seed, bool slots)
{
    static struct cn_batching batching = {.kind = CN_BATCHING_OLDEST, .max_candidates = 1};
    static struct cn_model_io io = {.batching = &batching};
    struct world *world = cn_alloc(sizeof(*world));

    world->random = seed;
    world->large = cn_alloc(LARGE_BYTES);
    memset(world->large, 'x', LARGE_BYTES);
    world->rig = rig_create(config_walk);
    assert_int_equal(cn_loop_create(0, &world->other, NULL), 0);
    cn_loop_turn(world->other, 0);
    if (slots)
        world->rig->config.io = &io;
    world->n_queues = slots ? 1 : 2;
    the_world = world;
    cn_model_queue_close(world->rig->queue, CN_E_DRAINING, "another one comes", true, NULL, NULL);
    settle(world->rig);
    cn_model_queue_destroy(world->rig->queue);
    for (unsigned i = 0; i < world->n_queues; i++) {
        world->queues[i] =
            cn_model_queue_create(world->rig->loop, "m", i ? "2.0" : "1.0", &world->rig->config);
        cn_model_queue_set_expected(world->queues[i], 1, NULL);
        if (!slots)
            cn_model_queue_set_family(world->queues[i], (struct cn_family){version_at, NULL});
    }
    return world;
}

static void
world_destroy(struct world *world)
{
    for (unsigned i = 0; i < 2 * PLACES; i++)
        if (world->places[i / PLACES][i % PLACES].fake.link)
            bury(world, &world->places[i / PLACES][i % PLACES]);
    for (unsigned i = 0; i < world->n_queues; i++)
        cn_model_queue_close(world->queues[i], CN_E_DRAINING, "over", true, rig_empty, world->rig);
    for (unsigned i = 0; i < 3; i++)
        settle_all(world);
    assert_int_equal(world->rig->empty, world->n_queues);
    assert_int_equal(world->done, world->sent); /* each job got its one final answer */
    for (unsigned i = 0; i < world->n_queues; i++)
        cn_model_queue_destroy(world->queues[i]);
    cn_loop_destroy(world->other);
    cn_loop_destroy(world->rig->loop);
    cn_free(world->rig);
    cn_free(world->large);
    cn_free(world);
}

static void
each_pair_of_the_tables_is_seen_and_no_other(void **state)
{
    unsigned wrong;

    (void)state;
    for (uint64_t seed = 1; seed <= WALKS; seed++) {
        struct world *world = world_create(seed, seed % 3 == 0);

        for (unsigned i = 0; i < EVENTS; i++)
            event(world);
        assert_true(world->done > 0 && world->deaths > 0);
        world_destroy(world);
    }
    wrong = compare("a job", cn_job_phases, job_pairs, CN_JOB_N_PHASES);
    wrong +=
        compare("a job's message", cn_job_message_phases, message_pairs, CN_JOB_MESSAGE_N_PHASES);
    wrong += compare("a worker link", cn_worker_link_phases, link_pairs, CN_LINK_N_PHASES);
    wrong += compare("the credit of a worker", cn_worker_credit_phases, credit_pairs,
                     CN_CREDIT_N_PHASES);
    assert_int_equal(wrong, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_of_the_tables_is_seen_and_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
