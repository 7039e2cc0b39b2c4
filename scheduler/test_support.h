/* scheduler/test_support.h - for the tests of this folder: a model queue on a loop that the test
 * turns by hand, workers whose end of the socket the test holds, and clients that note what they
 * get.
 */
#ifndef CN_SCHEDULER_TEST_SUPPORT_H
#define CN_SCHEDULER_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/answer_box_priv.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/submit.h"
#include "scheduler/workers/worker_link_priv.h"
#include "scheduler/workers/workers.h"

#define UNUSED_OK __attribute__((unused))
#define SEEN_MAX 512
#define FAKES_MAX 6

/* A row as the worker saw it. */
struct seen_row {
    uint64_t job_id, generation;
    uint32_t flags, deadline_ms, frame; /* frame: 1, 2, ... of that worker */
    enum cn_move_op move_op;            /* with CN_ROW_MOVE */
    char id[300], body[32];
};

struct seen_query {
    uint64_t id;
    enum cn_query_op op;
    unsigned after_rows; /* rows that came before it */
};

struct seen_close {
    char id[300];
    uint64_t generation;
    enum cn_close_reason reason;
};

/* The worker's end, and what the link told its owner. */
struct fake {
    int fd;
    struct cn_worker_link *link;
    struct cn_model_queue *queue;
    struct cn_buf in;
    struct seen_row rows[SEEN_MAX];
    struct seen_close closes[SEEN_MAX];
    struct seen_query queries[SEEN_MAX];
    uint64_t cancels[SEEN_MAX], credit;
    enum cn_stop_reason why_cancelled[SEEN_MAX];
    unsigned n_rows, n_frames, n_closes, n_cancels, n_stops;
    unsigned next; /* row that `answer_next` answers */
    unsigned n_queries, next_query;
    unsigned loaded, lost, overdue, stats;
    void (*on_stats)(struct fake *fake); /* NULL: only count them */
    char why[256];
};

struct rig {
    struct cn_loop *loop;
    struct cn_model_config config;
    struct cn_model_queue *queue;
    struct fake fakes[FAKES_MAX];
    unsigned n_fakes, empty, retired;
    uint64_t next_generation;
};

struct client {
    struct cn_job job;
    struct cn_part part;
    char id[300], body[32];
    unsigned pieces, finals; /* pieces: without the final one */
    unsigned order;          /* of all final answers: 1, 2, ... */
    int error;
    uint32_t retry_after_s;
    char text[256], sequence_id[300], all[256]; /* final body; id; all bodies in a row */
    bool was_read_there;                        /* the final answer lies where it was read to */
};

static unsigned answers_seen;

static UNUSED_OK void
copy_text(char *to, size_t room, struct cn_str from)
{
    snprintf(to, room, "%.*s", CN_STR_ARG(from));
}

static UNUSED_OK void
client_answered(struct cn_job *job, struct cn_answer_box *box)
{
    struct client *client = cn_container_of(job, struct client, job);
    size_t at = strlen(client->all);

    assert_int_equal(client->finals, 0);
    copy_text(client->all + at, sizeof(client->all) - at, box->answer.body);
    if (box->answer.flags & CN_ANSWER_FINAL) {
        client->finals++;
        client->order = ++answers_seen;
        client->error = box->answer.error_code;
        client->retry_after_s = box->retry_after_s;
        client->was_read_there = box->read != NULL;
        copy_text(client->text, sizeof(client->text), box->answer.body);
        copy_text(client->sequence_id, sizeof(client->sequence_id), box->sequence_id);
    } else {
        client->pieces++;
    }
    cn_answer_box_free(box);
}

static const struct cn_job_ops client_ops UNUSED_OK = {client_answered};

static UNUSED_OK void
fake_loaded(void *owner, const struct cn_loaded *loaded)
{
    (void)loaded;
    ((struct fake *)owner)->loaded++;
}

static UNUSED_OK void
fake_stats(void *owner, const struct cn_worker_stats *stats)
{
    struct fake *fake = owner;

    (void)stats;
    fake->stats++;
    if (fake->on_stats)
        fake->on_stats(fake);
}

static UNUSED_OK void
fake_lost(void *owner, const char *why)
{
    struct fake *fake = owner;

    fake->lost++;
    snprintf(fake->why, sizeof(fake->why), "%s", why);
}

static UNUSED_OK void
fake_overdue(void *owner, const char *why)
{
    struct fake *fake = owner;

    fake->overdue++;
    snprintf(fake->why, sizeof(fake->why), "%s", why);
}

static const struct cn_worker_link_ops fake_ops UNUSED_OK = {fake_loaded,  fake_stats, fake_lost,
                                                             fake_overdue, NULL,       NULL};

/* Turns the loop until all that follows from what happened has happened. */
static UNUSED_OK void
settle(struct rig *rig)
{
    int i;

    for (i = 0; i < 4; i++)
        cn_loop_turn(rig->loop, 0);
}

/* --- changes of the configuration that several tests have */

static UNUSED_OK void
config_stateless(struct cn_model_config *config)
{
    config->sequence_batching = false;
}

static UNUSED_OK void
config_batch_4(struct cn_model_config *config)
{
    config->batch_size = 4;
}

static UNUSED_OK void
config_stateless_4(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 4;
}

static UNUSED_OK void
config_small(struct cn_model_config *config)
{
    config->job_queue_size = 3;
    config->max_num_sequence = 2;
    config->max_sequence_job_queue_size = 2;
}

/* Defaults: stateful, batchSize 1, no clocks. `change` may be NULL. */
static UNUSED_OK struct rig *
rig_create(void (*change)(struct cn_model_config *config))
{
    struct rig *rig = cn_alloc(sizeof(*rig));

    cn_clock_freeze();
    answers_seen = 0;
    assert_int_equal(cn_loop_create(0, &rig->loop, NULL), 0);
    cn_loop_turn(rig->loop, 0);
    cn_model_config_init(&rig->config);
    rig->config.sequence_batching = true;
    rig->config.body_memory_bytes = 0; /* a fake worker looks at what comes through its socket */
    if (change)
        change(&rig->config);
    rig->queue = cn_model_queue_create(rig->loop, "m", "1.0", &rig->config);
    cn_model_queue_set_expected(rig->queue, 1, NULL);
    return rig;
}

static UNUSED_OK void
rig_empty(void *ctx)
{
    ((struct rig *)ctx)->empty++;
}

static UNUSED_OK void
rig_retired(void *ctx)
{
    ((struct rig *)ctx)->retired++;
}

/* A worker that is not attached yet. */
static UNUSED_OK struct fake *
fake_add(struct rig *rig)
{
    struct fake *fake = &rig->fakes[rig->n_fakes++];
    int fds[2];

    assert_true(rig->n_fakes <= FAKES_MAX);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    fake->fd = fds[1];
    fake->queue = rig->queue;
    assert_int_equal(cn_worker_link_create(rig->loop, fds[0], rig->n_fakes, 1 << 20, &fake_ops,
                                           fake, &fake->link, NULL),
                     0);
    return fake;
}

static UNUSED_OK struct fake *
fake_attach(struct rig *rig)
{
    struct fake *fake = fake_add(rig);

    cn_model_queue_attach(rig->queue, fake->link);
    return fake;
}

/* The worker's end goes away and its owner does what it must. */
static UNUSED_OK void
fake_die(struct fake *fake, bool overdue, const char *last_words)
{
    close(fake->fd);
    fake->fd = -1;
    cn_model_queue_detach(fake->queue, fake->link, overdue, last_words);
    cn_worker_link_destroy(fake->link);
    fake->link = NULL;
}

static UNUSED_OK void
rig_destroy(struct rig *rig)
{
    unsigned i;

    for (i = 0; i < rig->n_fakes; i++) {
        struct fake *fake = &rig->fakes[i];

        if (fake->link && cn_list_linked(&fake->link->attached))
            cn_model_queue_detach(rig->queue, fake->link, false, "the test is over");
    }
    cn_model_queue_close(rig->queue, CN_E_DRAINING, "the test is over", true, rig_empty, rig);
    settle(rig);
    assert_true(rig->empty >= 1);
    cn_model_queue_destroy(rig->queue);
    for (i = 0; i < rig->n_fakes; i++) {
        cn_worker_link_destroy(rig->fakes[i].link);
        if (rig->fakes[i].fd >= 0)
            close(rig->fakes[i].fd);
        cn_buf_fini(&rig->fakes[i].in);
    }
    cn_loop_destroy(rig->loop);
    cn_free(rig);
}

static UNUSED_OK void
fake_note_rows(struct fake *fake, const struct cn_row *rows, uint32_t n)
{
    uint32_t i;

    fake->n_frames++;
    for (i = 0; i < n; i++) {
        struct seen_row *seen = &fake->rows[fake->n_rows++];

        assert_true(fake->n_rows < SEEN_MAX);
        *seen = (struct seen_row){.job_id = rows[i].job_id,
                                  .generation = rows[i].generation,
                                  .flags = rows[i].flags,
                                  .deadline_ms = rows[i].deadline_ms,
                                  .frame = fake->n_frames};
        if (rows[i].flags & CN_ROW_MOVE)
            seen->move_op = (enum cn_move_op)rows[i].move->op;
        copy_text(seen->id, sizeof(seen->id), rows[i].sequence_id);
        if (rows[i].n_parts)
            copy_text(seen->body, sizeof(seen->body), rows[i].parts[0].data);
    }
}

static UNUSED_OK void
fake_note(struct fake *fake, const struct cn_frame *frame)
{
    struct cn_arena arena;
    struct cn_row *rows;
    struct cn_close *closes;
    struct cn_cancel *cancels;
    struct cn_credit *credits;
    struct cn_query query;
    uint32_t i;

    cn_arena_init(&arena);
    if (frame->type == CN_FRAME_BATCH) {
        assert_int_equal(cn_frame_get_batch(frame, &arena, &rows, NULL), 0);
        fake_note_rows(fake, rows, frame->count);
    } else if (frame->type == CN_FRAME_CLOSE) {
        assert_int_equal(cn_frame_get_closes(frame, &arena, &closes, NULL), 0);
        for (i = 0; i < frame->count; i++) {
            struct seen_close *seen = &fake->closes[fake->n_closes++ % SEEN_MAX];

            copy_text(seen->id, sizeof(seen->id), closes[i].sequence_id);
            seen->generation = closes[i].generation;
            seen->reason = closes[i].reason;
        }
    } else if (frame->type == CN_FRAME_CANCEL) {
        assert_int_equal(cn_frame_get_cancels(frame, &arena, &cancels, NULL), 0);
        for (i = 0; i < frame->count; i++) {
            fake->why_cancelled[fake->n_cancels] = cancels[i].reason;
            fake->cancels[fake->n_cancels++] = cancels[i].job_id;
        }
    } else if (frame->type == CN_FRAME_CREDIT) {
        assert_int_equal(cn_frame_get_credits(frame, &arena, &credits, NULL), 0);
        for (i = 0; i < frame->count; i++)
            fake->credit += credits[i].bytes;
    } else if (frame->type == CN_FRAME_QUERY) {
        assert_int_equal(cn_frame_get_query(frame, &query, NULL), 0);
        fake->queries[fake->n_queries++] =
            (struct seen_query){query.query_id, query.op, fake->n_rows};
    } else if (frame->type == CN_FRAME_STOP) {
        fake->n_stops++;
    }
    cn_arena_fini(&arena);
}

/* Notes all frames that have come. */
static UNUSED_OK void
fake_read(struct fake *fake)
{
    struct cn_frame frame;
    ssize_t n;
    long size;

    do {
        char *to = cn_buf_reserve(&fake->in, 65536);

        n = recv(fake->fd, to, 65536, MSG_DONTWAIT);
        if (n > 0)
            fake->in.len += (size_t)n;
        while (fake->in.len &&
               (size = cn_frame_next(fake->in.data, fake->in.len, 1 << 24, &frame, NULL)) != 0) {
            assert_true(size > 0);
            fake_note(fake, &frame);
            cn_buf_consume(&fake->in, (size_t)size);
        }
    } while (n > 0);
}

static UNUSED_OK void
fake_write(struct fake *fake, struct cn_buf *buf)
{
    assert_false(buf->failed);
    assert_int_equal(write(fake->fd, buf->data, buf->len), (ssize_t)buf->len);
    cn_buf_fini(buf);
}

/* Sends bytes that need not be frames. */
static UNUSED_OK void
fake_put(struct fake *fake, const void *bytes, size_t len)
{
    assert_int_equal(write(fake->fd, bytes, len), (ssize_t)len);
}

static UNUSED_OK void
fake_send(struct fake *fake, const struct cn_answer *answer)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_frame_put_answer(&buf, answer);
    fake_write(fake, &buf);
}

static UNUSED_OK void
fake_closed(struct fake *fake, uint32_t count)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_frame_put_closed(&buf, &(struct cn_closed){.count = count, .done = count});
    fake_write(fake, &buf);
}

/* A good final answer with the row's own body; a sequence gets or keeps generation 7. */
static UNUSED_OK struct cn_answer
answer_to(const struct seen_row *row)
{
    return (struct cn_answer){.job_id = row->job_id,
                              .flags = CN_ANSWER_FINAL,
                              .generation = row->flags & CN_ROW_STATEFUL ? 7 : 0,
                              .opened_wall_ms = row->flags & CN_ROW_STATEFUL ? cn_wall_ms() : 0,
                              .body = cn_str_from(row->body)};
}

/* Answers the oldest row that is not answered yet, and lets it arrive. */
static UNUSED_OK void
answer_next(struct rig *rig, struct fake *fake)
{
    struct cn_answer answer;

    fake_read(fake);
    assert_true(fake->next < fake->n_rows);
    answer = answer_to(&fake->rows[fake->next++]);
    fake_send(fake, &answer);
    settle(rig);
    fake_read(fake);
}

static UNUSED_OK unsigned
answer_all(struct rig *rig, struct fake *fake)
{
    unsigned n = 0;

    for (fake_read(fake); fake->next < fake->n_rows; n++)
        answer_next(rig, fake);
    return n;
}

static UNUSED_OK void
client_prepare(struct client *client, struct cn_loop *origin, const char *id, const char *body,
               uint32_t flags)
{
    memset(client, 0, sizeof(*client));
    memset(&client->job, 0x5a, sizeof(client->job)); /* arenas don't zero */
    client->job.any_version = false;
    snprintf(client->id, sizeof(client->id), "%s", id);
    snprintf(client->body, sizeof(client->body), "%s", body);
    client->part = (struct cn_part){.name = CN_STR("body"), .data = cn_str_from(client->body)};
    client->job.ops = &client_ops;
    client->job.origin = origin;
    client->job.deadline_ms = CN_NEVER;
    client->job.named_version = false;
    client->job.connection = 0;
    client->job.left = NULL;
    client->job.client = 0;
    client->job.owner = (struct cn_str){NULL, 0};
    client->job.account = NULL;
    client->job.timeout_us = client->job.priority = 0;
    client->job.row = (struct cn_row){.flags = flags,
                                      .sequence_id = cn_str_from(client->id),
                                      .n_parts = 1,
                                      .parts = &client->part};
}

/* Submits; the end of the turn is the caller's. */
static UNUSED_OK void
client_send(struct rig *rig, struct client *client, const char *id, const char *body,
            uint32_t flags)
{
    client_prepare(client, rig->loop, id, body, flags);
    cn_model_queue_submit(rig->queue, &client->job);
    assert_int_equal(client->finals, 0);
}

static UNUSED_OK struct cn_model_queue_stats
rig_stats(struct rig *rig)
{
    struct cn_model_queue_stats stats;

    cn_model_queue_stats(rig->queue, &stats);
    return stats;
}

/* Time passes, and the loop sees it. */
static UNUSED_OK void
pass(struct rig *rig, uint64_t ms)
{
    cn_clock_advance(ms);
    settle(rig);
}

#endif
