/* scheduler/workers/worker_link_test.c - tests frames that arrive in pieces, full sockets, and
 * large bodies. */
#include "scheduler/workers/worker_link.h"

#include <stdlib.h>

#include "scheduler/test_support.h"

/* LOAD is sent, and LOADED and STATS reach the owner, even byte by byte. */
static void
frames_may_come_in_pieces(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fake = fake_add(rig);
    struct cn_load load = {.model_name = "m",
                           .model_version = "1",
                           .model_dir = "/",
                           .handler = "",
                           .config_file = "",
                           .runtime = "lua",
                           .store_dir = "",
                           .worker_index = 1};
    const struct cn_loaded loaded = {.message = CN_STR("Lua 5.4")};
    const struct cn_worker_stats stats = {.rows = 3};
    struct cn_buf buf;
    size_t i;

    (void)state;
    cn_worker_link_send_load(fake->link, &load);
    settle(rig);
    cn_buf_init(&buf, 0);
    cn_frame_put_load(&buf, &load);
    i = buf.len;
    assert_int_equal(recv(fake->fd, cn_buf_reserve(&buf, 4096), 4096, 0), (ssize_t)i);
    cn_buf_reset(&buf);
    cn_frame_put_loaded(&buf, &loaded);
    cn_frame_put_stats(&buf, &stats);
    for (i = 0; i < buf.len; i++) {
        assert_int_equal(fake->stats, 0);
        fake_put(fake, buf.data + i, 1);
        settle(rig);
    }
    assert_int_equal(fake->loaded, 1);
    assert_int_equal(fake->stats, 1);
    cn_buf_reset(&buf);
    cn_frame_put_loaded(&buf, &loaded);
    fake_write(fake, &buf);
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "second LOADED"));
    rig_destroy(rig);
}

/* A worker that reads slowly gets all bytes in the end, and the loop never waits for it. */
static void
slow_reader_gets_all(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fake = fake_attach(rig);
    struct client client;
    size_t len = 3u << 20, got = 0;
    char *body = cn_alloc(len), *bytes = cn_alloc(len + 4096);
    struct cn_frame frame;
    struct cn_arena arena;
    struct cn_row *rows;

    (void)state;
    memset(body, 'b', len);
    client_prepare(&client, rig->loop, "", "", 0);
    client.part.data = (struct cn_str){body, len};
    cn_model_queue_submit(rig->queue, &client.job);
    settle(rig);
    assert_true(cn_borrowed_output_pending(&fake->link->borrowed)); /* more than fits */
    assert_true(fake->link->out.cap < 4096);                        /* and they were not copied */
    assert_int_equal(client.job.unsent, 1);
    while (cn_frame_next(bytes, got, len + 4096, &frame, NULL) == 0) {
        ssize_t n = recv(fake->fd, bytes + got, 50000, 0);

        if (n > 0)
            got += (size_t)n;
        cn_loop_turn(rig->loop, 0);
    }
    cn_arena_init(&arena);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    assert_int_equal(rows[0].parts[0].data.len, len);
    assert_memory_equal(rows[0].parts[0].data.ptr, body, len);
    cn_arena_fini(&arena);
    assert_false(cn_borrowed_output_pending(&fake->link->borrowed));
    assert_int_equal(client.job.unsent, 0);
    assert_int_equal(fake->lost, 0);
    cn_free(body);
    cn_free(bytes);
    rig_destroy(rig);
}

/* An answer near the frame limit arrives whole, even through the smallest socket. */
static void
large_answer_arrives(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fake = fake_attach(rig);
    struct client client;
    struct cn_answer answer;
    struct cn_buf buf;
    size_t len = 1000000, sent = 0;
    char *body = cn_alloc(len);

    (void)state;
    memset(body, 'a', len);
    client_send(rig, &client, "", "x", 0);
    settle(rig);
    fake_read(fake);
    answer = answer_to(&fake->rows[0]);
    answer.body = (struct cn_str){body, len};
    cn_buf_init(&buf, 0);
    cn_frame_put_answer(&buf, &answer);
    while (sent < buf.len) {
        ssize_t n = send(fake->fd, buf.data + sent, buf.len - sent, MSG_DONTWAIT);

        if (n > 0)
            sent += (size_t)n;
        cn_loop_turn(rig->loop, 0);
    }
    settle(rig);
    assert_int_equal(client.finals, 1);
    assert_int_equal(strlen(client.text), sizeof(client.text) - 1);
    assert_int_equal(strspn(client.text, "a"), sizeof(client.text) - 1);
    assert_true(client.was_read_there); /* it was not copied */
    cn_buf_fini(&buf);
    cn_free(body);
    rig_destroy(rig);
}

/* If several large answers come at once, each has all of its bytes, and the frames behind them are
 * read. */
static void
large_answers_in_a_row_are_told_apart(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fake = fake_attach(rig);
    struct client clients[2];
    struct cn_answer answer;
    struct cn_buf buf;
    size_t len = 300000, sent = 0;
    char *body = cn_alloc(len);

    (void)state;
    for (int i = 0; i < 2; i++)
        client_send(rig, &clients[i], "", "x", 0);
    settle(rig);
    fake_read(fake);
    cn_buf_init(&buf, 0);
    for (int i = 0; i < 2; i++) {
        answer = answer_to(&fake->rows[i]);
        memset(body, 'a' + i, len);
        answer.body = (struct cn_str){body, len};
        cn_frame_put_answer(&buf, &answer);
    }
    cn_frame_put_stats(&buf, &(struct cn_worker_stats){.batches = 1});
    while (sent < buf.len) {
        ssize_t n = send(fake->fd, buf.data + sent, buf.len - sent, MSG_DONTWAIT);

        if (n > 0)
            sent += (size_t)n;
        cn_loop_turn(rig->loop, 0);
    }
    settle(rig);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clients[i].finals, 1);
        assert_int_equal(strspn(clients[i].text, i ? "b" : "a"), sizeof(clients[i].text) - 1);
    }
    assert_int_equal(fake->stats, 1);
    assert_int_equal(fake->lost, 0);
    cn_buf_fini(&buf);
    cn_free(body);
    rig_destroy(rig);
}

/* When a worker is gone, the memory of its jobs is not read any more. A job is sent whole to the
 * next worker. */
static void
what_was_lent_goes_back_with_its_job(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *first = fake_attach(rig), *second;
    struct client client;
    size_t len = 3u << 20;
    char *body = cn_alloc(len);

    (void)state;
    memset(body, 'b', len);
    client_prepare(&client, rig->loop, "", "", 0);
    client.part.data = (struct cn_str){body, len};
    cn_model_queue_submit(rig->queue, &client.job);
    settle(rig);
    assert_int_equal(client.job.unsent, 1);
    cn_model_queue_detach(rig->queue, first->link, false, "it is to go");
    assert_int_equal(client.job.unsent, 0);
    client.part.data = CN_STR("small"); /* what the next worker gets */
    memset(body, 'c', len);
    cn_free(body);
    second = fake_attach(rig);
    fake_read(first); /* there is room again, but nothing left to write */
    settle(rig);
    assert_true(first->lost == 1 || !first->link->out.len);
    answer_all(rig, second);
    assert_string_equal(second->rows[0].body, "small");
    assert_int_equal(client.finals, 1);
    assert_int_equal(client.error, 0);
    rig_destroy(rig);
}

/* The receiver of that answer may free what is still to be sent. */
static void
an_answer_before_all_was_sent_loses_the_link(void **state)
{
    struct rig *rig = rig_create(config_stateless);
    struct fake *fake = fake_attach(rig);
    struct cn_answer answer = {.flags = CN_ANSWER_FINAL, .body = CN_STR("guessed")};
    struct client client;
    size_t len = 3u << 20;
    char *body = cn_alloc(len);

    (void)state;
    memset(body, 'b', len);
    client_prepare(&client, rig->loop, "", "", 0);
    client.part.data = (struct cn_str){body, len};
    cn_model_queue_submit(rig->queue, &client.job);
    settle(rig);
    answer.job_id = client.job.row.job_id;
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(client.finals, 0);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "which was not sent in full yet"));
    fake_die(fake, false, fake->why);
    fake = fake_attach(rig);
    client.part.data = CN_STR("small");
    settle(rig);
    answer_all(rig, fake);
    assert_int_equal(client.finals, 1);
    cn_free(body);
    rig_destroy(rig);
}

/* An answer box has its own copy of all headers and bytes. */
static void
box_has_its_own_bytes(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct cn_header headers[2] = {{CN_STR("a"), CN_STR("1")}, {CN_STR("bb"), CN_STR("")}};
    struct cn_answer answer = {.flags = CN_ANSWER_FINAL,
                               .status = 201,
                               .content_type = CN_STR("text/plain"),
                               .body = CN_STR("body"),
                               .n_headers = 2,
                               .headers = headers};
    struct client client;
    struct cn_answer_box *box;

    (void)state;
    client_send(rig, &client, "s", "x", 0);
    settle(rig);
    box = cn_answer_box_copy(&client.job, &answer, 2);
    memset(headers, 0, sizeof(headers));
    assert_int_equal(box->answer.status, 201);
    assert_true(cn_str_eq(box->answer.body, CN_STR("dy")));
    assert_true(cn_str_eq(box->answer.content_type, CN_STR("text/plain")));
    assert_true(cn_str_eq(box->answer.headers[0].value, CN_STR("1")));
    assert_true(cn_str_eq(box->answer.headers[1].name, CN_STR("bb")));
    assert_int_equal(box->answer.headers[1].value.len, 0);
    assert_true(cn_str_eq(box->sequence_id, CN_STR("s")));
    cn_answer_box_free(box);
    answer_all(rig, fake);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_may_come_in_pieces),
        cmocka_unit_test(slow_reader_gets_all),
        cmocka_unit_test(large_answer_arrives),
        cmocka_unit_test(large_answers_in_a_row_are_told_apart),
        cmocka_unit_test(what_was_lent_goes_back_with_its_job),
        cmocka_unit_test(an_answer_before_all_was_sent_loses_the_link),
        cmocka_unit_test(box_has_its_own_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
