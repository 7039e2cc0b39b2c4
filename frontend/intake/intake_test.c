/* frontend/intake/intake_test.c - the rules by which each request becomes a job. */
#include "frontend/intake/intake.h"

#include "scheduler/test_support.h"

#define HEADER(n, v)                                                                               \
    {                                                                                              \
        CN_STR(n), CN_STR(v)                                                                       \
    }

static void
set_timeouts(struct cn_model_config *config)
{
    config->response_timeout_s = 7;
    config->startup_timeout_s = 5;
}

static void
set_stateless(struct cn_model_config *config)
{
    config->sequence_batching = false;
}

static struct cn_intake
plain(struct rig *rig)
{
    return (struct cn_intake){.queue = rig->queue,
                              .loop = rig->loop,
                              .ops = &client_ops,
                              .request_id = CN_STR("r1"),
                              .client_deadline_ms = CN_NEVER};
}

/* A client can only shorten the time that the model's two timeouts allow together. */
static void
nearer_deadline_counts(void **state)
{
    struct rig *rig = rig_create(set_timeouts);
    const uint64_t own_ms = cn_loop_now_ms(rig->loop) + 12000;
    const struct {
        uint64_t client_ms, job_ms;
    } cases[] = {{CN_NEVER, own_ms}, {own_ms + 1, own_ms}, {own_ms - 1, own_ms - 1}, {0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_intake intake = plain(rig);
        struct cn_job job = {0};

        intake.client_deadline_ms = cases[i].client_ms;
        assert_int_equal(cn_intake_fill(&job, &intake, NULL), 0);
        assert_true(job.deadline_ms == cases[i].job_ms);
    }
    rig_destroy(rig);
}

/* The job has everything of the request, and the flags that the caller has set are kept. */
static void
job_has_what_the_request_says(void **state)
{
    static const struct cn_header headers[] = {HEADER("idempotency-key", "k1"),
                                               HEADER("continuo-sequence-step", "3")};
    struct rig *rig = rig_create(NULL);
    struct cn_intake intake = plain(rig);
    struct cn_job job = {.row.flags = CN_ROW_MUST_EXIST};
    atomic_bool left = false;

    (void)state;
    intake.version = CN_STR("1.0");
    intake.sequence = (struct cn_sequence_headers){.id = CN_STR("s"), .end = true};
    intake.headers = headers;
    intake.n_headers = 2;
    intake.connection = 9;
    intake.left = &left;
    assert_int_equal(cn_intake_fill(&job, &intake, NULL), 0);
    assert_true(cn_str_eq(job.row.sequence_id, CN_STR("s")));
    assert_true(cn_str_eq(job.row.request_id, CN_STR("r1")));
    assert_true(cn_str_eq(job.row.idempotency_key, CN_STR("k1")));
    assert_int_equal(job.row.step, 3);
    assert_int_equal(job.row.flags, CN_ROW_MUST_EXIST | CN_ROW_END | CN_ROW_NUMBERED);
    assert_true(job.named_version && !job.any_version);
    assert_ptr_equal(job.ops, &client_ops);
    assert_ptr_equal(job.origin, rig->loop);
    assert_int_equal(job.connection, 9);
    assert_ptr_equal(job.left, &left);
    rig_destroy(rig);
}

/* Without a version any version may run the step. The start flag decides whether a sequence
 * begins. */
static void
version_may_be_left_open(void **state)
{
    struct rig *rig = rig_create(NULL);
    struct cn_intake intake = plain(rig);
    struct cn_job job = {0};

    (void)state;
    intake.sequence.start = true;
    assert_int_equal(cn_intake_fill(&job, &intake, NULL), 0);
    assert_true(job.any_version && !job.named_version);
    assert_int_equal(job.row.flags, CN_ROW_START);
    rig_destroy(rig);
}

/* If two headers are wrong, each protocol reports the one that it has always reported first. */
static void
wrong_headers_are_refused_in_order(void **state)
{
    static const struct cn_header wrong[] = {HEADER("continuo-sequence-step", "0"),
                                             HEADER("idempotency-key", "")};
    struct rig *rig = rig_create(NULL);
    struct cn_intake intake = plain(rig);
    struct cn_error err;

    (void)state;
    intake.headers = wrong;
    intake.n_headers = 2;
    assert_int_equal(cn_intake_fill(&(struct cn_job){0}, &intake, &err), CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "steps are counted from 1"));
    intake.key_first = true;
    assert_int_equal(cn_intake_fill(&(struct cn_job){0}, &intake, &err), CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "Idempotency-Key has 0 bytes"));
    rig_destroy(rig);
}

/* A model without state may do a step twice: these headers mean nothing to it. */
static void
model_without_sequences_reads_no_step(void **state)
{
    static const struct cn_header wrong[] = {HEADER("continuo-sequence-step", "0"),
                                             HEADER("idempotency-key", "")};
    struct rig *rig = rig_create(set_stateless);
    struct cn_intake intake = plain(rig);
    struct cn_job job = {0};

    (void)state;
    intake.headers = wrong;
    intake.n_headers = 2;
    assert_int_equal(cn_intake_fill(&job, &intake, NULL), 0);
    assert_int_equal(job.row.flags, 0);
    assert_int_equal(job.row.idempotency_key.len, 0);
    rig_destroy(rig);
}

/* Each id begins with its owner from here on, and the client's id is what follows. The mark of an
 * integer stays the first byte. */
static void
sequence_has_its_owner_before_its_id(void **state)
{
    static const struct {
        const char *id, *whole, *client;
    } cases[] = {{"a", "shop/a", "a"},
                 {"other/a", "shop/other/a", "other/a"},
                 {"\x01"
                  "42",
                  "\x01shop/42", "42"},
                 {"", "", ""}};
    struct rig *rig = rig_create(NULL);
    struct cn_intake intake = plain(rig);
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    intake.arena = &arena;
    intake.owner = CN_STR("shop");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_job job = {0};

        intake.sequence.id = cn_str_from(cases[i].id);
        assert_int_equal(cn_intake_fill(&job, &intake, NULL), 0);
        assert_true(cn_str_eq(job.row.sequence_id, cn_str_from(cases[i].whole)));
        assert_true(cn_str_eq(cn_job_client_id(&job), cn_str_from(cases[i].client)));
    }
    cn_arena_fini(&arena);
    rig_destroy(rig);
}

/* The id is kept with its owner, and there is one limit for both. */
static void
long_id_is_refused_with_its_owner(void **state)
{
    char id[CN_SEQUENCE_ID_MAX];
    struct rig *rig = rig_create(NULL);
    struct cn_intake intake = plain(rig);
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    memset(id, 'x', sizeof(id));
    intake.arena = &arena;
    intake.owner = CN_STR("shop");
    intake.sequence.id = (struct cn_str){id, CN_SEQUENCE_ID_MAX - 5};
    assert_int_equal(cn_intake_fill(&(struct cn_job){0}, &intake, &err), 0);
    intake.sequence.id.len++;
    assert_int_equal(cn_intake_fill(&(struct cn_job){0}, &intake, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message,
                        "the sequence id has 252 bytes; the limit for the key shop is 251");
    cn_arena_fini(&arena);
    rig_destroy(rig);
}

static void
assert_new_id(const char *id)
{
    assert_int_equal(strlen(id), CN_REQUEST_ID_NEW - 1);
    assert_int_equal(strspn(id, "0123456789abcdef-"), CN_REQUEST_ID_NEW - 1);
}

/* The client's id is kept if it may stand in any header; otherwise the server makes one. */
static void
request_id_is_the_clients_or_new(void **state)
{
    static const char *const refused[] = {"", "two words", "tab\there", "caf\xc3\xa9"};
    char longest[CN_REQUEST_ID_MAX + 1], id[CN_REQUEST_ID_MAX];
    struct cn_header given = HEADER("x-request-id", "mine-1");

    (void)state;
    cn_intake_choose_request_id(&given, id);
    assert_string_equal(id, "mine-1");
    memset(longest, 'x', sizeof(longest));
    given.value = (struct cn_str){longest, CN_REQUEST_ID_MAX - 1};
    cn_intake_choose_request_id(&given, id);
    assert_int_equal(strlen(id), CN_REQUEST_ID_MAX - 1);
    given.value.len++;
    cn_intake_choose_request_id(&given, id);
    assert_new_id(id);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        given.value = cn_str_from(refused[i]);
        cn_intake_choose_request_id(&given, id);
        assert_new_id(id);
    }
    cn_intake_choose_request_id(NULL, id);
    assert_new_id(id);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearer_deadline_counts),
        cmocka_unit_test(job_has_what_the_request_says),
        cmocka_unit_test(version_may_be_left_open),
        cmocka_unit_test(wrong_headers_are_refused_in_order),
        cmocka_unit_test(model_without_sequences_reads_no_step),
        cmocka_unit_test(sequence_has_its_owner_before_its_id),
        cmocka_unit_test(long_id_is_refused_with_its_owner),
        cmocka_unit_test(request_id_is_the_clients_or_new),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
