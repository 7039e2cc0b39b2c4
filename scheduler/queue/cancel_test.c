/* scheduler/queue/cancel_test.c - tests clients that go away, on the queue's own loop and on
 * another one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/model/model_io.h"
#include "core/system/random.h"
#include "metrics/counters/infer_stats.h"
#include "scheduler/test_support.h"

/* A cancelled step that waits is answered at the end of the turn. The steps behind it are not
 * affected. */
static void
waiting_job_is_answered_at_once(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client runs, gone, behind;

    (void)state;
    client_send(rig, &runs, "s", "1", 0);
    client_send(rig, &gone, "s", "2", 0);
    client_send(rig, &behind, "s", "3", 0);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    cn_model_queue_cancel(rig->queue, &gone.job);
    assert_int_equal(gone.finals, 0);
    settle(rig);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    assert_int_equal(answer_all(rig, fake), 2);
    assert_string_equal(fake->rows[1].body, "3");
    assert_int_equal(fake->n_cancels, 0);
    rig_destroy(rig);
}

/* If a client goes away in the same turn in which its request came, no worker gets the step. */
static void
incoming_job_is_answered_at_once(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client gone;

    (void)state;
    client_send(rig, &gone, "s", "1", 0);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    fake_read(fake);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    assert_int_equal(fake->n_rows, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 0);
    rig_destroy(rig);
}

static void
config_typed(struct cn_model_config *config)
{
    static struct cn_model_io io;

    config->io = &io;
}

/* A step that no queue has looked at has waited for no time. The statistics of a typed model count
 * it so, whether its client says that it left, or only closed its connection. */
static void
steps_that_are_not_admitted_take_no_time(void **state)
{
    struct rig *rig = rig_create(config_typed);
    struct client gone, closed;
    struct cn_infer_counts counts;
    struct cn_arena arena;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    pass(rig, 5000);
    client_send(rig, &gone, "s", "1", 0);
    cn_model_queue_cancel(rig->queue, &gone.job);
    client_prepare(&closed, rig->loop, "t", "1", 0);
    closed.job.connection = pair[0];
    cn_model_queue_submit(rig->queue, &closed.job);
    settle(rig);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    assert_int_equal(closed.error, CN_E_CANCELLED);
    cn_arena_init(&arena);
    cn_infer_read(cn_model_queue_infer_stats(rig->queue), &arena, &counts);
    assert_int_equal(counts.failures[CN_INFER_CANCELED], 2);
    assert_int_equal(counts.fail.us, 0);
    cn_arena_fini(&arena);
    close(pair[0]);
    rig_destroy(rig);
}

/* If a client closed its connection before its step was admitted, here behind a later question, the
 * step is not done. Neither is one with a key, since the key may have left the window. A step with
 * a number is admitted, because a copy of it would be recognised. */
static void
step_of_a_closed_connection_is_not_admitted(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client question, late, keyed, numbered, start, cancelled, waits;
    struct client *const dead[] = {&late, &keyed, &numbered, &start};
    atomic_bool left = true, there = false;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    client_prepare(&question, rig->loop, "s", "?", 0);
    client_prepare(&late, rig->loop, "s", "1", 0);
    client_prepare(&keyed, rig->loop, "s", "2", 0);
    client_prepare(&numbered, rig->loop, "s", "3", CN_ROW_NUMBERED);
    client_prepare(&start, rig->loop, "s", "4", CN_ROW_NUMBERED | CN_ROW_START);
    keyed.job.row.idempotency_key = CN_STR("k");
    numbered.job.row.step = start.job.row.step = 1;
    client_prepare(&cancelled, rig->loop, "s", "5", 0);
    cancelled.job.left = &left; /* cancelled like a gRPC call */
    client_prepare(&waits, rig->loop, "s", "6", 0);
    waits.job.left = &there;
    for (unsigned i = 0; i < 4; i++)
        dead[i]->job.connection = pair[0];
    cn_model_queue_submit(rig->queue, &question.job);
    for (unsigned i = 0; i < 4; i++)
        cn_model_queue_submit(rig->queue, &dead[i]->job);
    cn_model_queue_submit(rig->queue, &cancelled.job);
    cn_model_queue_submit(rig->queue, &waits.job);
    settle(rig);
    assert_int_equal(late.error, CN_E_CANCELLED);
    assert_int_equal(keyed.error, CN_E_CANCELLED);
    assert_int_equal(start.error, CN_E_CANCELLED);
    assert_int_equal(cancelled.error, CN_E_CANCELLED);
    assert_int_equal(answer_all(rig, fake), 3);
    assert_string_equal(fake->rows[0].body, "?");
    assert_string_equal(fake->rows[1].body, "3");
    assert_string_equal(fake->rows[2].body, "6");
    close(pair[0]);
    rig_destroy(rig);
}

static struct rig *versions[2];

static int
version_at(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
           struct cn_error *err)
{
    (void)ctx;
    (void)name;
    (void)err;
    *out = i < 2 ? versions[i]->queue : NULL;
    return 0;
}

static void
settle_both(void)
{
    for (unsigned i = 0; i < 4; i++)
        settle(versions[i % 2]);
}

/* Two versions of a model, with a worker each. Each looks in the other one for sequences. */
struct family {
    struct rig *old, *new;
    struct fake *there, *here;
};

static struct family
family_create(void (*change_old)(struct cn_model_config *),
              void (*change_new)(struct cn_model_config *))
{
    struct family family = {.old = rig_create(change_old), .new = rig_create(change_new)};

    family.there = fake_attach(family.old);
    family.here = fake_attach(family.new);
    versions[0] = family.old;
    versions[1] = family.new;
    for (unsigned i = 0; i < 2; i++)
        cn_model_queue_set_family(versions[i]->queue, (struct cn_family){version_at, NULL});
    return family;
}

static void
family_destroy(const struct family *family)
{
    rig_destroy(family->new);
    rig_destroy(family->old);
}

/* The worker says that the sequence of this row does not live in its version. */
static void
say_elsewhere(struct fake *fake, unsigned row)
{
    struct cn_answer answer = answer_to(&fake->rows[row]);

    answer.flags |= CN_ANSWER_ELSEWHERE;
    fake_send(fake, &answer);
    settle_both();
}

/* A step comes to the new version, which sends it on to the old one. */
static void
send_elsewhere(const struct family *family, struct client *client)
{
    client_prepare(client, family->new->loop, "s", "1", 0);
    client->job.any_version = true;
    cn_model_queue_submit(family->new->queue, &client->job);
    settle_both();
    fake_read(family->here);
    say_elsewhere(family->here, 0);
    fake_read(family->there);
    assert_int_equal(family->there->n_rows, 1);
}

/* Returns the piece, for stream_ends(). */
static struct cn_answer
stream_begins(struct fake *fake, unsigned row)
{
    struct cn_answer answer = answer_to(&fake->rows[row]);

    answer.flags = CN_ANSWER_LIVE;
    fake_send(fake, &answer);
    settle_both();
    return answer;
}

static void
stream_ends(struct fake *fake, struct cn_answer answer)
{
    answer.flags |= CN_ANSWER_FINAL;
    fake_send(fake, &answer);
    settle_both();
}

/* A sequence lives in another version, and a slow worker of the named version is asked first.
 * Meanwhile the client closes its connection and asks that other version what became of the step,
 * which was not done. So the step must not be done either when it comes there later. If the client
 * stays, its step is done. */
static void
step_of_a_closed_connection_is_not_done_in_another_version(void **state)
{
    struct family family = family_create(NULL, NULL);
    struct rig *old = family.old, *new = family.new;
    struct fake *there = family.there, *here = family.here;
    struct client left, stays, question;
    int pairs[2][2];

    (void)state;
    client_prepare(&left, new->loop, "left", "1", 0);
    client_prepare(&stays, new->loop, "stays", "2", 0);
    for (unsigned i = 0; i < 2; i++) {
        struct cn_job *job = i ? &stays.job : &left.job;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        job->any_version = true;
        job->connection = pairs[i][0];
    }
    for (unsigned i = 0; i < 2; i++) {
        cn_model_queue_submit(new->queue, i ? &stays.job : &left.job);
        settle_both();
        fake_read(here);
        assert_int_equal(here->n_rows, i + 1);
        assert_true(here->rows[i].flags & CN_ROW_ASK);
        if (i == 0)
            close(pairs[i][1]);
        client_send(old, &question, i ? "stays" : "left", "?", 0);
        settle_both();
        assert_int_equal(answer_all(old, there), 1);
        say_elsewhere(here, i);
        assert_int_equal(answer_all(old, there), i);
        settle_both();
    }
    assert_int_equal(left.error, CN_E_CANCELLED);
    assert_int_equal(stays.finals, 1);
    assert_int_equal(stays.error, 0);
    assert_string_equal(there->rows[2].body, "2");
    for (unsigned i = 0; i < 2; i++)
        close(pairs[i][0]);
    close(pairs[1][1]);
    family_destroy(&family);
}

/* The client leaves while another version looks for the sequence, which does not live there. So the
 * step runs here. When its handler begins to stream, it learns that nobody reads. */
static void
stream_of_a_step_that_came_home_learns_that_its_client_left(void **state)
{
    struct family family = family_create(NULL, NULL);
    struct fake *there = family.there, *here = family.here;
    struct cn_answer answer;
    struct client gone;

    (void)state;
    send_elsewhere(&family, &gone);
    cn_model_queue_cancel(family.new->queue, &gone.job);
    settle_both();
    fake_read(there);
    assert_int_equal(there->n_cancels, 1);
    say_elsewhere(there, 0);
    fake_read(here);
    assert_int_equal(here->n_rows, 2);
    assert_int_equal(here->n_cancels, 0);
    answer = stream_begins(here, 1);
    fake_read(here);
    assert_int_equal(here->n_cancels, 1);
    assert_int_equal(here->cancels[0], here->rows[1].job_id);
    assert_int_equal(here->why_cancelled[0], CN_STOP_GONE);
    stream_ends(here, answer);
    assert_int_equal(gone.finals, 1);
    family_destroy(&family);
}

static void
large_window(struct cn_model_config *config)
{
    config->stream_bytes = 4000;
}

static void
small_window(struct cn_model_config *config)
{
    config->stream_bytes = 400;
}

/* A step streams in another version, which may have less under way than the default version. So
 * credit comes as often as that version needs it: its handler is never held up for more. */
static void
credit_suits_the_version_that_streams(void **state)
{
    struct family family = family_create(small_window, large_window);
    struct fake *there = family.there;
    struct cn_answer answer;
    struct client client;

    (void)state;
    send_elsewhere(&family, &client);
    answer = stream_begins(there, 0);
    assert_int_equal(client.pieces, 1);
    cn_model_queue_consumed(&client.job, 99);
    settle_both();
    fake_read(there);
    assert_int_equal(there->credit, 0);
    cn_model_queue_consumed(&client.job, 301);
    settle_both();
    fake_read(there);
    assert_int_equal(there->credit, 400);
    stream_ends(there, answer);
    assert_int_equal(client.finals, 1);
    family_destroy(&family);
}

/* A step that streams in another version is asked to end its stream when an END comes behind it, or
 * when the version that forwarded it is to go. */
static void
stream_in_another_version_is_asked_to_end(void **state)
{
    (void)state;
    for (unsigned closes = 0; closes < 2; closes++) {
        struct family family = family_create(NULL, NULL);
        struct rig *new = family.new;
        struct fake *there = family.there;
        struct client streams, end;
        struct cn_answer answer;

        send_elsewhere(&family, &streams);
        client_prepare(&end, new->loop, "s", "2", CN_ROW_END);
        end.job.any_version = true;
        answer = stream_begins(there, 0);
        assert_int_equal(streams.pieces, 1);
        if (closes)
            cn_model_queue_close(new->queue, CN_E_UNAVAILABLE, NULL, true, rig_empty, new);
        else
            cn_model_queue_submit(new->queue, &end.job);
        settle_both();
        fake_read(there);
        assert_int_equal(there->n_cancels, 1);
        assert_int_equal(there->cancels[0], there->rows[0].job_id);
        assert_int_equal(there->why_cancelled[0], CN_STOP_ENDED);
        cn_model_queue_consumed(&streams.job, 100000); /* credit goes there as before */
        settle_both();
        fake_read(there);
        assert_int_equal(there->credit, 100000);
        stream_ends(there, answer);
        assert_int_equal(streams.finals, 1);
        assert_int_equal(streams.error, 0);
        there->next = 1;
        assert_int_equal(answer_all(family.old, there), closes ? 0 : 1);
        settle_both();
        assert_int_equal(closes ? new->empty : end.finals, 1);
        family_destroy(&family);
    }
}

/* There are more such steps than one call of poll() checks, and the clients of others between them
 * are there. */
static void
many_closed_connections_are_found(void **state)
{
    enum { N = 150 };
    struct rig *rig = rig_create(NULL);
    struct client *clients = cn_alloc(N * sizeof(*clients));
    unsigned gone = 0;
    int open_pair[2], closed_pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, open_pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, closed_pair), 0);
    close(closed_pair[1]);
    fake_attach(rig);
    for (unsigned i = 0; i < N; i++) {
        char id[16];

        snprintf(id, sizeof(id), "s%u", i);
        client_prepare(&clients[i], rig->loop, id, "1", 0);
        clients[i].job.connection = i % 3 ? closed_pair[0] : open_pair[0];
        cn_model_queue_submit(rig->queue, &clients[i].job);
    }
    settle(rig);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(clients[i].error, i % 3 ? CN_E_CANCELLED : 0);
        gone += clients[i].finals;
    }
    assert_int_equal(gone, N / 3 * 2);
    assert_int_equal(rig_stats(rig).live_sequences, N / 3);
    for (unsigned i = 0; i < N; i += 3)
        cn_model_queue_cancel(rig->queue, &clients[i].job);
    settle(rig);
    answer_all(rig, &rig->fakes[0]);
    rig_destroy(rig);
    close(open_pair[0]);
    close(open_pair[1]);
    close(closed_pair[0]);
    cn_free(clients);
}

/* A running step may have been committed. The worker is told once, and its answer ends the job. */
static void
running_job_waits_for_its_worker(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client gone;

    (void)state;
    client_send(rig, &gone, "s", "1", 0);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_cancels, 1);
    assert_int_equal(fake->cancels[0], fake->rows[0].job_id);
    assert_int_equal(gone.finals, 0);
    answer_next(rig, fake);
    assert_int_equal(gone.error, 0);
    assert_int_equal(rig_stats(rig).live_sequences, 1);
    rig_destroy(rig);
}

/* If the answer and the cancel come in the same turn, the answer counts. */
static void
answer_in_the_same_turn_wins(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client gone, other;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &other, "t", "1", 0);
    client_send(rig, &gone, "s", "1", 0);
    settle(rig);
    fake_read(fake);
    cn_model_queue_cancel(rig->queue, &gone.job);
    cn_model_queue_cancel(rig->queue, &other.job);
    answer = answer_to(&fake->rows[1]);
    fake_send(fake, &answer);
    cn_loop_turn(rig->loop, 0);
    assert_int_equal(gone.finals, 1);
    assert_int_equal(gone.error, 0);
    memset(&gone.job, 0xff, sizeof(gone.job)); /* it belongs to the front end again */
    settle(rig);
    fake_read(fake);
    assert_int_equal(fake->n_cancels, 1);
    assert_int_equal(fake->cancels[0], fake->rows[0].job_id);
    rig_destroy(rig);
}

/* If the client of a step has left and its worker dies, the step is not sent again. */
static void
cancelled_job_is_not_sent_again(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client gone, behind;

    (void)state;
    client_send(rig, &gone, "s", "1", 0);
    client_send(rig, &behind, "s", "2", 0);
    settle(rig);
    cn_model_queue_cancel(rig->queue, &gone.job);
    settle(rig);
    fake_die(fake, false, NULL);
    assert_int_equal(gone.error, CN_E_CANCELLED);
    fake = fake_attach(rig);
    settle(rig);
    answer_all(rig, fake);
    assert_string_equal(fake->rows[0].body, "2");
    rig_destroy(rig);
}

/* The following test has three threads: the queue's loop in one, a loop with clients in another,
 * and a worker in the third. */

#define ROUNDS 3000
#define AT_ONCE 32

struct far_client;

struct far {
    struct cn_loop *here, *there; /* here: clients' loop; there: queue's loop */
    struct cn_model_queue *queue;
    struct cn_worker_link *link;
    struct cn_deferred start;
    struct cn_msg stop, stopped;
    int fd;
    struct far_client *live[AT_ONCE];
    unsigned sent, answered, cancelled;
    unsigned in_order[8]; /* the number that each sequence's client expects next */
    atomic_bool empty;
};

/* Lies on the heap and is freed at the final answer, so that a sanitizer sees any later access. */
struct far_client {
    struct cn_job job;
    struct far *far;
    struct cn_part part;
    char id[16], body[16];
    unsigned number, place; /* place: in far->live */
    bool cancelled;
};

static void send_one(struct far *far);

/* cmocka's own checks only work in its thread. */
static void
far_answered(struct cn_job *job, struct cn_answer_box *box)
{
    struct far_client *client = cn_container_of(job, struct far_client, job);
    struct far *far = client->far;
    bool final = box->answer.flags & CN_ANSWER_FINAL;
    unsigned sequence = client->number % 8;

    cn_assert(cn_loop_is_here(far->here));
    cn_assert(box->answer.error_code == 0 || box->answer.error_code == CN_E_CANCELLED);
    if (box->answer.error_code == 0 && final) {
        /* a final answer waits here for messages of its job */
        bool may_wait = client->cancelled || client->number % 2;

        cn_assert(may_wait || client->number >= far->in_order[sequence]);
        if (!may_wait)
            far->in_order[sequence] = client->number;
        cn_assert(cn_str_eq(box->answer.body, cn_str_from(client->body)));
    }
    if (!final)
        cn_model_queue_consumed(&client->job, box->answer.body.len);
    far->cancelled += box->answer.error_code == CN_E_CANCELLED;
    cn_answer_box_free(box);
    if (!final)
        return;
    /* Its client may leave now, or take pieces that have waited for it. No message may go out. */
    cn_model_queue_consumed(&client->job, 1 << 30);
    cn_model_queue_cancel(far->queue, &client->job);
    far->live[client->place] = NULL;
    memset(client, 0xee, sizeof(*client));
    cn_free(client);
    far->answered++;
    if (far->sent < ROUNDS)
        send_one(far);
    else if (far->answered == ROUNDS)
        cn_loop_post(far->there, &far->stop);
}

static const struct cn_job_ops far_ops = {far_answered};

static void
send_one(struct far *far)
{
    struct far_client *client = cn_alloc(sizeof(*client));
    struct far_client *victim;

    client->far = far;
    while (far->live[client->place])
        client->place++;
    far->live[client->place] = client;
    client->number = far->sent++;
    snprintf(client->id, sizeof(client->id), "s%u", client->number % 8);
    snprintf(client->body, sizeof(client->body), "%u", client->number);
    client->part = (struct cn_part){.name = CN_STR("body"), .data = cn_str_from(client->body)};
    client->job.ops = &far_ops;
    client->job.origin = far->here;
    client->job.deadline_ms = CN_NEVER;
    client->job.row = (struct cn_row){
        .sequence_id = cn_str_from(client->id), .n_parts = 1, .parts = &client->part};
    cn_model_queue_submit(far->queue, &client->job);
    victim = far->live[cn_random_u64() % AT_ONCE]; /* it waits, runs, or its answer is on the way */
    if (victim && cn_random_u64() % 2) {
        victim->cancelled = true;
        cn_model_queue_cancel(far->queue, &victim->job);
    }
}

static void
far_start(struct cn_deferred *deferred)
{
    struct far *far = cn_container_of(deferred, struct far, start);
    unsigned i;

    for (i = 0; i < AT_ONCE; i++)
        send_one(far);
}

static void
far_empty(void *ctx)
{
    struct far *far = ctx;

    cn_model_queue_detach(far->queue, far->link, false, NULL);
    atomic_store(&far->empty, true);
    cn_loop_stop(far->there);
    cn_loop_stop(far->here);
}

static void
far_stop(struct cn_msg *msg)
{
    struct far *far = cn_container_of(msg, struct far, stop);

    cn_model_queue_close(far->queue, CN_E_DRAINING, "stopping", false, far_empty, far);
}

static void *
far_loop(void *loop)
{
    cn_loop_run(loop);
    return NULL;
}

/* Answers all rows until the other end closes. */
static void *
far_worker(void *arg)
{
    struct far *far = arg;
    struct fake *fake = cn_alloc(sizeof(*fake));
    unsigned last[8] = {0};
    ssize_t n;

    fake->fd = far->fd;
    do {
        char *to = cn_buf_reserve(&fake->in, 65536);
        struct cn_frame frame;
        long size;

        n = recv(far->fd, to, 65536, 0);
        if (n > 0)
            fake->in.len += (size_t)n;
        while (fake->in.len &&
               (size = cn_frame_next(fake->in.data, fake->in.len, 1 << 24, &frame, NULL)) > 0) {
            fake_note(fake, &frame);
            cn_buf_consume(&fake->in, (size_t)size);
        }
        for (; fake->next < fake->n_rows; fake->next++) {
            struct cn_answer answer = answer_to(&fake->rows[fake->next]);
            unsigned number = (unsigned)atoi(fake->rows[fake->next].body);

            cn_assert(number == 0 || number > last[number % 8]);
            last[number % 8] = number;
            if (number % 2) { /* it streams, so that credit crosses with answers, too */
                answer.flags = CN_ANSWER_LIVE | (number % 4 == 1 ? CN_ANSWER_COMMITTED : 0u);
                fake_send(fake, &answer);
                answer.flags |= CN_ANSWER_FINAL;
            }
            fake_send(fake, &answer);
        }
        fake->n_rows = fake->next = fake->n_cancels = 0;
    } while (n > 0);
    cn_buf_fini(&fake->in);
    cn_free(fake);
    return NULL;
}

/* Cancels and answers cross between two loops in all ways. Each job gets exactly one final answer,
 * its memory is not touched afterwards, and steps still run in order. */
static void
cancels_and_answers_cross_between_loops(void **state)
{
    struct cn_model_config config;
    struct far far = {0};
    pthread_t here, there, worker;
    int fds[2];

    (void)state;
    cn_model_config_init(&config);
    config.sequence_batching = true;
    config.batch_size = 4;
    config.stream_bytes = 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(cn_loop_create(0, &far.here, NULL), 0);
    assert_int_equal(cn_loop_create(1, &far.there, NULL), 0);
    assert_int_equal(
        cn_worker_link_create(far.there, fds[0], 1, 1 << 20, &fake_ops, NULL, &far.link, NULL), 0);
    far.fd = fds[1];
    far.queue = cn_model_queue_create(far.there, "m", "1.0", &config);
    cn_model_queue_attach(far.queue, far.link);
    far.stop.fn = far_stop;
    far.start.fn = far_start;
    cn_loop_defer(far.here, &far.start);
    assert_int_equal(pthread_create(&worker, NULL, far_worker, &far), 0);
    assert_int_equal(pthread_create(&there, NULL, far_loop, far.there), 0);
    assert_int_equal(pthread_create(&here, NULL, far_loop, far.here), 0);
    pthread_join(there, NULL);
    pthread_join(here, NULL);
    assert_true(atomic_load(&far.empty));
    assert_int_equal(far.answered, ROUNDS);
    assert_in_range(far.cancelled, 1, ROUNDS - 1);
    cn_model_queue_destroy(far.queue);
    cn_worker_link_destroy(far.link);
    pthread_join(worker, NULL);
    close(far.fd);
    cn_loop_destroy(far.here);
    cn_loop_destroy(far.there);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancels_and_answers_cross_between_loops), /* in real time, so first */
        cmocka_unit_test(waiting_job_is_answered_at_once),
        cmocka_unit_test(incoming_job_is_answered_at_once),
        cmocka_unit_test(steps_that_are_not_admitted_take_no_time),
        cmocka_unit_test(step_of_a_closed_connection_is_not_admitted),
        cmocka_unit_test(step_of_a_closed_connection_is_not_done_in_another_version),
        cmocka_unit_test(stream_of_a_step_that_came_home_learns_that_its_client_left),
        cmocka_unit_test(credit_suits_the_version_that_streams),
        cmocka_unit_test(stream_in_another_version_is_asked_to_end),
        cmocka_unit_test(many_closed_connections_are_found),
        cmocka_unit_test(running_job_waits_for_its_worker),
        cmocka_unit_test(answer_in_the_same_turn_wins),
        cmocka_unit_test(cancelled_job_is_not_sent_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
