/* worker/sequence_queries_test.c - tests listing, reading and writing stored sequences between
 * steps. */
#include "worker/test_client.h"

#include "core/time/clock.h"
#include "proto/query.h"

/* Returns the next RESULT, which is valid until the next call. */
static struct cn_query_result
ask(struct client *c, struct cn_query query)
{
    static struct cn_arena arena;
    struct cn_query_result result;
    struct cn_frame frame;

    cn_arena_fini(&arena);
    if (query.max_bytes == 0)
        query.max_bytes = 1 << 20;
    cn_frame_put_query(&c->out, &query);
    client_send(c);
    assert_int_equal(client_next(c, &frame), 1);
    assert_int_equal(frame.type, CN_FRAME_RESULT);
    assert_int_equal(cn_frame_get_result(&frame, &arena, &result, NULL), 0);
    assert_int_equal(result.query_id, query.query_id);
    return result;
}

static struct cn_query_result
list(struct client *c, uint32_t flags, const char *after, const char *prefix, uint32_t limit)
{
    return ask(c, (struct cn_query){.op = CN_QUERY_LIST,
                                    .flags = flags,
                                    .limit = limit,
                                    .sequence_id = cn_str_from(after),
                                    .prefix = cn_str_from(prefix)});
}

static struct cn_query_result
look(struct client *c, const char *id, uint32_t flags)
{
    return ask(
        c, (struct cn_query){.op = CN_QUERY_READ, .flags = flags, .sequence_id = cn_str_from(id)});
}

static struct cn_query_result
put(struct client *c, const char *id, uint32_t flags, struct cn_str record)
{
    return ask(c, (struct cn_query){.query_id = 3,
                                    .op = CN_QUERY_WRITE,
                                    .flags = flags,
                                    .sequence_id = cn_str_from(id),
                                    .record = record});
}

/* Returns a copy of a sequence's record. */
static struct cn_str
take_record(struct client *c, const char *id)
{
    struct cn_query_result result = look(c, id, CN_QUERY_RECORD);
    char *copy;

    assert_int_equal(result.error_code, 0);
    copy = malloc(result.record.len);
    memcpy(copy, result.record.ptr, result.record.len);
    return (struct cn_str){copy, result.record.len};
}

static bool
ids_are(const struct cn_query_result *result, const char *wanted)
{
    char all[512] = "";

    for (uint32_t i = 0; i < result->n_sequences; i++)
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%.*s ",
                 CN_STR_ARG(result->sequences[i].id));
    return strcmp(all, wanted) == 0;
}

static void
start(struct client *c)
{
    cn_clock_freeze();
    assert_int_equal(client_start(c, false), 0);
}

/* A query shows what the last step has committed, and the state stays in the cache. */
static void
a_sequence_is_shown_as_its_last_step_left_it(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;

    start(c);
    client_step(c, 1, "s", "5", 0, 0);
    c->key = "k";
    client_step(c, 2, "s", "6", 0, 0);
    cn_clock_advance(100);
    got = look(c, "s", 0);
    assert_true(got.error_code == 0 && got.n_sequences == 1 && got.record.len == 0);
    assert_true(cn_str_eq(got.sequences[0].id, CN_STR("s")));
    assert_int_equal(got.sequences[0].step, 2);
    assert_int_equal(got.sequences[0].flags,
                     CN_INFO_HAS_STATE | CN_INFO_HAS_KEY | CN_INFO_HAS_ANSWER);
    assert_int_equal(got.sequences[0].state_bytes, sizeof(struct fake_state));
    assert_int_equal(got.sequences[0].last_wall_ms, cn_wall_ms() - 100);
    assert_int_equal(got.sequences[0].expires_wall_ms, cn_wall_ms() + 900);
    cn_clock_advance(1000);
    assert_true(look(c, "s", 0).sequences[0].flags & CN_INFO_EXPIRED);
    assert_int_equal(look(c, "s", CN_QUERY_RECORD).error_code, CN_E_SEQUENCE_EXPIRED);
    assert_int_equal(look(c, "t", 0).error_code, CN_E_SEQUENCE_UNKNOWN);
    client_stop(c);
}

/* Tombstones can be shown, with their reason. They cannot be exported. */
static void
a_closed_sequence_shows_why(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;

    start(c);
    client_step(c, 1, "s", "5", 0, 0);
    client_step(c, 2, "s", "end", 0, 0);
    got = look(c, "s", 0);
    assert_int_equal(got.sequences[0].close_reason, CN_CLOSE_ENDED);
    assert_true(got.sequences[0].flags & CN_INFO_CLOSED);
    assert_int_equal(look(c, "s", CN_QUERY_RECORD).error_code, CN_E_SEQUENCE_ENDED);
    cn_clock_advance(60000);
    assert_int_equal(look(c, "s", 0).error_code, CN_E_SEQUENCE_UNKNOWN); /* forgotten */
    client_stop(c);
}

static void
fill(struct client *c)
{
    static const char *const ids[] = {"b2", "a", "b", "c", "b1", "gone"};

    for (uint64_t i = 0; i < 6; i++)
        client_step(c, i + 1, ids[i], "1", 0, 0);
    client_step(c, 9, "gone", "end", 0, 0);
}

/* A list comes in order, in pages, by prefix, open or closed. Each sequence is in it once. */
static void
lists_go_on_where_they_ended(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;

    start(c);
    fill(c);
    got = list(c, CN_QUERY_OPEN, "", "", 10);
    assert_true(ids_are(&got, "a b b1 b2 c ") && got.next.len == 0);
    got = list(c, CN_QUERY_OPEN | CN_QUERY_CLOSED, "", "", 3);
    assert_true(ids_are(&got, "a b b1 ") && cn_str_eq(got.next, CN_STR("b1")));
    got = list(c, CN_QUERY_OPEN | CN_QUERY_CLOSED, "b1", "", 3);
    assert_true(ids_are(&got, "b2 c gone "));
    got = list(c, CN_QUERY_CLOSED, "", "", 3);
    assert_true(ids_are(&got, "gone "));
    got = list(c, CN_QUERY_OPEN, "", "b", 10);
    assert_true(ids_are(&got, "b b1 b2 ") && got.next.len == 0);
    got = list(c, CN_QUERY_OPEN, "", "b", 1);
    assert_true(ids_are(&got, "b ") && cn_str_eq(got.next, CN_STR("b")));
    got = list(c, CN_QUERY_OPEN, "b", "b", 1);
    assert_true(ids_are(&got, "b1 "));
    got = list(c, CN_QUERY_OPEN, "", "zz", 1);
    assert_true(ids_are(&got, "") && got.next.len == 0);
    client_stop(c);
}

/* The next batch waits for a LIST, so one LIST does not look for ever for what is rare. */
static void
a_list_looks_at_a_bounded_number_of_sequences(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;
    char id[8];

    start(c);
    for (unsigned i = 0; i < 2500; i++) {
        snprintf(id, sizeof id, "%04u", i);
        client_step(c, 1, id, "1", 0, 0);
    }
    client_step(c, 2, "z", "end", 0, 0);
    got = list(c, CN_QUERY_CLOSED, "", "", 9);
    assert_true(ids_are(&got, "") && cn_str_eq(got.next, CN_STR("1999")));
    got = list(c, CN_QUERY_CLOSED, "1999", "", 9);
    assert_true(ids_are(&got, "z ") && got.next.len == 0);
    client_stop(c);
}

/* Without an order of ids, sequences come in the order of their creation. Those that make steps
 * meanwhile keep their place. */
static void
a_list_of_a_memory_store_ends_though_steps_go_on(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;

    c->load.durability = CN_DURABILITY_NONE;
    start(c);
    fill(c);
    got = list(c, CN_QUERY_OPEN, "", "", 2);
    assert_true(ids_are(&got, "b2 a ") && cn_str_eq(got.next, CN_STR("a")));
    client_step(c, 20, "a", "1", 0, 0);
    got = list(c, CN_QUERY_OPEN, "a", "", 2);
    assert_true(ids_are(&got, "b c "));
    got = list(c, CN_QUERY_OPEN, "c", "b", 9);
    assert_true(ids_are(&got, "b1 ") && got.next.len == 0);
    assert_int_equal(list(c, CN_QUERY_OPEN, "never", "", 2).error_code, CN_E_CONFLICT);
    client_stop(c);
}

static void
only_silent_ones_are_listed_if_asked(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;

    start(c);
    client_step(c, 1, "old", "1", 0, 0);
    cn_clock_advance(500);
    client_step(c, 2, "new", "1", 0, 0);
    got = ask(c, (struct cn_query){
                     .op = CN_QUERY_LIST, .flags = CN_QUERY_OPEN, .limit = 9, .min_idle_ms = 500});
    assert_true(ids_are(&got, "old "));
    client_stop(c);
}

/* The state continues under another id as it was, in a new generation, with new clocks. */
static void
what_was_read_can_be_written_and_goes_on(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;
    struct cn_str record;

    start(c);
    c->key = "k1";
    client_step(c, 1, "s", "5", 0, 0);
    record = take_record(c, "s");
    cn_clock_advance(900);
    got = put(c, "t", 0, record);
    assert_int_equal(got.error_code, 0);
    assert_int_equal(got.sequences[0].step, 1);
    assert_int_equal(got.sequences[0].generation, cn_wall_ms());
    assert_int_equal(got.sequences[0].expires_wall_ms, cn_wall_ms() + 1000);
    /* A client that repeats its last step under the new id gets the stored answer. */
    assert_string_equal(client_step(c, 5, "t", "5", 0, 0).body, "5");
    assert_int_equal(look(c, "t", 0).sequences[0].step, 1);
    c->key = "k2";
    assert_string_equal(client_step(c, 6, "t", "2", 0, 0).body, "7");
    assert_string_equal(client_step(c, 7, "s", "1", 0, 0).body, "6"); /* it did not change */
    free((char *)record.ptr);
    client_stop(c);
}

/* A copy is another sequence, so its steps are not retries of the original's. A moved sequence is
 * the same one: it keeps its clocks and its last job. */
static void
a_fork_forgets_the_last_step_and_a_move_keeps_it(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;
    struct cn_str record;

    start(c);
    c->key = "k1";
    client_step(c, 1, "s", "5", 0, 0);
    record = take_record(c, "s");
    cn_clock_advance(300);
    assert_int_equal(put(c, "fork", CN_QUERY_FORK, record).sequences[0].flags, CN_INFO_HAS_STATE);
    assert_string_equal(client_step(c, 2, "fork", "5", 0, 0).body, "10");
    c->key = NULL;
    got = put(c, "moved", CN_QUERY_MOVE, record);
    assert_int_equal(got.sequences[0].last_wall_ms, cn_wall_ms() - 300);
    assert_string_equal(client_step(c, 1, "moved", "5", 0, 0).body, "5"); /* job 1, replayed */
    free((char *)record.ptr);
    client_stop(c);
}

/* A live sequence is not replaced by mistake. If replacing it is asked for, its handler learns that
 * it has ended. */
static void
a_live_sequence_is_replaced_only_if_asked(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;
    struct cn_str record;
    uint64_t before;

    start(c);
    client_step(c, 1, "s", "5", 0, 0);
    before = client_step(c, 2, "t", "100", 0, 0).generation;
    record = take_record(c, "s");
    got = put(c, "t", 0, record);
    assert_int_equal(got.error_code, CN_E_CONFLICT);
    assert_string_equal(client_step(c, 3, "t", "1", 0, 0).body, "101");
    got = put(c, "t", CN_QUERY_REPLACE, record);
    assert_int_equal(got.error_code, 0);
    assert_true(got.sequences[0].generation > before);
    /* The cached state is not used any more. */
    assert_string_equal(client_step(c, 4, "t", "1", 0, 0).body, "6");
    assert_string_equal(fake.closed, "t:deleted:101 ");
    /* A sequence that has ended or expired does not prevent an import. */
    client_step(c, 5, "t", "end", 0, 0);
    assert_int_equal(put(c, "t", 0, record).error_code, 0);
    cn_clock_advance(1500);
    assert_int_equal(put(c, "t", 0, record).error_code, 0);
    assert_non_null(strstr(fake.closed, "t:idle:5 "));
    free((char *)record.ptr);
    client_stop(c);
}

static void
records_that_are_wrong_are_refused(void **state)
{
    struct client *c = *state;
    struct cn_query_result got;
    struct cn_str record;
    char *bytes;

    start(c);
    client_step(c, 1, "s", "grow 3000", 0, 0);
    got = ask(c, (struct cn_query){.op = CN_QUERY_READ,
                                   .flags = CN_QUERY_RECORD,
                                   .max_bytes = 2000,
                                   .sequence_id = CN_STR("s")});
    assert_int_equal(got.error_code, CN_E_TOO_LARGE);
    record = take_record(c, "s");
    bytes = (char *)record.ptr;
    bytes[record.len / 2] ^= 1;
    assert_int_equal(put(c, "t", 0, record).error_code, CN_E_BAD_REQUEST);
    bytes[record.len / 2] ^= 1;
    assert_int_equal(put(c, "t", 0, (struct cn_str){bytes, 50}).error_code, CN_E_BAD_REQUEST);
    assert_int_equal(look(c, "t", 0).error_code, CN_E_SEQUENCE_UNKNOWN);
    client_stop(c);
    c->load.state_max_bytes = 1000; /* another model, with another limit */
    start(c);
    assert_int_equal(put(c, "t", 0, record).error_code, CN_E_STATE_TOO_LARGE);
    free(bytes);
    client_stop(c);
}

/* If the worker is killed after its RESULT, what the RESULT said is in the store. */
static void
what_was_written_survives_the_worker(void **state)
{
    struct client *c = *state;
    struct cn_str record;

    assert_int_equal(client_start(c, true), 0);
    client_step(c, 1, "s", "5", 0, 0);
    record = take_record(c, "s");
    assert_int_equal(put(c, "t", 0, record).error_code, 0);
    kill(c->pid, SIGKILL);
    client_stop(c);
    assert_int_equal(client_start(c, true), 0);
    assert_string_equal(client_step(c, 2, "t", "2", 0, 0).body, "7");
    free((char *)record.ptr);
    client_stop(c);
}

/* Adds a row that moves a sequence: an import, or a step that forwards one. */
static struct got
swap_row(struct client *c, uint64_t job, uint32_t flags, const struct cn_move *move)
{
    size_t begun = cn_frame_begin_batch(&c->out);
    struct cn_part part;
    struct cn_row row = row_of(job, "s", "3", flags | (move ? CN_ROW_MOVE : 0), &part);
    struct got got;

    row.move = move;
    cn_frame_put_row(&c->out, &row);
    cn_frame_end_batch(&c->out, begun, 1);
    client_send(c);
    assert_true(client_get(c, &got));
    return got;
}

/* A move that did not finish left its import here, and the sequence has ended elsewhere since. Its
 * id begins anew, as if nothing were there. */
static void
a_leftover_import_is_written_over(void **state)
{
    struct client *c = *state;
    struct cn_move move = {.op = CN_MOVE_IMPORT, .version = CN_STR("2"), .runtime = CN_STR("fake")};
    struct got got;

    assert_int_equal(client_start(c, false), 0);
    client_step(c, 1, "of_another_version", "5", 0, 0);
    move.record = take_record(c, "of_another_version");
    assert_true(swap_row(c, 2, 0, &move).flags & CN_ANSWER_HERE);
    assert_true(swap_row(c, 3, CN_ROW_ASK, NULL).flags & CN_ANSWER_PENDING);
    got = swap_row(c, 4, CN_ROW_PASS_PENDING, NULL);
    assert_int_equal(got.code, 0);
    assert_string_equal(got.body, "3");
    assert_true(got.flags & CN_ANSWER_OPENED);
    assert_string_equal(client_step(c, 5, "s", "1", 0, 0).body, "4");
    free((char *)move.record.ptr);
    client_stop(c);
    assert_int_equal(fake.live_states, 0);
}

#define WORKER_TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORKER_TEST(a_sequence_is_shown_as_its_last_step_left_it),
        WORKER_TEST(a_closed_sequence_shows_why),
        WORKER_TEST(lists_go_on_where_they_ended),
        WORKER_TEST(a_list_looks_at_a_bounded_number_of_sequences),
        WORKER_TEST(a_list_of_a_memory_store_ends_though_steps_go_on),
        WORKER_TEST(only_silent_ones_are_listed_if_asked),
        WORKER_TEST(what_was_read_can_be_written_and_goes_on),
        WORKER_TEST(a_fork_forgets_the_last_step_and_a_move_keeps_it),
        WORKER_TEST(a_live_sequence_is_replaced_only_if_asked),
        WORKER_TEST(records_that_are_wrong_are_refused),
        WORKER_TEST(what_was_written_survives_the_worker),
        WORKER_TEST(a_leftover_import_is_written_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
