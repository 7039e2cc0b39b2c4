/* worker/large_bodies_test.c - a worker gets and gives large bodies through the body memory. */
#include <fcntl.h>

#include "worker/test_client.h"

#define HALF (1u << 20)
#define LARGE 200000

/* Makes the memory, and sends a MEMORY frame that promises `half_bytes`, with or without the
 * descriptor. */
static void
send_memory(struct client *c, uint64_t half_bytes, bool with_fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iovlen = 1};
    struct iovec bytes;
    struct cn_buf frame;
    struct cn_error err;
    int fd;

    assert_int_equal(cn_body_memory_create(HALF, &c->body_memory, &fd, &err), 0);
    cn_buf_init(&frame, 0);
    cn_frame_put_memory(&frame, &(struct cn_memory_order){half_bytes});
    bytes = (struct iovec){frame.data, frame.len};
    message.msg_iov = &bytes;
    if (with_fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
    }
    assert_int_equal(sendmsg(c->fd, &message, 0), frame.len);
    cn_buf_fini(&frame);
    close(fd);
}

static void
forget_memory(struct client *c)
{
    cn_body_memory_free(c->body_memory);
    c->body_memory = NULL;
}

/* A number of LARGE bytes: a step's body. Freed by the caller. */
static char *
large_number(char digit)
{
    char *body = malloc(LARGE + 1);

    memset(body, ' ', LARGE);
    body[0] = digit;
    body[LARGE] = '\0';
    return body;
}

/* Sends a step whose body goes through the body memory, if it has a place there. */
static void
send_shared(struct client *c, uint64_t job, const char *body, bool is_shared)
{
    size_t begun = cn_frame_begin_batch(&c->out), before = c->out.len;
    struct cn_part part;
    struct cn_row row = row_of(job, "a", body, 0, &part);

    cn_frame_lend_row(&c->out, NULL, c->body_memory, NULL, &row);
    assert_int_equal(c->out.len - before < LARGE, is_shared);
    cn_frame_end_batch(&c->out, begun, 1);
    client_send(c);
}

static void
bodies_go_through_shared_memory_and_their_places_are_used_again(void **state)
{
    struct client *c = *state;
    char *body = large_number('2');
    struct got got;

    c->load.answer_max_bytes = HALF;
    assert_int_equal(client_start(c, false), 0);
    send_memory(c, HALF, true);
    /* Far more than the memory has room for, so each place is used many times. */
    for (uint64_t job = 1; job <= 50; job++) {
        send_shared(c, job, body, true);
        assert_true(client_get(c, &got));
        assert_int_equal(atoi(got.body), 2 * (int)job);
    }
    for (uint64_t job = 51; job <= 100; job++) {
        got = client_step(c, job, "a", "answer 300000", 0, 0);
        assert_true(got.was_placed);
        assert_int_equal(got.body_bytes, 300000);
    }
    assert_string_equal(client_step(c, 101, "a", "1", 0, 0).body, "101");
    assert_int_equal(client_stop(c), 0);
    forget_memory(c);
    free(body);
}

static void
what_has_no_place_goes_through_the_socket(void **state)
{
    struct client *c = *state;
    char *body = large_number('3');
    struct cn_body_place place[5];
    struct got got;

    c->load.answer_max_bytes = 4 * HALF;
    assert_int_equal(client_start(c, false), 0);
    send_memory(c, HALF, true);
    for (int i = 0; i < 5; i++) /* bodies that no row refers to: nobody frees their places */
        assert_true(cn_body_memory_put(c->body_memory, (struct cn_str){body, LARGE}, &place[i]));
    send_shared(c, 1, body, false);
    assert_true(client_get(c, &got));
    assert_string_equal(got.body, "3");
    got = client_step(c, 2, "a", "answer 1100000", 0, 0);
    assert_false(got.was_placed);
    assert_int_equal(got.body_bytes, 1100000);
    assert_int_equal(client_stop(c), 0);
    forget_memory(c);
    free(body);
}

/* A handler writes its output in the body memory, and its answer becomes an error. Then the place
 * is free again. */
static void
an_answer_that_is_dropped_leaves_no_place_behind(void **state)
{
    struct client *c = *state;
    struct got got;

    c->load.answer_max_bytes = HALF / 2;
    assert_int_equal(client_start(c, false), 0);
    send_memory(c, HALF, true);
    assert_string_equal(client_step(c, 1, "a", "1", 0, 0).body, "1");
    for (uint64_t job = 2; job <= 150; job += 2) {
        got = client_step(c, job, "a", "answer 600000", 0, 0);
        assert_int_equal(got.code, CN_E_HANDLER_FAILED);
        got = client_step(c, job + 1, "a", "answer 500000", 0, 0);
        assert_true(got.was_placed);
        assert_int_equal(got.body_bytes, 500000);
    }
    assert_int_equal(client_stop(c), 0);
    forget_memory(c);
}

/* Rows of a batch, of which some are in the body memory, keep their bodies until they have run. */
static void
rows_of_a_batch_keep_their_bodies(void **state)
{
    struct client *c = *state;
    char *bodies[5];
    struct got got;

    c->load.batch_size = 2;
    assert_int_equal(client_start(c, false), 0);
    send_memory(c, HALF, true);
    for (int i = 0; i < 5; i++) {
        bodies[i] = large_number((char)('1' + i));
        client_put(c, 2 * (uint64_t)i + 1, "b", "1", 0, 0);
        send_shared(c, 2 * (uint64_t)i + 2, bodies[i], true);
    }
    for (int i = 0; i < 10; i++)
        assert_true(client_get(c, &got));
    assert_string_equal(client_step(c, 11, "a", "0", 0, 0).body, "15");
    assert_int_equal(client_stop(c), 0);
    for (int i = 0; i < 5; i++)
        free(bodies[i]);
    forget_memory(c);
}

static void
wrong_memory_ends_the_worker(void **state)
{
    struct client *c = *state;
    struct got got;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_start(c, false), 0);
        send_memory(c, i == 1 ? 2 * HALF : HALF, i > 0);
        if (i == 2) {
            forget_memory(c);
            send_memory(c, HALF, true); /* a second one */
        }
        assert_false(client_get(c, &got));
        assert_int_equal(client_stop(c), 1);
        forget_memory(c);
    }
}

/* A row that says it is in the body memory, when there is none. */
static void
a_place_without_memory_ends_the_worker(void **state)
{
    struct client *c = *state;
    char *body = large_number('1');
    struct got got;
    int fd;

    assert_int_equal(client_start(c, false), 0);
    assert_int_equal(cn_body_memory_create(HALF, &c->body_memory, &fd, NULL), 0);
    close(fd);
    send_shared(c, 1, body, true);
    assert_false(client_get(c, &got));
    assert_int_equal(client_stop(c), 1);
    forget_memory(c);
    free(body);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            bodies_go_through_shared_memory_and_their_places_are_used_again, client_setup,
            client_teardown),
        cmocka_unit_test_setup_teardown(what_has_no_place_goes_through_the_socket, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(an_answer_that_is_dropped_leaves_no_place_behind,
                                        client_setup, client_teardown),
        cmocka_unit_test_setup_teardown(rows_of_a_batch_keep_their_bodies, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(wrong_memory_ends_the_worker, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(a_place_without_memory_ends_the_worker, client_setup,
                                        client_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
