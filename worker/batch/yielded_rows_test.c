/* worker/batch/yielded_rows_test.c - tests rows that yield: turns, pieces, credit, stops, commits.
 */
#include <signal.h>

#include "core/time/clock.h"
#include "worker/test_client.h"

/* A copy of one ANSWER frame. */
struct piece {
    uint64_t job, generation;
    uint32_t flags;
    int code;
    unsigned status;
    char type[32], body[256];
    size_t bytes;
    bool final;
};

static struct piece
next_piece(struct client *c)
{
    struct piece piece = {0};
    struct cn_answer answer;
    struct cn_frame frame;
    struct cn_error err;

    assert_int_equal(client_next(c, &frame), 1);
    assert_int_equal(frame.type, CN_FRAME_ANSWER);
    assert_int_equal(cn_frame_get_answer(&frame, &c->arena, &answer, &err), 0);
    piece.job = answer.job_id;
    piece.generation = answer.generation;
    piece.flags = answer.flags & ~(uint32_t)CN_ANSWER_FINAL;
    piece.final = answer.flags & CN_ANSWER_FINAL;
    piece.code = answer.error_code;
    piece.status = answer.status;
    piece.bytes = answer.body.len;
    snprintf(piece.type, sizeof(piece.type), "%.*s", CN_STR_ARG(answer.content_type));
    snprintf(piece.body, sizeof(piece.body), "%.*s",
             (int)(answer.body.len < 250 ? answer.body.len : 250),
             answer.body.ptr ? answer.body.ptr : "");
    cn_arena_fini(&c->arena);
    return piece;
}

static void
expect_piece(struct client *c, uint64_t job, const char *body, bool final)
{
    struct piece piece = next_piece(c);

    assert_int_equal(piece.job, job);
    assert_string_equal(piece.body, body);
    assert_int_equal(piece.final, final);
}

static void
go(struct client *c, uint64_t job, const char *id, const char *body, uint32_t flags)
{
    client_put(c, job, id, body, flags, 0);
    client_send(c);
}

static void
cancel(struct client *c, uint64_t job, enum cn_stop_reason reason)
{
    cn_frame_put_cancel(&c->out, &(struct cn_cancel){job, reason}, 1);
    client_send(c);
}

static void
credit(struct client *c, uint64_t job, uint64_t bytes)
{
    cn_frame_put_credit(&c->out, &(struct cn_credit){job, bytes}, 1);
    client_send(c);
}

/* Rows that yield take turns with new ones, whatever the batch size is. Here a batch has one row.
 */
static void
rows_take_turns(void **state)
{
    struct client *c = *state;

    c->load.batch_size = 1;
    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "stream 3", 0, 0);
    client_put(c, 2, "b", "stream 2", 0, 0);
    client_put(c, 3, "c", "5", 0, 0);
    client_send(c);
    expect_piece(c, 1, "1", false);
    expect_piece(c, 2, "1", false);
    expect_piece(c, 3, "5", true);
    expect_piece(c, 1, "2", false);
    expect_piece(c, 2, "2", false);
    expect_piece(c, 1, "3", false);
    expect_piece(c, 2, "sum 2", true);
    expect_piece(c, 1, "sum 3", true);
    assert_int_equal(fake.largest_batch, 1);
    client_stop(c);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_states, 0);
}

/* Only the first piece has the head. All pieces say that they cannot be made again. */
static void
head_is_in_the_first_piece(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 2", 0);
    piece = next_piece(c);
    assert_int_equal(piece.status, 202);
    assert_string_equal(piece.type, "text/x-stream");
    assert_true(piece.flags & CN_ANSWER_LIVE);
    for (int i = 0; i < 2; i++) {
        piece = next_piece(c);
        assert_int_equal(piece.status, 0);
        assert_string_equal(piece.type, "");
        assert_true(piece.flags & CN_ANSWER_LIVE);
    }
    assert_true(piece.final);
    client_stop(c);
}

/* A stream is one step: it has one commit, with its last piece. The whole answer is stored, so that
 * a retry gets all of it. */
static void
stream_is_committed_once_at_its_end(void **state)
{
    struct client *c = *state;
    struct got got;

    c->key = "k";
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(client_step(c, 1, "a", "stream 3", 0, 0).code, 0);
    got = client_step(c, 2, "a", "stream 3", 0, 0);
    assert_true(got.flags & CN_ANSWER_REPLAYED);
    assert_false(got.flags & CN_ANSWER_LIVE);
    assert_string_equal(got.body, "1|2|3|sum 3");
    assert_int_equal(got.status, 202);
    c->key = NULL;
    assert_string_equal(client_step(c, 3, "a", "1", 0, 0).body, "4");
    client_stop(c);
}

/* If the answer is larger than what is kept, a retry learns that the step is committed. */
static void
long_stream_is_not_kept(void **state)
{
    struct client *c = *state;
    struct got got;

    c->load.answer_keep_bytes = 2;
    c->key = "k";
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(client_step(c, 1, "a", "stream 3", 0, 0).code, 0);
    got = client_step(c, 2, "a", "stream 3", 0, 0);
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    assert_non_null(strstr(got.body, "its answer of 8 bytes was too large to keep"));
    client_stop(c);
}

/* A client that does not read delays only its own row, after stream.bufferBytes and one piece. */
static void
slow_client_pauses_its_own_row(void **state)
{
    struct client *c = *state;
    struct piece piece;

    c->load.stream_bytes = 250;
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "forever 100", 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(next_piece(c).bytes, 100);
    assert_string_equal(client_step(c, 2, "b", "1", 0, 0).body, "1");
    credit(c, 1, 40); /* not enough: 260 bytes are unread */
    assert_string_equal(client_step(c, 3, "b", "1", 0, 0).body, "2");
    credit(c, 1, 100);
    piece = next_piece(c);
    assert_int_equal(piece.job, 1);
    assert_int_equal(piece.bytes, 100);
    assert_string_equal(client_step(c, 4, "b", "1", 0, 0).body, "3");
    client_stop(c);
    assert_int_equal(fake.dropped, 1);
    assert_int_equal(fake.live_states, 0);
}

/* If a stream's turn comes while a batch that the server formed is still arriving, the stream takes
 * no place in that batch. */
static void
formed_batch_stays_together(void **state)
{
    struct client *c = *state;

    c->load.stream_bytes = 1; /* it pauses after its first piece */
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 2", 0);
    expect_piece(c, 1, "1", false);
    go(c, 2, "b", "2", CN_ROW_JOINED);
    credit(c, 1, 10);
    go(c, 3, "c", "3", 0);
    expect_piece(c, 2, "2", true);
    expect_piece(c, 3, "3", true);
    assert_int_equal(fake.largest_batch, 2);
    expect_piece(c, 1, "2", false);
    credit(c, 1, 10);
    expect_piece(c, 1, "sum 2", true);
    client_stop(c);
}

/* A stream that always goes on is in front of a batch that the server formed. Each of them gets its
 * turn. */
static void
formed_batch_waits_for_its_turn(void **state)
{
    struct client *c = *state;
    unsigned left = 4, largest;

    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "stream 2", 0, 0);
    client_put(c, 2, "b", "2", CN_ROW_JOINED, 0);
    client_put(c, 3, "c", "3", 0, 0);
    client_send(c);
    expect_piece(c, 1, "1", false);
    expect_piece(c, 2, "2", true);
    expect_piece(c, 3, "3", true);
    largest = fake.largest_batch;
    while (left-- > 2)
        assert_int_equal(next_piece(c).job, 1);
    client_stop(c);
    assert_int_equal(largest, 2);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_states, 0);
}

/* The places of a formed batch belong to rows. A row whose client is gone keeps its place, even the
 * first one. */
static void
formed_batch_keeps_its_places(void **state)
{
    struct client *c = *state;

    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "1", CN_ROW_JOINED, 0);
    client_put(c, 2, "b", "2", CN_ROW_JOINED, 0);
    client_put(c, 3, "c", "3", 0, 0);
    for (uint64_t job = 1; job < 3; job++)
        cn_frame_put_cancel(&c->out, &(struct cn_cancel){job, CN_STOP_GONE}, 1);
    client_send(c);
    expect_piece(c, 1, "1", true);
    expect_piece(c, 2, "2", true);
    expect_piece(c, 3, "3", true);
    assert_int_equal(fake.largest_batch, 3);
    client_stop(c);
}

/* The handler learns the reason, ends in its own way, and its step is committed. */
static void
told_to_stop_it_may_end_well(void **state)
{
    static const struct {
        enum cn_stop_reason reason;
        const char *body;
    } cases[] = {{CN_STOP_GONE, "stopped gone"}, {CN_STOP_ENDED, "stopped ended"}};
    struct client *c = *state;

    c->load.stream_bytes = 1; /* it pauses after its first piece */
    assert_int_equal(client_start(c, false), 0);
    for (uint64_t i = 0; i < 2; i++) {
        go(c, 10 + i, "a", "stream 9", 0);
        expect_piece(c, 10 + i, "1", false);
        cancel(c, 10 + i, cases[i].reason);
        expect_piece(c, 10 + i, cases[i].body, true);
    }
    assert_string_equal(client_step(c, 20, "a", "0", 0, 0).body, "2");
    client_stop(c);
}

/* If the handler yields again after it was told to stop, its stream is given up, and the step
 * changes nothing. */
static void
one_that_never_ends_is_given_up(void **state)
{
    struct client *c = *state;
    struct piece piece;

    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    assert_string_equal(client_step(c, 1, "a", "5", 0, 0).body, "5");
    go(c, 2, "a", "forever 10", 0);
    assert_false(next_piece(c).final);
    cancel(c, 2, CN_STOP_GONE);
    piece = next_piece(c);
    assert_true(piece.final);
    assert_int_equal(piece.code, CN_E_CANCELLED);
    assert_string_equal(piece.body,
                        "the stream was stopped (gone), and the handler did not end it");
    assert_string_equal(client_step(c, 3, "a", "1", 0, 0).body, "6");
    client_stop(c);
    assert_int_equal(fake.dropped, 1);
    assert_int_equal(fake.live_states, 0);
}

/* A row has not begun. If its client is gone, it is dropped. If its sequence ends, it still runs,
 * and if it turns out to stream, it ends at its first turn. */
static void
stop_before_the_first_yield(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "stream 9", 0, 0);
    client_put(c, 2, "b", "stream 9", 0, 0);
    client_put(c, 3, "c", "7", 0, 0);
    cn_frame_put_cancel(
        &c->out, (struct cn_cancel[]){{1, CN_STOP_GONE}, {2, CN_STOP_ENDED}, {3, CN_STOP_ENDED}},
        3);
    client_send(c);
    piece = next_piece(c);
    assert_int_equal(piece.job, 1);
    assert_int_equal(piece.code, CN_E_CANCELLED);
    expect_piece(c, 2, "1", false);
    expect_piece(c, 3, "7", true);
    expect_piece(c, 2, "stopped ended", true);
    client_stop(c);
}

/* stream.timeoutMSec applies to a stream that waits for its client, and to one that rests. */
static void
deadline_ends_a_stream(void **state)
{
    struct client *c = *state;
    struct piece piece;

    cn_clock_freeze();
    c->load.stream_bytes = 1;
    c->load.stream_ms = 5000;
    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "stream 9", 0, 0);
    client_put(c, 2, "b", "rest 60000", 0, 0);
    client_send(c);
    expect_piece(c, 1, "1", false);
    expect_piece(c, 2, "", false);
    cn_clock_advance(5000);
    go(c, 3, "c", "1", 0); /* wakes the worker, whose own wait is in real time */
    for (int left = 3; left > 0; left--) {
        piece = next_piece(c);
        assert_true(piece.final);
        if (piece.job != 3)
            assert_string_equal(piece.body, "stopped deadline");
    }
    go(c, 4, "a", "forever 9", 0);
    assert_false(next_piece(c).final);
    cn_clock_advance(5000);
    credit(c, 4, 1);
    piece = next_piece(c);
    assert_int_equal(piece.code, CN_E_HANDLER_DEADLINE);
    client_stop(c);
}

/* A yield without a piece sends nothing to the client, but the server learns once that the row
 * streams. The row runs again when its rest is over. */
static void
resting_row_comes_again(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "rest 30", 0);
    piece = next_piece(c);
    assert_int_equal(piece.bytes, 0);
    assert_int_equal(piece.status, 0);
    assert_false(piece.final);
    expect_piece(c, 1, "sum 0", true); /* in real time */
    client_stop(c);
}

/* A sequence that streams is not idle, however long it takes. The sweep, which does not know of
 * streams, leaves it alone, and its next step continues. */
static void
streaming_sequence_is_not_swept(void **state)
{
    struct client *c = *state;
    char id[8];

    c->load.idle_ms = 1000;
    c->load.stream_ms = c->load.lifetime_ms = 0;
    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(client_step(c, 1, "a", "5", 0, 0).code, 0);
    go(c, 2, "a", "rest 10000000", 0);
    assert_false(next_piece(c).final);
    for (uint64_t i = 0; i < 9; i++) { /* beyond the idle limit; each step makes a turn */
        cn_clock_advance(10000);
        snprintf(id, sizeof(id), "b%d", (int)i);
        assert_int_equal(client_step(c, 10 + i, id, "1", 0, 0).code, 0);
    }
    assert_null(strstr(fake.closed, "a:idle"));
    assert_non_null(strstr(fake.closed, "b0:idle:1")); /* this one was swept */
    cancel(c, 2, CN_STOP_CANCELLED);
    assert_true(next_piece(c).final);
    assert_string_equal(client_step(c, 30, "a", "1", 0, 0).body, "6");
    client_stop(c);
}

/* With continuousBatching the step is committed at its first yield, so the next step runs on the
 * committed state while the first one streams. What the stream does to its state afterwards is
 * lost. */
static void
committed_stream_is_overtaken(void **state)
{
    struct client *c = *state;
    struct piece piece;
    struct got got;

    c->load.continuous = 1;
    c->load.stream_bytes = 1;
    c->key = "k";
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 3", 0);
    piece = next_piece(c);
    assert_true(piece.flags & CN_ANSWER_COMMITTED);
    assert_true(piece.flags & CN_ANSWER_OPENED);
    assert_int_not_equal(piece.generation, 0);
    got = client_step(c, 2, "a", "stream 3", 0, 0); /* a retry learns that the step is committed */
    assert_int_equal(got.code, CN_E_ANSWER_NOT_KEPT);
    assert_non_null(strstr(got.body, "its answer was streamed after that"));
    c->key = NULL;
    assert_string_equal(client_step(c, 3, "a", "10", 0, 0).body, "11");
    credit(c, 1, 1);
    expect_piece(c, 1, "2", false);
    assert_string_equal(client_step(c, 4, "a", "10", 0, 0).body, "21");
    credit(c, 1, 1);
    expect_piece(c, 1, "3", false);
    credit(c, 1, 1);
    expect_piece(c, 1, "sum 3", true); /* the stream's own state */
    assert_string_equal(client_step(c, 5, "a", "10", 0, 0).body, "31");
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* The server does not send the next step of a sequence while a stream is not committed. If it did,
 * or if a second worker ran that step, the stream must not overwrite it: the step of the stream
 * fails. */
static void
uncommitted_stream_that_was_overtaken_fails(void **state)
{
    struct client *c = *state;
    struct piece piece;

    c->load.idle_ms = 0; /* so that the record is not written in between */
    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    assert_string_equal(client_step(c, 1, "a", "5", 0, 0).body, "5");
    go(c, 2, "a", "stream 9", 0);
    expect_piece(c, 2, "1", false);
    assert_string_equal(client_step(c, 3, "a", "1", 0, 0).body, "6");
    cancel(c, 2, CN_STOP_GONE);
    piece = next_piece(c);
    assert_true(piece.final);
    assert_int_equal(piece.code, CN_E_CONFLICT);
    assert_string_equal(client_step(c, 4, "a", "0", 0, 0).body, "6");
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* Another step may end the streams of its own sequence, and of no other. */
static void
step_stops_streams_of_its_sequence(void **state)
{
    struct client *c = *state;

    c->load.continuous = 1;
    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 9", 0);
    expect_piece(c, 1, "1", false);
    go(c, 2, "a", "stream 9", 0);
    expect_piece(c, 2, "1", false);
    go(c, 3, "b", "stream 9", 0);
    expect_piece(c, 3, "1", false);
    go(c, 4, "a", "stop", 0);
    expect_piece(c, 4, "-1", true);
    expect_piece(c, 1, "stopped cancelled", true);
    expect_piece(c, 2, "stopped cancelled", true);
    assert_string_equal(client_step(c, 5, "a", "0", 0, 0).body, "2");
    credit(c, 3, 1);
    expect_piece(c, 3, "2", false);
    client_stop(c);
}

/* The end of a sequence ends its streams, whether it comes by a step, by START or from the server.
 */
static void
end_of_the_sequence_stops_its_streams(void **state)
{
    struct client *c = *state;
    uint64_t generation;
    struct piece piece;

    c->load.continuous = 1;
    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 9", 0);
    expect_piece(c, 1, "1", false);
    go(c, 2, "a", "end", 0);
    expect_piece(c, 2, "1", true);
    expect_piece(c, 1, "stopped ended", true);
    go(c, 3, "a", "stream 9", 0);
    piece = next_piece(c);
    generation = piece.generation;
    go(c, 4, "a", "7", CN_ROW_START);
    expect_piece(c, 4, "7", true);
    expect_piece(c, 3, "stopped ended", true);
    go(c, 5, "a", "stream 9", 0);
    piece = next_piece(c);
    assert_true(piece.generation > generation);
    client_put_close(c, "a", piece.generation, CN_CLOSE_DELETED);
    client_send(c);
    assert_int_equal(client_get_closed(c), 1);
    expect_piece(c, 5, "stopped ended", true);
    client_stop(c);
    assert_string_equal(fake.closed, "a:ended:1 a:ended:1 a:deleted:8 ");
    assert_int_equal(fake.live_states, 0);
}

/* A step with END streams. The end is committed at its first yield. on_close is called when the
 * stream is over, since the stream has the state until then. */
static void
last_step_of_a_sequence_may_stream(void **state)
{
    struct client *c = *state;
    struct piece piece;

    c->load.continuous = 1;
    c->load.stream_bytes = 1; /* so that it waits after each piece */
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 2", CN_ROW_END);
    piece = next_piece(c);
    assert_true(piece.flags & CN_ANSWER_ENDED);
    assert_string_equal(fake.closed, "");
    credit(c, 1, 1);
    expect_piece(c, 1, "2", false);
    credit(c, 1, 1);
    expect_piece(c, 1, "sum 2", true);
    assert_string_equal(client_step(c, 2, "a", "5", 0, 0).body, "5"); /* anew */
    client_stop(c);
    assert_string_equal(fake.closed, "a:ended:2 ");
    assert_int_equal(fake.live_states, 0);
}

/* After the commit the handler cannot end the sequence any more, and gets an error. */
static void
end_after_the_commit_is_an_error(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "late end", 0);
    assert_int_equal(next_piece(c).code, 0);
    piece = next_piece(c); /* without continuousBatching it can */
    assert_int_equal(piece.code, 0);
    assert_true(piece.flags & CN_ANSWER_ENDED);
    assert_int_equal(client_stop(c), 0);
    c->load.continuous = 1;
    assert_int_equal(client_start(c, false), 0);
    go(c, 2, "b", "late end", 0);
    assert_int_equal(next_piece(c).code, 0);
    piece = next_piece(c);
    assert_int_equal(piece.code, CN_E_HANDLER_FAILED);
    assert_non_null(strstr(piece.body, "end_sequence was set after the first yield"));
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* A piece over the limit fails the step, and the stream is freed. */
static void
piece_over_the_limit_fails(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "forever 6000", 0);
    piece = next_piece(c);
    assert_int_equal(piece.code, CN_E_HANDLER_FAILED);
    assert_true(piece.final);
    assert_int_equal(fake.live_streams, 0);
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

/* After STOP a worker waits for the last pieces of its streams, and no longer. */
static void
worker_that_stops_ends_its_streams(void **state)
{
    struct client *c = *state;

    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    client_put(c, 1, "a", "stream 9", 0, 0);
    client_put(c, 2, "b", "forever 9", 0, 0);
    client_put(c, 3, NULL, "rest 60000", 0, 0);
    client_send(c);
    for (int i = 0; i < 3; i++)
        assert_false(next_piece(c).final);
    assert_int_equal(client_stop(c), 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.dropped, 1);
    assert_int_equal(fake.live_states, 0);
}

/* If the server is gone, the worker does not wait. */
static void
streams_end_with_the_server(void **state)
{
    struct client *c = *state;

    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "stream 9", 0);
    assert_false(next_piece(c).final);
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    close(c->fd);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_states, 0);
}

/* If a worker dies before a stream has ended, the sequence stays as it was. */
static void
death_in_mid_stream_changes_nothing(void **state)
{
    struct client *c = *state;

    c->load.stream_bytes = 1;
    assert_int_equal(client_start(c, true), 0);
    assert_string_equal(client_step(c, 1, "a", "5", 0, 0).body, "5");
    go(c, 2, "a", "stream 9", 0);
    expect_piece(c, 2, "1", false);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->fd);
    assert_int_equal(client_start(c, true), 0);
    assert_string_equal(client_step(c, 3, "a", "1", 0, 0).body, "6");
    client_stop(c);
}

/* A handler may have something to say long before it returns. Here it returns only when it is told
 * that the client is gone, so the piece must have left while it ran. */
static void
pieces_leave_while_the_handler_runs(void **state)
{
    struct client *c = *state;
    struct piece piece;

    assert_int_equal(client_start(c, false), 0);
    go(c, 1, "a", "speak 0", 0);
    piece = next_piece(c);
    assert_string_equal(piece.body, "said");
    assert_true(piece.flags & CN_ANSWER_LIVE);
    assert_false(piece.final);
    cancel(c, 1, CN_STOP_GONE);
    while (!piece.final)
        piece = next_piece(c);
    assert_string_equal(piece.body, "stopped gone");
    assert_string_equal(client_step(c, 2, "a", "1", 0, 0).body, "2");
    client_stop(c);
}

/* What was sent early is a part of the stored answer, like any piece. */
static void
a_retry_gets_what_was_sent_early(void **state)
{
    struct client *c = *state;
    struct got got;

    c->key = "k";
    assert_int_equal(client_start(c, false), 0);
    assert_string_equal(client_step(c, 1, "a", "speak 3", 0, 0).body, "said|said|said|sum 1");
    got = client_step(c, 2, "a", "speak 3", 0, 0);
    assert_true(got.flags & CN_ANSWER_REPLAYED);
    assert_string_equal(got.body, "said|said|said|sum 1");
    c->key = NULL;
    assert_string_equal(client_step(c, 3, "a", "1", 0, 0).body, "2");
    client_stop(c);
}

/* If a client takes nothing, the server keeps at most stream.bufferBytes and one piece for it. The
 * rest waits in the worker, and leaves in order when the call is over. */
static void
pieces_wait_for_a_slow_client(void **state)
{
    struct client *c = *state;

    c->load.stream_bytes = 5;
    assert_int_equal(client_start(c, false), 0);
    assert_string_equal(client_step(c, 1, "a", "speak 5", 0, 0).body,
                        "said|said|said|said|said|sum 1");
    assert_string_equal(client_step(c, 2, "a", "1", 0, 0).body, "2");
    client_stop(c);
}

#define STREAM(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STREAM(pieces_leave_while_the_handler_runs),
        STREAM(a_retry_gets_what_was_sent_early),
        STREAM(pieces_wait_for_a_slow_client),
        STREAM(rows_take_turns),
        STREAM(head_is_in_the_first_piece),
        STREAM(stream_is_committed_once_at_its_end),
        STREAM(long_stream_is_not_kept),
        STREAM(slow_client_pauses_its_own_row),
        STREAM(formed_batch_stays_together),
        STREAM(formed_batch_waits_for_its_turn),
        STREAM(formed_batch_keeps_its_places),
        STREAM(told_to_stop_it_may_end_well),
        STREAM(one_that_never_ends_is_given_up),
        STREAM(stop_before_the_first_yield),
        STREAM(resting_row_comes_again),
        STREAM(streaming_sequence_is_not_swept),
        STREAM(committed_stream_is_overtaken),
        STREAM(uncommitted_stream_that_was_overtaken_fails),
        STREAM(step_stops_streams_of_its_sequence),
        STREAM(end_of_the_sequence_stops_its_streams),
        STREAM(last_step_of_a_sequence_may_stream),
        STREAM(end_after_the_commit_is_an_error),
        STREAM(piece_over_the_limit_fails),
        STREAM(worker_that_stops_ends_its_streams),
        STREAM(streams_end_with_the_server),
        STREAM(death_in_mid_stream_changes_nothing),
        STREAM(deadline_ends_a_stream), /* freezes the clock, so last */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
