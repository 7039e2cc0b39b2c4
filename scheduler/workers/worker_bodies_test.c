/* scheduler/workers/worker_bodies_test.c - large bodies through memory that a worker shares with
 * the server. */
#include <fcntl.h>
#include <sys/stat.h>

#include "core/memory/mem.h"
#include "scheduler/test_support.h"

#define HALF (1u << 20)
#define LARGE 300000

static void
config_shared(struct cn_model_config *config)
{
    config->sequence_batching = false;
    config->batch_size = 8;
    config->body_memory_bytes = HALF;
}

/* A client with a large body. */
struct sender {
    struct client client;
    char *body;
};

static void
send_large(struct rig *rig, struct sender *sender, char c)
{
    sender->body = cn_alloc(LARGE);
    memset(sender->body, c, LARGE);
    client_prepare(&sender->client, rig->loop, "", "", 0);
    sender->client.part.data = (struct cn_str){sender->body, LARGE};
    cn_model_queue_submit(rig->queue, &sender->client.job);
    settle(rig);
}

/* Reads what has come at the worker's end into `in`. Returns the descriptor that came with it; -1:
 * none. */
static int
receive(struct fake *fake)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec bytes;
    struct msghdr message;
    int fd = -1;
    ssize_t n;

    do {
        bytes = (struct iovec){cn_buf_reserve(&fake->in, LARGE), LARGE};
        message = (struct msghdr){.msg_iov = &bytes,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes)};
        n = recvmsg(fake->fd, &message, MSG_DONTWAIT);
        fake->in.len += n > 0 ? (size_t)n : 0;
        if (n > 0 && CMSG_FIRSTHDR(&message))
            memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    } while (n > 0);
    return fd;
}

/* Takes the next frame out of what came. */
static struct cn_frame
next_frame(struct fake *fake, size_t *at, struct cn_body_memory *memory)
{
    struct cn_frame frame;
    long size = cn_frame_next(fake->in.data + *at, fake->in.len - *at, 10 * LARGE, &frame, NULL);

    assert_true(size > 0);
    *at += (size_t)size;
    frame.body_memory = memory;
    return frame;
}

/* Reads the MEMORY frame and opens the worker's end. */
static struct cn_body_memory *
open_memory(struct fake *fake, size_t *at)
{
    struct cn_body_memory *memory;
    struct cn_memory_order order;
    struct cn_frame frame;
    struct cn_error err;
    int fd = receive(fake);

    assert_true(fd >= 0);
    frame = next_frame(fake, at, NULL);
    assert_int_equal(frame.type, CN_FRAME_MEMORY);
    assert_int_equal(cn_frame_get_memory(&frame, &order, &err), 0);
    assert_int_equal(order.half_bytes, HALF);
    assert_int_equal(cn_body_memory_open(fd, order.half_bytes, &memory, &err), 0);
    return memory;
}

/* Checks the only row of the next BATCH. Returns its job; `release`: its body is read. */
static uint64_t
check_row(struct fake *fake, size_t *at, struct cn_body_memory *memory, char c, bool is_shared,
          bool release)
{
    struct cn_frame frame = next_frame(fake, at, memory);
    struct cn_arena arena;
    struct cn_row *rows;
    struct cn_str data;
    uint64_t job;

    cn_arena_init(&arena);
    assert_int_equal(frame.type, CN_FRAME_BATCH);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    data = rows[0].parts[0].data;
    assert_int_equal(data.len, LARGE);
    for (size_t i = 0; i < data.len; i++)
        if (data.ptr[i] != c)
            fail_msg("byte %zu is %d", i, data.ptr[i]);
    assert_int_equal(cn_body_memory_has(memory, data.ptr), is_shared);
    if (release)
        cn_body_memory_release(memory, data.ptr);
    job = rows[0].job_id;
    cn_arena_fini(&arena);
    return job;
}

/* Answers with LARGE times `c`, through the body memory if there is a place. */
static void
answer_large(struct rig *rig, struct fake *fake, struct cn_body_memory *memory, uint64_t job,
             char c, bool is_shared)
{
    struct cn_answer answer = {.job_id = job, .flags = CN_ANSWER_FINAL};
    char *body = cn_alloc(LARGE);
    struct cn_buf buf;

    memset(body, c, LARGE);
    answer.body = (struct cn_str){body, LARGE};
    cn_buf_init(&buf, 0);
    cn_frame_lend_answer(&buf, NULL, memory, &answer);
    assert_int_equal(buf.len < LARGE, is_shared);
    cn_free(body);
    for (size_t sent = 0; sent < buf.len;) {
        ssize_t n = send(fake->fd, buf.data + sent, buf.len - sent, MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        cn_loop_turn(rig->loop, 0);
    }
    cn_buf_fini(&buf);
    settle(rig);
}

static void
assert_answered(const struct sender *sender, char c)
{
    const char all[] = {c, '\0'};

    assert_int_equal(sender->client.finals, 1);
    assert_int_equal(sender->client.error, 0);
    assert_int_equal(strspn(sender->client.text, all), sizeof(sender->client.text) - 1);
    assert_true(sender->client.was_read_there);
}

static void
large_bodies_go_through_shared_memory(void **state)
{
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory = NULL;
    struct sender senders[20];
    size_t at = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        send_large(rig, &senders[i], (char)('a' + i));
        assert_int_equal(senders[i].client.job.unsent, 0);
        if (memory)
            assert_int_equal(receive(fake), -1);
        else
            memory = open_memory(fake, &at);
        answer_large(rig, fake, memory, check_row(fake, &at, memory, (char)('a' + i), true, true),
                     (char)('A' + i), true);
        assert_answered(&senders[i], (char)('A' + i));
        cn_free(senders[i].body);
    }
    cn_body_memory_free(memory);
    rig_destroy(rig);
}

static void
a_body_without_a_place_goes_through_the_socket(void **state)
{
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory = NULL;
    struct sender senders[5];
    uint64_t jobs[5];
    size_t at = 0;

    (void)state;
    for (int i = 0; i < 5; i++) { /* there is room for three */
        send_large(rig, &senders[i], 'x');
        if (!memory)
            memory = open_memory(fake, &at);
        for (int turn = 0; turn < 20; turn++) {
            receive(fake);
            settle(rig);
        }
        jobs[i] = check_row(fake, &at, memory, 'x', i < 3, false);
    }
    for (int i = 0; i < 5; i++) {
        answer_large(rig, fake, i == 1 ? NULL : memory, jobs[i], 'y', i != 1);
        assert_answered(&senders[i], 'y');
        cn_free(senders[i].body);
    }
    cn_body_memory_free(memory);
    rig_destroy(rig);
}

/* The first large body is an answer: then it goes through the socket, and the next ones do not. */
static void
large_answers_get_memory_from_the_next_row_on(void **state)
{
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory;
    struct client small[2];
    struct sender answered[2] = {0};
    struct cn_frame frame;
    struct cn_arena arena;
    struct cn_row *rows;
    size_t at = 0;

    (void)state;
    client_send(rig, &small[0], "", "x", 0);
    settle(rig);
    fake_read(fake);
    answer_large(rig, fake, NULL, fake->rows[0].job_id, 'a', false);
    answered[0].client = small[0];
    assert_answered(&answered[0], 'a');
    cn_buf_reset(&fake->in);
    client_send(rig, &small[1], "", "y", 0);
    settle(rig);
    memory = open_memory(fake, &at);
    cn_arena_init(&arena);
    frame = next_frame(fake, &at, memory);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    answer_large(rig, fake, memory, rows[0].job_id, 'b', true);
    cn_arena_fini(&arena);
    answered[1].client = small[1];
    assert_answered(&answered[1], 'b');
    cn_body_memory_free(memory);
    rig_destroy(rig);
}

/* The first large body comes behind a small row, so it goes through the socket, which does not take
 * all of it. When the next large body comes, the buffer is empty, but the first body is not sent
 * yet: the message with the memory must not come into the middle of it. */
static void
memory_waits_until_a_body_is_sent(void **state)
{
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory;
    struct cn_arena arena;
    struct cn_frame frame;
    struct cn_row *rows;
    struct client small;
    struct sender senders[3];
    size_t at = 0;

    (void)state;
    client_send(rig, &small, "", "x", 0);
    send_large(rig, &senders[0], 'a');
    assert_int_equal(senders[0].client.job.unsent, 1);
    assert_int_equal(fake->link->out.len, 0);
    /* Now the socket takes a message again, but not enough to tell the loop so. */
    fake->in.len += (size_t)recv(fake->fd, cn_buf_reserve(&fake->in, LARGE), 100000, 0);
    send_large(rig, &senders[1], 'b');
    for (int turn = 0; turn < 20; turn++) {
        assert_int_equal(receive(fake), -1);
        settle(rig);
    }
    cn_arena_init(&arena);
    frame = next_frame(fake, &at, NULL);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    assert_int_equal(frame.count, 2);
    assert_int_equal(rows[1].parts[0].data.len, LARGE);
    for (size_t i = 0; i < LARGE; i++)
        if (rows[1].parts[0].data.ptr[i] != 'a')
            fail_msg("byte %zu is %d", i, rows[1].parts[0].data.ptr[i]);
    cn_arena_fini(&arena);
    check_row(fake, &at, NULL, 'b', false, false);
    send_large(rig, &senders[2], 'c');
    memory = open_memory(fake, &at);
    check_row(fake, &at, memory, 'c', true, true);
    cn_body_memory_free(memory);
    rig_destroy(rig);
    for (int i = 0; i < 3; i++)
        cn_free(senders[i].body);
}

/* A worker that is busy has a full socket when the first large body comes. The memory is made with
 * a later one. */
static void
a_full_socket_takes_the_memory_later(void **state)
{
    static const char filler[4096];
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory;
    struct sender senders[2];
    size_t at = 0;
    ssize_t n;

    (void)state;
    do {
        n = send(fake->link->fd, filler, sizeof(filler), MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    send_large(rig, &senders[0], 'a');
    for (int turn = 0; turn < 20; turn++) {
        assert_int_equal(receive(fake), -1);
        settle(rig);
    }
    check_row(fake, &at, NULL, 'a', false, false);
    send_large(rig, &senders[1], 'b');
    memory = open_memory(fake, &at);
    check_row(fake, &at, memory, 'b', true, true);
    cn_body_memory_free(memory);
    rig_destroy(rig);
    for (int i = 0; i < 2; i++)
        cn_free(senders[i].body);
}

/* Sends an answer that says its body is at `place`. The link must be lost. */
static void
lie(struct cn_body_place place)
{
    struct rig *rig = rig_create(config_shared);
    struct fake *fake = fake_attach(rig);
    struct cn_body_memory *memory;
    struct sender sender;
    struct cn_answer answer = {.flags = CN_ANSWER_FINAL};
    struct cn_buf buf;
    size_t at = 0;

    send_large(rig, &sender, 'x');
    memory = open_memory(fake, &at);
    answer.job_id = check_row(fake, &at, memory, 'x', true, true);
    cn_buf_init(&buf, 0);
    cn_frame_put_answer(&buf, &answer);
    buf.len -= 4; /* the empty body */
    cn_write_u32(&buf, UINT32_MAX);
    cn_write_u32(&buf, place.slot);
    cn_write_u32(&buf, place.number);
    cn_write_u64(&buf, place.at);
    cn_write_u32(&buf, place.bytes);
    cn_patch_u32(&buf, 0, (uint32_t)(buf.len - CN_FRAME_HEADER_BYTES));
    assert_int_equal(send(fake->fd, buf.data, buf.len, 0), buf.len);
    cn_buf_fini(&buf);
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "broke the protocol"));
    cn_body_memory_free(memory);
    rig_destroy(rig);
    cn_free(sender.body);
}

static void
a_worker_that_lies_about_a_place_is_lost(void **state)
{
    (void)state;
    lie((struct cn_body_place){CN_BODY_SLOTS, 1, 0, 100});
    lie((struct cn_body_place){0, 0, 0, 100});
    lie((struct cn_body_place){0, 1, HALF, 100});
    lie((struct cn_body_place){0, 1, UINT64_MAX, 100});
    lie((struct cn_body_place){0, 1, 0, UINT32_MAX});
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_bodies_go_through_shared_memory),
        cmocka_unit_test(a_body_without_a_place_goes_through_the_socket),
        cmocka_unit_test(large_answers_get_memory_from_the_next_row_on),
        cmocka_unit_test(memory_waits_until_a_body_is_sent),
        cmocka_unit_test(a_full_socket_takes_the_memory_later),
        cmocka_unit_test(a_worker_that_lies_about_a_place_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
