/* scheduler/workers/worker_faults_test.c - tests what becomes of a link and its jobs when a worker
 * breaks a rule, dies, or is given up by its owner. */
#include "scheduler/workers/worker_link.h"

#include "scheduler/test_support.h"

static void
sends_answer_of_unknown_job(struct fake *fake)
{
    const struct cn_answer answer = {.job_id = 42, .flags = CN_ANSWER_FINAL};

    fake_send(fake, &answer);
}

static void
sends_answer_twice(struct fake *fake)
{
    struct cn_answer answer;

    fake_read(fake);
    answer = answer_to(&fake->rows[0]);
    fake_send(fake, &answer);
    fake_send(fake, &answer);
}

static void
sends_server_frame(struct fake *fake)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_frame_put_stop(&buf);
    fake_write(fake, &buf);
}

static void
sends_too_much(struct fake *fake)
{
    fake_put(fake, "\xff\xff\xff\x7f\x42\x01\0\0\0\0\0\0", 12);
}

static void
sends_other_version(struct fake *fake)
{
    fake_put(fake, "\0\0\0\0\x44\x02\0\0\0\0\0\0", 12);
}

static void
sends_cut_answer(struct fake *fake)
{
    fake_put(fake, "\x02\0\0\0\x42\x01\0\0\0\0\0\0xy", 14);
}

static void
sends_closed_with_payload(struct fake *fake)
{
    fake_put(fake, "\x02\0\0\0\x44\x01\0\0\0\0\0\0xy", 14);
}

static void
closes_what_lives(struct fake *fake)
{
    fake_closed(fake, 1);
}

static void
ends(struct fake *fake)
{
    assert_int_equal(shutdown(fake->fd, SHUT_WR), 0);
}

static void
stops_reading(struct fake *fake)
{
    assert_int_equal(shutdown(fake->fd, SHUT_RDWR), 0);
}

/* A worker that breaks a rule loses its connection, once and with a reason. Its jobs are kept. */
static void
broken_rules_lose_the_link(void **state)
{
    static const struct {
        void (*fn)(struct fake *fake);
        const char *why;
    } cases[] = {
        {sends_answer_of_unknown_job, "ANSWER for job 42, which is not in flight there"},
        {sends_answer_twice, "which is not in flight there"},
        {sends_server_frame, "which only the server sends"},
        {sends_too_much, "exceeds the limit of 1048576 bytes"},
        {sends_other_version, "frame of version 2, expected 1"},
        {sends_cut_answer, "malformed"},
        {sends_closed_with_payload, "malformed CLOSED frame"},
        {closes_what_lives, "CLOSED for 1 sequences, but 0 were to be closed"},
        {ends, "closed its end of the socket"},
        {stops_reading, "closed its end of the socket"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig *rig = rig_create(NULL);
        struct fake *bad = fake_attach(rig), *good;
        struct client a, b;

        client_send(rig, &a, "s", "1", 0);
        client_send(rig, &b, "s", "2", 0);
        settle(rig);
        cases[i].fn(bad);
        settle(rig);
        assert_int_equal(bad->lost, 1);
        if (!strstr(bad->why, cases[i].why))
            fail_msg("got: %s", bad->why);
        settle(rig);
        assert_int_equal(bad->lost, 1);
        fake_die(bad, false, bad->why);
        good = fake_attach(rig);
        settle(rig);
        answer_all(rig, good);
        assert_int_equal(a.finals + b.finals, 2);
        assert_int_equal(a.error + b.error, 0);
        rig_destroy(rig);
    }
}

/* Answers that a worker sent before it died count, even if the server notices the death by a write.
 */
static void
answers_of_the_dead_are_read(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client a, b;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &a, "s", "1", 0);
    settle(rig);
    fake_read(fake);
    client_send(rig, &b, "t", "1", 0);
    answer = answer_to(&fake->rows[0]);
    fake_send(fake, &answer);
    assert_int_equal(shutdown(fake->fd, SHUT_RD), 0); /* writing to it fails before reading does */
    close(fake->fd);
    fake->fd = -1;
    settle(rig);
    assert_int_equal(a.finals, 1);
    assert_int_equal(a.error, 0);
    assert_int_equal(b.finals, 0);
    assert_int_equal(fake->lost, 1);
    rig_destroy(rig);
}

/* A worker that closes only its reading half is found by the next write. */
static void
reader_gone_is_found_by_writing(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    assert_int_equal(shutdown(fake->fd, SHUT_RD), 0);
    client_send(rig, &client, "s", "1", 0);
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_string_equal(fake->why, "worker 1 no longer reads");
    assert_int_equal(client.finals, 0);
    rig_destroy(rig);
}

#define TALK_BYTES (32u * 1024 * 1024)

static struct cn_buf talk_frames;
static size_t talk_bytes;

/* Fills the socket with statistics. Called for each that was read, so there are always more. */
static void
talk(struct fake *fake)
{
    while (talk_bytes < TALK_BYTES) {
        size_t at = talk_bytes % talk_frames.len;
        ssize_t n = send(fake->fd, talk_frames.data + at, talk_frames.len - at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return;
        talk_bytes += (size_t)n;
    }
}

/* A worker that no longer reads, but sends without a pause, does not keep the loop. */
static void
talker_that_does_not_read_is_lost(void **state)
{
    const struct cn_worker_stats stats = {.rows = 1};
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig);
    struct client client;

    (void)state;
    cn_buf_init(&talk_frames, 0);
    while (talk_frames.len < 256u * 1024)
        cn_frame_put_stats(&talk_frames, &stats);
    talk_bytes = 0;
    assert_int_equal(shutdown(fake->fd, SHUT_RD), 0);
    client_send(rig, &client, "s", "1", 0);
    talk(fake);
    fake->on_stats = talk;
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_true(talk_bytes < TALK_BYTES);
    assert_int_equal(client.finals, 0);
    fake_die(fake, false, NULL);
    rig_destroy(rig);
    cn_buf_fini(&talk_frames);
}

/* Nothing was sent, so an answer is an error. */
static void
answer_before_attach_loses_the_link(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_add(rig);

    (void)state;
    sends_answer_of_unknown_job(fake);
    settle(rig);
    assert_int_equal(fake->lost, 1);
    assert_non_null(strstr(fake->why, "ANSWER before any row was sent"));
    rig_destroy(rig);
}

/* After a detach the owner destroys the link. Bytes that still come are neither used nor reported
 * as an error. */
static void
answers_after_detach_are_dropped(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct fake *fake = fake_attach(rig), *other;
    struct client client;
    struct cn_answer answer;

    (void)state;
    client_send(rig, &client, "s", "1", 0);
    settle(rig);
    fake_read(fake);
    cn_model_queue_detach(rig->queue, fake->link, true, NULL);
    assert_int_equal(client.error, CN_E_HANDLER_DEADLINE);
    answer = answer_to(&fake->rows[0]);
    fake_send(fake, &answer);
    settle(rig);
    assert_int_equal(fake->lost, 0);
    other = fake_attach(rig);
    client_send(rig, &client, "s", "2", 0);
    settle(rig);
    assert_int_equal(answer_all(rig, other), 1);
    rig_destroy(rig);
}

static void
destroys_on_loaded(void *owner, const struct cn_loaded *loaded)
{
    struct fake *fake = owner;

    (void)loaded;
    fake->loaded++;
    cn_worker_link_destroy(fake->link);
    fake->link = NULL;
}

static void
destroys_on_lost(void *owner, const char *why)
{
    struct fake *fake = owner;

    fake_lost(owner, why);
    cn_worker_link_destroy(fake->link);
    fake->link = NULL;
}

/* The owner may destroy the link from its callbacks, whatever the buffer still holds. */
static void
link_may_be_destroyed_in_callbacks(void **state)
{
    static const struct cn_worker_link_ops ops = {destroys_on_loaded, fake_stats, destroys_on_lost,
                                                  fake_overdue,       NULL,       NULL};
    const struct cn_loaded loaded = {.error_code = CN_E_LOAD_FAILED, .message = CN_STR("no")};
    struct rig *rig = rig_create(NULL);
    struct fake *first = fake_add(rig), *second = fake_add(rig);
    struct cn_buf buf;

    (void)state;
    first->link->ops = second->link->ops = &ops;
    cn_buf_init(&buf, 0);
    cn_frame_put_loaded(&buf, &loaded);
    cn_frame_put_loaded(&buf, &loaded);
    fake_write(first, &buf);
    close(second->fd);
    second->fd = -1;
    settle(rig);
    assert_int_equal(first->loaded, 1);
    assert_int_equal(first->lost, 0);
    assert_int_equal(second->lost, 1);
    rig_destroy(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_rules_lose_the_link),
        cmocka_unit_test(answers_of_the_dead_are_read),
        cmocka_unit_test(reader_gone_is_found_by_writing),
        cmocka_unit_test(talker_that_does_not_read_is_lost),
        cmocka_unit_test(answer_before_attach_loses_the_link),
        cmocka_unit_test(answers_after_detach_are_dropped),
        cmocka_unit_test(link_may_be_destroyed_in_callbacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
