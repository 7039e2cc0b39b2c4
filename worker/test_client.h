/* worker/test_client.h - a worker with a handler made of C, and the server's end of its socket.
 *
 * The worker runs in a thread (the test then moves its clock) or in a process of its own (the test
 * then lets it die). The handler's commands, as a row's body:
 *   a number   adds it to the sum, which is the state, and answers the sum
 *   fail       adds 1000, then fails: the sum must stay as it was
 *   end        ends the sequence, answers the sum
 *   chunks     answers in three pieces "a" "b" "c" with a header
 *   grow N     the state takes N bytes more
 *   answer N   answers N bytes
 *   stream N   adds 1 and yields a piece, N times, then answers the sum; told to stop, answers why
 *   forever N  yields pieces of N bytes for ever, whatever it is told
 *   rest MS    yields nothing and rests, then answers
 *   late end   yields once, then answers and ends the sequence
 *   stop       ends the streams of its sequence
 */
#ifndef CN_WORKER_TEST_CLIENT_H
#define CN_WORKER_TEST_CLIENT_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/model/model_config.h"
#include "core/memory/mem.h"
#include "core/test_support.h"
#include "core/tuning/tuning.h"
#include "handlers/reply.h"
#include "handlers/runtime.h"
#include "proto/frame.h"
#include "store/disk_store.h"
#include "store/store.h"
#include "worker/worker.h"

/* --- the handler --- */

struct fake_state {
    int64_t sum;
    uint32_t extra;
};

/* Where a stream stands. */
struct fake_stream {
    int calls;
};

/* What the test may look at after an answer: the worker's thread writes before it answers. */
static struct {
    unsigned rows, batches, largest_batch, decoded, live_states;
    unsigned live_streams, dropped;
    unsigned out_of_memory_over; /* live states; 0: never */
    bool tiny;                   /* a stored state is one byte, and 0 again when it is read */
    struct cn_runtime *rt;       /* in a call */
    char last_run[16];           /* a letter a row: r, or p for padding */
    char closed[4096];           /* "id:reason:sum " each */
} fake;

static inline int
fake_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
          struct cn_error *err)
{
    static struct cn_runtime runtime;
    extern const struct cn_runtime_ops fake_ops;

    (void)config_json;
    if (strcmp(load->handler, "broken") == 0)
        return cn_fail(err, CN_E_LOAD_FAILED, "handler is broken, line 1");
    runtime.ops = &fake_ops;
    runtime.runs_rows_apart = strcmp(load->handler, "apart") == 0;
    *out = &runtime;
    return 0;
}

static inline void
fake_close(struct cn_runtime *rt)
{
    (void)rt;
}

static inline const char *
fake_describe(struct cn_runtime *rt)
{
    (void)rt;
    return "fake 1";
}

static inline uint32_t
fake_schema(struct cn_runtime *rt)
{
    (void)rt;
    return 1;
}

/* Fills the reply by hand, so that the worker gets what the runtimes would refuse. */
static inline void
fake_piece(struct cn_item *item, const char *text, size_t fill)
{
    item->reply.chunks = cn_alloc(sizeof(struct cn_chunk));
    item->reply.n_chunks = 1;
    cn_buf_puts(&item->reply.chunks[0].body, text);
    for (size_t i = 0; i < fill; i++)
        cn_buf_puts(&item->reply.chunks[0].body, "x");
}

/* Is it one of the commands that stream? */
static inline bool
fake_streams(struct cn_item *item, const char *text)
{
    static const char *const words[] = {"stream ", "forever ", "rest ", "late "};
    struct fake_stream *stream = item->resume;
    struct fake_state *state = item->state;
    int which = 0, n;

    while (which < 4 && strncmp(text, words[which], strlen(words[which])) != 0)
        which++;
    if (which == 4)
        return false;
    n = atoi(text + strlen(words[which]));
    if (!stream) {
        stream = item->resume = calloc(1, sizeof(*stream));
        fake.live_streams++;
    }
    stream->calls++;
    item->reply.more = true;
    if (which == 0 && item->stop == CN_STOP_NONE && stream->calls <= n) {
        char number[16];

        snprintf(number, sizeof(number), "%d", stream->calls);
        if (stream->calls == 1) {
            item->reply.status = 202;
            cn_buf_puts(&item->reply.content_type, "text/x-stream");
        }
        if (state)
            state->sum++;
        fake_piece(item, number, 0);
        return true;
    }
    if (which == 1) {
        fake_piece(item, "", (size_t)n);
        return true;
    }
    if (which == 2 && stream->calls == 1) {
        item->reply.rest_ms = (uint64_t)n;
        return true;
    }
    if (which == 3 && stream->calls == 1)
        return true;
    item->reply.more = false;
    item->reply.end_sequence = which == 3;
    free(stream);
    item->resume = NULL;
    fake.live_streams--;
    if (item->stop != CN_STOP_NONE)
        cn_buf_printf(&item->reply.body, "stopped %s", cn_stop_reason_word(item->stop));
    else
        cn_buf_printf(&item->reply.body, "sum %lld", state ? (long long)state->sum : -1);
    return true;
}

/* Sends n pieces within one call, with 0 until it is told to stop. */
static inline void
fake_speaks(struct cn_item *item, struct fake_state *state, int n)
{
    enum cn_stop_reason stop = CN_STOP_NONE;

    state->sum++;
    for (int i = 0; stop == CN_STOP_NONE && (n == 0 || i < n); i++) {
        cn_reply_add_chunk(&item->reply, n == 0 && i > 0 ? CN_STR("") : CN_STR("said"), NULL);
        stop = fake.rt->send(fake.rt->worker, item);
    }
    if (stop == CN_STOP_NONE)
        cn_buf_printf(&item->reply.body, "sum %lld", (long long)state->sum);
    else
        cn_buf_printf(&item->reply.body, "stopped %s", cn_stop_reason_word(stop));
}

static inline void
fake_drop(struct cn_runtime *rt, void *resume)
{
    (void)rt;
    free(resume);
    fake.live_streams--;
    fake.dropped++;
}

static inline void
fake_step(struct cn_item *item)
{
    struct cn_str body = item->row->n_parts ? item->row->parts[0].data : (struct cn_str){0};
    struct fake_state *state = item->state;
    char text[64] = "";

    if (body.len)
        memcpy(text, body.ptr, body.len < 63 ? body.len : 63);
    if (!(item->row->flags & CN_ROW_STATEFUL)) {
        if (!fake_streams(item, text))
            cn_buf_printf(&item->reply.body, "echo %s", text);
        return;
    }
    if (!state) {
        if (fake.out_of_memory_over && fake.live_states >= fake.out_of_memory_over) {
            cn_reply_fail(&item->reply, CN_E_OUT_OF_MEMORY, "over memory");
            return;
        }
        state = item->state = calloc(1, sizeof(*state));
        fake.live_states++;
    }
    if (fake_streams(item, text))
        return;
    if (strncmp(text, "speak ", 6) == 0) {
        fake_speaks(item, state, atoi(text + 6));
    } else if (strcmp(text, "stop") == 0) {
        item->reply.stop_streams = true;
        cn_buf_puts(&item->reply.body, "-1");
    } else if (strcmp(text, "fail") == 0) {
        state->sum += 1000;
        cn_reply_fail(&item->reply, CN_E_HANDLER_FAILED, "asked to");
    } else if (strcmp(text, "lost") == 0) {
        cn_reply_fail(&item->reply, CN_E_HANDLER_FAILED, "asked to");
        item->reply.close_reason = CN_CLOSE_WORKER_LOST;
    } else if (strncmp(text, "grow ", 5) == 0) {
        state->extra += (uint32_t)atoi(text + 5);
        cn_buf_puts(&item->reply.body, "grown");
    } else if (strncmp(text, "answer ", 7) == 0) {
        for (int i = atoi(text + 7); i > 0; i--)
            cn_buf_puts(&item->reply.body, "x");
    } else if (strcmp(text, "chunks") == 0) {
        item->reply.status = 201;
        item->reply.chunks = cn_alloc(2 * sizeof(struct cn_chunk));
        item->reply.n_chunks = 2;
        cn_buf_puts(&item->reply.chunks[0].body, "a");
        cn_buf_puts(&item->reply.chunks[1].body, "b");
        cn_buf_puts(&item->reply.body, "c");
        cn_buf_puts(&item->reply.content_type, "text/plain");
        cn_buf_append(&item->reply.headers, "\1\0X\2\0\0\0hi", 9);
        item->reply.n_headers = 1;
    } else {
        state->sum += atoll(text);
        item->reply.end_sequence = strcmp(text, "end") == 0;
        cn_buf_printf(&item->reply.body, "%lld", (long long)state->sum);
    }
}

static inline void
fake_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    fake.rt = rt;
    fake.batches++;
    fake.rows += n;
    if (n > fake.largest_batch)
        fake.largest_batch = n;
    memset(fake.last_run, 0, sizeof(fake.last_run));
    for (uint32_t i = 0; i < n; i++) {
        if (i < sizeof(fake.last_run) - 1)
            fake.last_run[i] = items[i]->row->flags & CN_ROW_PAD ? 'p' : 'r';
        fake_step(items[i]);
    }
}

static inline int
fake_encode(struct cn_runtime *rt, void *object, struct cn_buf *out, struct cn_error *err)
{
    struct fake_state *state = object;
    char *more;

    (void)rt, (void)err;
    if (fake.tiny) {
        cn_buf_append(out, "\x80", 1);
        return 0;
    }
    cn_buf_append(out, state, sizeof(*state));
    more = cn_buf_reserve(out, state->extra);
    if (more) {
        memset(more, 'x', state->extra);
        out->len += state->extra;
    }
    return 0;
}

static inline int
fake_decode(struct cn_runtime *rt, struct cn_str bytes, uint32_t schema, void **out,
            struct cn_error *err)
{
    (void)rt, (void)schema;
    if (fake.tiny) {
        *out = calloc(1, sizeof(struct fake_state));
        fake.decoded++;
        fake.live_states++;
        return 0;
    }
    if (bytes.len < sizeof(struct fake_state))
        return cn_fail(err, CN_E_INTERNAL, "state of %zu bytes", bytes.len);
    *out = malloc(sizeof(struct fake_state));
    memcpy(*out, bytes.ptr, sizeof(struct fake_state));
    fake.decoded++;
    fake.live_states++;
    return 0;
}

static inline void
fake_free(struct cn_runtime *rt, void *state)
{
    (void)rt;
    free(state);
    fake.live_states--;
}

static inline void
fake_on_close(struct cn_runtime *rt, struct cn_str id, void *state, enum cn_close_reason reason)
{
    size_t at = strlen(fake.closed);

    (void)rt;
    snprintf(fake.closed + at, sizeof(fake.closed) - at, "%.*s:%s:%lld ", CN_STR_ARG(id),
             cn_close_reason_word(reason),
             state ? (long long)((struct fake_state *)state)->sum : -1);
}

static inline void
fake_metadata(struct cn_runtime *rt, struct cn_item *item)
{
    (void)rt;
    cn_buf_puts(&item->reply.body, item->state ? "state" : "{\"fake\":1}");
}

const struct cn_runtime_ops fake_ops = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .describe = fake_describe,
    .state_schema = fake_schema,
    .run = fake_run,
    .drop = fake_drop,
    .state_encode = fake_encode,
    .state_decode = fake_decode,
    .state_free = fake_free,
    .metadata = fake_metadata,
    .on_close = fake_on_close,
};

static inline const struct cn_runtime_ops *
fake_find(const char *name)
{
    return strcmp(name, "fake") == 0 ? &fake_ops : NULL;
}

/* --- the server's end --- */

struct client {
    int fd, worker_fd;
    pthread_t thread;
    pid_t pid; /* 0: a thread */
    int exit_status;
    struct cn_buf out, in;
    struct cn_arena arena;
    struct cn_load load;
    const char *key; /* idempotency key of the rows that client_put makes; NULL: none */
    uint64_t number; /* their step number; 0: none */
    struct cn_body_memory *body_memory; /* the server's end; NULL: none */
    char dir[64];
};

struct got {
    int code;
    unsigned status, flags, pieces, n_headers;
    uint64_t job, generation, step, opened_wall_ms;
    char body[2048];
    size_t body_bytes; /* of the last piece */
    bool was_placed;   /* the last piece came through the body memory */
};

static inline void *
client_thread(void *arg)
{
    struct client *c = arg;

    c->exit_status = cn_worker_run(c->worker_fd, fake_find, NULL);
    return NULL;
}

static inline void
client_send(struct client *c)
{
    ssize_t sent;

    assert_false(c->out.failed);
    sent = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);
    /* A worker that is dead already is noticed by the next read. */
    assert_true(sent == (ssize_t)c->out.len ||
                (sent < 0 && (errno == EPIPE || errno == ECONNRESET)));
    cn_buf_reset(&c->out);
}

/* Returns the next frame other than STATS; 0 at the end. */
static inline int
client_next(struct client *c, struct cn_frame *frame)
{
    static char taken[1 << 22];
    struct cn_error err;
    long used;

    for (;;) {
        while ((used = cn_frame_next(c->in.data ? c->in.data : "", c->in.len, 1 << 30, frame,
                                     &err)) == 0) {
            char *room = cn_buf_reserve(&c->in, 65536);
            ssize_t n = recv(c->fd, room, 65536, 0);

            if (n <= 0)
                return 0;
            c->in.len += (size_t)n;
        }
        assert_true(used > 0 && (size_t)used <= sizeof(taken));
        memcpy(taken, c->in.data, (size_t)used); /* the frame stays valid until the next call */
        frame->payload.ptr = taken + CN_FRAME_HEADER_BYTES;
        cn_buf_consume(&c->in, (size_t)used);
        if (frame->type != CN_FRAME_STATS && frame->type != CN_FRAME_REPORT)
            return 1;
    }
}

static inline void
client_defaults(struct client *c)
{
    c->load = (struct cn_load){
        .model_name = "m",
        .model_version = "1",
        .model_dir = "/tmp",
        .handler = "h",
        .config_file = "",
        .runtime = "fake",
        .store_dir = c->dir,
        .worker_index = 1,
        .batch_size = 8,
        .stateful = 1,
        .durability = CN_DURABILITY_PROCESS,
        .cache_entries = 100,
        .cache_bytes = 1 << 20,
        .state_max_bytes = 100000,
        .answer_keep_bytes = 100,
        .answer_max_bytes = 5000,
        .store_max_bytes = 64 << 20,
        .journal_max_bytes = 1 << 20,
        .journal = 1,
        .tuning = cn_tuning_bits,
        .check_max_bytes = UINT64_MAX,
        .idle_ms = 1000,
        .lifetime_ms = 10000,
        .tombstone_ms = 60000,
        .key_window = 4,
        .stream_bytes = 65536,
    };
}

/* Starts a worker and reads its LOADED frame. Returns the error code in that frame. */
static inline int
client_start(struct client *c, bool process)
{
    struct cn_loaded loaded;
    struct cn_frame frame;
    struct cn_error err;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    c->fd = fds[0];
    c->worker_fd = fds[1];
    c->pid = 0;
    cn_buf_reset(&c->in);
    if (!process) {
        assert_int_equal(pthread_create(&c->thread, NULL, client_thread, c), 0);
    } else if ((c->pid = fork()) == 0) {
        close(fds[0]);
        _exit(cn_worker_run(fds[1], fake_find, NULL));
    } else {
        close(fds[1]);
    }
    cn_frame_put_load(&c->out, &c->load);
    client_send(c);
    if (!client_next(c, &frame))
        return -1;
    assert_int_equal(frame.type, CN_FRAME_LOADED);
    assert_int_equal(cn_frame_get_loaded(&frame, &loaded, &err), 0);
    return loaded.error_code;
}

/* Tells the worker to stop. Returns its exit status. */
static inline int
client_stop(struct client *c)
{
    int status;

    cn_frame_put_stop(&c->out);
    send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);
    cn_buf_reset(&c->out);
    if (c->pid) {
        waitpid(c->pid, &status, 0);
        c->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    } else {
        pthread_join(c->thread, NULL);
    }
    close(c->fd);
    return c->exit_status;
}

static inline struct cn_row
row_of(uint64_t job, const char *id, const char *body, uint32_t flags, struct cn_part *part)
{
    *part = (struct cn_part){CN_STR("body"), {NULL, 0}, cn_str_from(body)};
    return (struct cn_row){
        .job_id = job,
        .flags = flags | (id ? CN_ROW_STATEFUL : 0),
        .sequence_id = cn_str_from(id),
        .n_parts = 1,
        .parts = part,
    };
}

/* Adds a BATCH of one row to what client_send sends. */
static inline void
client_put(struct client *c, uint64_t job, const char *id, const char *body, uint32_t flags,
           uint64_t generation)
{
    size_t begun = cn_frame_begin_batch(&c->out);
    struct cn_part part;
    struct cn_row row = row_of(job, id, body, flags, &part);

    row.generation = generation;
    row.idempotency_key = cn_str_from(c->key);
    row.step = c->number;
    row.flags |= c->number ? CN_ROW_NUMBERED : 0u;
    cn_frame_put_row(&c->out, &row);
    cn_frame_end_batch(&c->out, begun, 1);
}

/* Reads the whole answer of the next job that is answered, with its pieces joined by '|'. Returns
 * false when the socket has ended. */
static inline bool
client_get(struct client *c, struct got *got)
{
    struct cn_answer answer;
    struct cn_frame frame;
    struct cn_error err;
    size_t at = 0;

    memset(got, 0, sizeof(*got));
    do {
        if (!client_next(c, &frame))
            return false;
        assert_int_equal(frame.type, CN_FRAME_ANSWER);
        frame.body_memory = c->body_memory;
        assert_int_equal(cn_frame_get_answer(&frame, &c->arena, &answer, &err), 0);
        at += (size_t)snprintf(got->body + at, sizeof(got->body) - at, "%s%.*s",
                               got->pieces ? "|" : "",
                               (int)(answer.body.len < 1500 ? answer.body.len : 1500),
                               answer.body.ptr ? answer.body.ptr : "");
        got->pieces++;
        got->body_bytes = answer.body.len;
        got->was_placed = cn_body_memory_has(c->body_memory, answer.body.ptr);
        if (got->was_placed)
            cn_body_memory_release(c->body_memory, answer.body.ptr);
    } while (!(answer.flags & CN_ANSWER_FINAL));
    got->code = answer.error_code;
    got->status = answer.status;
    got->flags = answer.flags & ~(unsigned)CN_ANSWER_FINAL;
    got->job = answer.job_id;
    got->generation = answer.generation;
    got->step = answer.step;
    got->opened_wall_ms = answer.opened_wall_ms;
    got->n_headers = answer.n_headers;
    cn_arena_fini(&c->arena);
    return true;
}

static inline struct got
client_step(struct client *c, uint64_t job, const char *id, const char *body, uint32_t flags,
            uint64_t generation)
{
    struct got got;

    client_put(c, job, id, body, flags, generation);
    client_send(c);
    assert_true(client_get(c, &got));
    assert_int_equal(got.job, job);
    return got;
}

static inline void
client_put_close(struct client *c, const char *id, uint64_t generation, enum cn_close_reason reason)
{
    cn_frame_put_close(&c->out, &(struct cn_close){cn_str_from(id), generation, reason}, 1);
}

static inline uint32_t
client_get_closed(struct client *c)
{
    struct cn_frame frame;

    assert_int_equal(client_next(c, &frame), 1);
    assert_int_equal(frame.type, CN_FRAME_CLOSED);
    return frame.count;
}

static inline int
client_setup(void **state)
{
    struct client *c = calloc(1, sizeof(*c));

    memset(&fake, 0, sizeof(fake));
    test_dir_make(c->dir);
    cn_buf_init(&c->out, 0);
    cn_buf_init(&c->in, 0);
    cn_arena_init(&c->arena);
    client_defaults(c);
    *state = c;
    return 0;
}

static inline int
client_teardown(void **state)
{
    struct client *c = *state;

    test_dir_remove(c->dir);
    cn_buf_fini(&c->out);
    cn_buf_fini(&c->in);
    cn_arena_fini(&c->arena);
    free(c);
    return 0;
}

#endif
