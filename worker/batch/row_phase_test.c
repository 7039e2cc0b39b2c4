/* worker/batch/row_phase_test.c - rows walk through their table of phases in random order.
 *
 * The test drives a real worker turn by turn in this thread, with a frozen clock, so a seed decides
 * everything: which rows, streams, cancels, credits, closes and moves come, in which turn, when
 * time passes and how the worker ends. The linker replaces cn_row_enter by __wrap_cn_row_enter
 * (CMakeLists.txt), so the test sees each move. Every pair of phases that the table allows must
 * happen. A forbidden move aborts the process.
 */
#include "worker/test_client.h"

#include "core/time/clock.h"
#include "worker/worker_priv.h"

#define LIVES 60
#define TURNS 80
#define N_PHASES 10
#define MAX_JOBS 20000
#define MAX_OPEN 24

void __wrap_cn_row_enter(struct cn_pending *row, enum cn_row_phase to);
void __real_cn_row_enter(struct cn_pending *row, enum cn_row_phase to);

static struct {
    uint32_t random;
    struct client *c;
    struct cn_worker worker;
    uint64_t n_jobs;
    unsigned char sent[MAX_JOBS], answered[MAX_JOBS]; /* rows of a job, and its final answers */
    char ids[MAX_JOBS][4];                            /* id of the job's sequence; may be empty */
    uint64_t open[MAX_OPEN];                          /* jobs without a final answer */
    unsigned n_open;
    uint64_t last_job; /* the step that was answered last; 0: none */
    char record[4096]; /* the result of an EXPORT */
    size_t record_bytes;
    unsigned moves[N_PHASES][N_PHASES];
} walk;

void
__wrap_cn_row_enter(struct cn_pending *row, enum cn_row_phase to)
{
    walk.moves[row->phase][to]++;
    __real_cn_row_enter(row, to);
}

/* xorshift: a random number below n. */
static uint32_t
below(uint32_t n)
{
    walk.random ^= walk.random << 13;
    walk.random ^= walk.random >> 17;
    walk.random ^= walk.random << 5;
    return walk.random % n;
}

static bool
one_in(uint32_t n)
{
    return below(n) == 0;
}

/* --- what the server sends */

static void
put_row(uint64_t job, const char *id, const char *body, uint32_t flags, const struct cn_move *move)
{
    size_t begun = cn_frame_begin_batch(&walk.c->out);
    struct cn_part part;
    struct cn_row row = row_of(job, id, body, flags, &part);

    row.step = flags & CN_ROW_NUMBERED ? 1 + below(3) : 0;
    row.move = move;
    row.flags |= move ? CN_ROW_MOVE : 0u;
    cn_frame_put_row(&walk.c->out, &row);
    cn_frame_end_batch(&walk.c->out, begun, 1);
    if (flags & CN_ROW_PAD)
        return;
    assert_true(walk.n_open < MAX_OPEN);
    walk.open[walk.n_open++] = job;
    walk.sent[job]++;
    snprintf(walk.ids[job], sizeof(walk.ids[job]), "%s", id ? id : "");
}

static uint64_t
new_job(void)
{
    assert_true(walk.n_jobs + 1 < MAX_JOBS);
    return ++walk.n_jobs;
}

static const char *
any_id(char out[8])
{
    snprintf(out, 8, "s%u", below(9));
    return out;
}

/* Puts one row with one of the handler's commands. */
static void
send_step(void)
{
    static const char *const bodies[] = {
        "1",       "2",        "3",         "fail",      "end",          "chunks",
        "stop",    "grow 10",  "answer 50", "late end",  "answer 6000",  "forever 9",
        "rest 20", "rest 900", "stream 2",  "stream 40", "forever 6000", "4",
    };
    static const uint32_t flags[] = {
        CN_ROW_START, CN_ROW_END, CN_ROW_RELOAD, CN_ROW_MUST_EXIST, CN_ROW_ASK, CN_ROW_NUMBERED,
    };
    const char *body = bodies[below(sizeof(bodies) / sizeof(*bodies))];
    char id[8];

    if (one_in(8))
        put_row(new_job(), NULL, body, one_in(3) ? CN_ROW_DESCRIBE : 0, NULL);
    else
        put_row(new_job(), any_id(id), body,
                one_in(3) ? flags[below(sizeof(flags) / sizeof(*flags))] : 0, NULL);
}

/* Puts the last step of a sequence once more, as after the death of a worker. */
static void
send_again(void)
{
    char id[4];

    if (walk.last_job)
        put_row(walk.last_job, strcpy(id, walk.ids[walk.last_job]), "1", CN_ROW_REDELIVERED, NULL);
    walk.last_job = 0;
}

static void
send_move(void)
{
    static const enum cn_move_op ops[] = {CN_MOVE_LOOK, CN_MOVE_EXPORT, CN_MOVE_BURY,
                                          CN_MOVE_IMPORT, CN_MOVE_TOLD};
    struct cn_move move = {
        .op = (uint8_t)ops[below(5)],
        .version = CN_STR("2"),
        .runtime = CN_STR("fake"),
        .record = {walk.record, walk.record_bytes},
    };
    char id[8];

    if (move.op == CN_MOVE_BURY || move.op == CN_MOVE_TOLD)
        move.reason = CN_CLOSE_MOVED;
    put_row(new_job(), any_id(id), "1", 0, &move);
}

/* Puts a batch that the server has built: rows of different sequences and padding. If the worker
 * shall wait, the last row comes a turn later. */
static void
send_formed(void (*turn)(void))
{
    uint32_t first = below(5), n = 2 + below(3);
    char id[8];

    for (uint32_t i = 0; i < n; i++) {
        uint32_t joined = i + 1 < n ? CN_ROW_JOINED : 0;

        snprintf(id, sizeof(id), "s%u", first + i);
        if (i + 1 == n && one_in(2))
            turn();
        if (joined && one_in(3))
            put_row(0, NULL, "", joined | CN_ROW_PAD, NULL);
        else
            put_row(new_job(), id, "1", joined, NULL);
    }
}

static void
send_about_open_job(void)
{
    static const enum cn_stop_reason reasons[] = {CN_STOP_GONE, CN_STOP_ENDED, CN_STOP_CANCELLED};
    uint64_t job;

    if (walk.n_open == 0)
        return;
    job = walk.open[below(walk.n_open)];
    if (one_in(3))
        cn_frame_put_cancel(&walk.c->out, &(struct cn_cancel){job, reasons[below(3)]}, 1);
    else if (one_in(2))
        cn_stream_wake(&walk.worker, job);
    else
        cn_frame_put_credit(&walk.c->out, &(struct cn_credit){job, 1 + below(9)}, 1);
}

/* --- what comes back */

static void
take_answer(const struct cn_answer *answer)
{
    uint64_t job = answer->job_id;
    unsigned i = 0;

    while (i < walk.n_open && walk.open[i] != job)
        i++;
    assert_true(i < walk.n_open); /* no piece comes for a job that was answered */
    if (answer->flags & CN_ANSWER_HERE && answer->body.len && answer->error_code == 0 &&
        answer->body.len < sizeof(walk.record)) {
        memcpy(walk.record, answer->body.ptr, answer->body.len);
        walk.record_bytes = answer->body.len;
    }
    if (!(answer->flags & CN_ANSWER_FINAL))
        return;
    walk.open[i] = walk.open[--walk.n_open];
    walk.answered[job]++;
    assert_true(walk.answered[job] <= walk.sent[job]);
    if (answer->error_code == 0 && walk.ids[job][0])
        walk.last_job = job;
}

static void
read_answers(void)
{
    struct client *c = walk.c;
    struct cn_frame frame;
    struct cn_error err;
    ssize_t n;
    long used;

    do {
        n = recv(c->fd, cn_buf_reserve(&c->in, 1 << 20), 1 << 20, MSG_DONTWAIT);
        if (n > 0)
            c->in.len += (size_t)n;
    } while (n > 0);
    while (c->in.len && (used = cn_frame_next(c->in.data, c->in.len, 1 << 30, &frame, &err)) > 0) {
        struct cn_answer answer;

        if (frame.type == CN_FRAME_ANSWER) {
            assert_int_equal(cn_frame_get_answer(&frame, &c->arena, &answer, &err), 0);
            take_answer(&answer);
            cn_arena_fini(&c->arena);
        }
        cn_buf_consume(&c->in, (size_t)used);
    }
}

/* Between two turns a row waits, or it rests because it streams. */
static void
check_phases(void)
{
    struct cn_list *link;

    cn_list_for_each(link, &walk.worker.pending) {
        struct cn_pending *pending = cn_container_of(link, struct cn_pending, link);

        if (pending->row)
            assert_int_equal(pending->phase, CN_ROW_IS_WAITING);
    }
    cn_list_for_each(link, &walk.worker.streams.all) {
        struct cn_pending *pending = cn_container_of(link, struct cn_stream, all)->pending;

        assert_int_equal(pending->phase,
                         cn_list_linked(&pending->link) ? CN_ROW_IS_WAITING : CN_ROW_IS_RESTING);
    }
}

static int
take_turn(void)
{
    struct cn_error err;
    int rc;

    if (walk.c->out.len)
        client_send(walk.c);
    rc = cn_worker_turn(&walk.worker, 0, &err);
    if (rc < 0)
        fail_msg("the worker stops: %s", err.message);
    read_answers();
    check_phases();
    return rc;
}

static void
one_turn(void)
{
    assert_int_equal(take_turn(), 1);
}

/* --- the life of one worker */

static void
act(void)
{
    char id[8];

    switch (below(12)) {
    case 0:
        send_again();
        break;
    case 1:
        send_move();
        break;
    case 2:
        send_formed(one_turn);
        break;
    case 3:
        client_put_close(walk.c, any_id(id), 0, CN_CLOSE_DELETED);
        break;
    case 4:
        cn_clock_advance(below(one_in(9) ? 2000 : 50));
        break;
    case 5:
        fake.tiny = one_in(4); /* then states that were stored as tiny cannot be read */
        fake.out_of_memory_over = one_in(2) ? 4 : 0;
        break;
    case 6:
    case 7:
        send_about_open_job();
        break;
    default:
        send_step();
    }
}

static void
begin_life(void)
{
    struct client *c = walk.c;
    struct cn_error err;
    int fds[2];

    client_defaults(c);
    c->load.batch_size = 4;
    c->load.continuous = one_in(2);
    c->load.stream_bytes = one_in(2) ? 1 : 65536;
    c->load.stream_ms = one_in(2) ? 500 : 0;
    c->load.restart_expired = one_in(2);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    c->fd = fds[0];
    cn_buf_reset(&c->in);
    cn_frame_put_load(&c->out, &c->load);
    client_send(c);
    assert_int_equal(cn_worker_open(&walk.worker, fds[1], fake_find, NULL, &err), 0);
    read_answers();
}

/* Ends the worker: by STOP, after which it answers everything that it has received; or because the
 * server is gone; or at once, so that rows are dropped. */
static void
end_life(void)
{
    unsigned turns = 0;

    switch (below(3)) {
    case 0:
        cn_frame_put_stop(&walk.c->out);
        while (take_turn() == 1)
            assert_true(++turns < 1000);
        assert_int_equal(walk.n_open, 0);
        break;
    case 1:
        shutdown(walk.c->fd, SHUT_RDWR);
        cn_buf_reset(&walk.c->out);
        take_turn();
        break;
    default:
        break;
    }
    cn_worker_close(&walk.worker);
    close(walk.c->fd);
    cn_buf_reset(&walk.c->out);
    walk.n_open = 0;
    walk.last_job = 0;
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_states, 0);
}

static void
every_allowed_move_happens(void **state)
{
    unsigned missing = 0;

    cn_clock_freeze();
    memset(&walk, 0, sizeof(walk));
    walk.c = *state;
    for (uint32_t seed = 1; seed <= LIVES; seed++) {
        walk.random = seed * 2654435761u;
        begin_life();
        for (unsigned turn = 0; turn < TURNS; turn++) {
            for (uint32_t n = below(7); n > 0 && walk.n_open < MAX_OPEN - 5; n--)
                act();
            one_turn();
        }
        end_life();
    }
    for (unsigned from = 0; from < N_PHASES; from++)
        for (unsigned to = 0; to < N_PHASES; to++)
            if (!cn_phase_may_follow(cn_row_phases, from, to)) {
                assert_int_equal(walk.moves[from][to], 0);
            } else if (walk.moves[from][to] == 0) {
                print_error("no row went from %s to %s\n", cn_row_phases[from].name,
                            cn_row_phases[to].name);
                missing++;
            }
    assert_int_equal(missing, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allowed_move_happens, client_setup, client_teardown),
    };

    assert_int_equal(N_PHASES, CN_ROW_IS_DROPPED + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
