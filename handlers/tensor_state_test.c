/* handlers/tensor_state_test.c - tests declared state tensors over a runtime: what the runtime
 * gets, and what is taken from its answers. */
#include "handlers/tensor_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/arena.h"
#include "core/memory/mem.h"
#include "handlers/reply.h"
#include "proto/state_tensors.h"

#define IN "S_IN"

static struct cn_state_spec spec = {.input = CN_STR(IN),
                                    .output = CN_STR("S_OUT"),
                                    .type = CN_DATATYPE_INT32,
                                    .rank = 1,
                                    .dims = {1},
                                    .init = CN_STATE_CALLER,
                                    .init_from = CN_STR("BEGIN"),
                                    .init_dims = {1}};
static const struct cn_state_specs specs = {.n = 1, .items = &spec};
static const struct cn_load load = {.state_max_bytes = 1000, .stateful = 1, .state = &specs};

/* A runtime whose "handler" does what the test tells it, and notes what it saw. */
static struct fake {
    struct cn_runtime base;
    struct cn_arena arena;
    uint32_t n;          /* items of the last run */
    int32_t found[4];    /* the state that each item had */
    uint32_t n_parts[4]; /* number of parts in each item's row */
    int32_t puts[4];     /* the state that each item answers with; -1: none */
    bool goes_on, fails, reorders;
    unsigned dropped, closed;
    int token; /* used as the handler's `resume` */
} fake;

static void
put(struct cn_buf *body, const char *name, int32_t value)
{
    struct cn_tensor tensor = {.name = cn_str_from(name),
                               .type = CN_DATATYPE_INT32,
                               .rank = 1,
                               .shape = {1},
                               .data = {(const char *)&value, sizeof(value)}};

    cn_tensors_put_one(body, &tensor);
}

static void
fake_answer(struct cn_reply *reply, int32_t state)
{
    if (reply->content_type.len == 0)
        cn_buf_puts(&reply->content_type, CN_TENSORS_TYPE);
    cn_write_u32(&reply->body, state < 0 ? 1 : 3);
    put(&reply->body, "OUT", 7);
    if (state < 0)
        return;
    put(&reply->body, "S_OUT", state);
    put(&reply->body, "MORE", 8);
}

static void
fake_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    assert_ptr_equal(rt, &fake.base);
    fake.n = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_row *row = items[i]->row;
        const struct cn_part *last = &row->parts[row->n_parts - 1];

        assert_true(cn_str_eq(last->name, CN_STR(IN)));
        assert_true(cn_str_eq(last->content_type, CN_STR("tensor/INT32[1]")));
        memcpy(&fake.found[i], last->data.ptr, sizeof(fake.found[i]));
        fake.n_parts[i] = row->n_parts;
        assert_ptr_equal(items[i]->resume, items[i]->reply.head_out ? &fake.token : NULL);
        items[i]->resume = NULL;
        if (fake.fails) {
            cn_reply_fail(&items[i]->reply, CN_E_HANDLER_FAILED, "no");
            continue;
        }
        fake_answer(&items[i]->reply, fake.puts[i]);
        if (fake.goes_on) {
            assert_int_equal(cn_reply_body_to_chunk(&items[i]->reply, NULL), 0);
            items[i]->reply.more = true;
            items[i]->resume = &fake.token;
        }
    }
    if (fake.reorders) { /* as runtimes do that sort open requests to the front */
        struct cn_item *first = items[0];

        items[0] = items[n - 1];
        items[n - 1] = first;
    }
}

static void
fake_drop(struct cn_runtime *rt, void *resume)
{
    (void)rt;
    assert_ptr_equal(resume, &fake.token);
    fake.dropped++;
}

static void
fake_on_close(struct cn_runtime *rt, struct cn_str id, void *state, enum cn_close_reason reason)
{
    (void)rt, (void)id, (void)reason;
    assert_null(state);
    fake.closed++;
}

static uint32_t
fake_schema(struct cn_runtime *rt)
{
    (void)rt;
    return 3;
}

static void
fake_close(struct cn_runtime *rt)
{
    (void)rt;
}

static const struct cn_runtime_ops fake_ops = {.name = "fake",
                                               .close = fake_close,
                                               .run = fake_run,
                                               .drop = fake_drop,
                                               .state_schema = fake_schema,
                                               .on_close = fake_on_close};

/* A step with these parts. With `begin` below 0, no part begins a state. */
struct step {
    struct cn_part parts[2];
    struct cn_row row;
    struct cn_item item;
    int32_t begin;
};

static void
step_init(struct step *step, int32_t begin)
{
    memset(step, 0, sizeof(*step));
    step->begin = begin;
    step->parts[0] = (struct cn_part){.name = CN_STR(IN), .data = CN_STR("from the client")};
    step->parts[1] = (struct cn_part){.name = CN_STR("BEGIN"),
                                      .content_type = CN_STR("tensor/INT32[1]"),
                                      .data = {(const char *)&step->begin, 4}};
    step->row = (struct cn_row){
        .flags = CN_ROW_STATEFUL, .n_parts = begin < 0 ? 1 : 2, .parts = step->parts};
    step->item.row = &step->row;
    cn_reply_init(&step->item.reply, 0);
}

static void
step_fini(struct step *step)
{
    if (step->item.state)
        fake.base.ops->state_free(&fake.base, step->item.state);
    cn_reply_fini(&step->item.reply);
}

static void
run(struct step **steps, uint32_t n)
{
    struct cn_item *items[4];

    for (uint32_t i = 0; i < n; i++)
        items[i] = &steps[i]->item;
    fake.base.ops->run(&fake.base, items, n);
    for (uint32_t i = 0; i < n; i++)
        assert_ptr_equal(steps[i]->item.row, &steps[i]->row);
}

static void
run_one(struct step *step)
{
    cn_reply_fini(&step->item.reply);
    cn_reply_init(&step->item.reply, 0);
    run(&step, 1);
}

/* Returns the names of the tensors in a packed set: "OUT MORE". */
static const char *
names(const struct cn_buf *body)
{
    static char text[100];
    struct cn_tensor *tensors;
    uint32_t n;

    assert_int_equal(cn_tensors_get(cn_buf_str(body), &fake.arena, &tensors, &n, NULL), 0);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.*s", i ? " " : "",
                 CN_STR_ARG(tensors[i].name));
    return text;
}

static int
setup(void **state)
{
    struct cn_buf *files = cn_alloc(sizeof(*files));

    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.base.ops = &fake_ops;
    cn_arena_init(&fake.arena);
    spec.visible = false;
    cn_buf_init(files, 0);
    cn_tensor_state_attach(&fake.base, &load, files);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    fake.base.ops->close(&fake.base);
    assert_ptr_equal(fake.base.ops, &fake_ops);
    cn_arena_fini(&fake.arena);
    return 0;
}

/* The state that a step returns is what the next step finds. It is cut out of the answer, and the
 * other tensors stay. */
static void
a_state_goes_round(void **state)
{
    struct step step;

    (void)state;
    step_init(&step, -1);
    fake.puts[0] = 5;
    run_one(&step);
    assert_int_equal(fake.found[0], 0);
    assert_int_equal(fake.n_parts[0], 1); /* the client's own S_IN is not passed on */
    assert_string_equal(names(&step.item.reply.body), "OUT MORE");
    fake.puts[0] = -1;
    run_one(&step);
    assert_int_equal(fake.found[0], 5);
    fake.puts[0] = 6;
    run_one(&step);
    assert_int_equal(fake.found[0], 5);
    spec.visible = true;
    run_one(&step);
    assert_int_equal(fake.found[0], 6);
    assert_string_equal(names(&step.item.reply.body), "OUT S_OUT MORE");
    step_fini(&step);
}

/* If a runtime sorts its batch, no item gets the state or the request of another one. */
static void
the_order_of_a_batch_may_change(void **state)
{
    struct step a, b, *steps[] = {&a, &b};

    (void)state;
    fake.reorders = true;
    step_init(&a, 10);
    step_init(&b, 20);
    fake.puts[0] = fake.puts[1] = -1;
    run(steps, 2);
    run_one(&a);
    assert_int_equal(fake.found[0], 10);
    run_one(&b);
    assert_int_equal(fake.found[0], 20);
    step_fini(&a);
    step_fini(&b);
}

/* A state is kept from the first step on, even if the handler does not return it. */
static void
the_caller_begins_it(void **state)
{
    struct step step;

    (void)state;
    step_init(&step, 41);
    fake.puts[0] = -1;
    run_one(&step);
    assert_int_equal(fake.found[0], 41);
    step.begin = 99;
    run_one(&step);
    assert_int_equal(fake.found[0], 41);
    step_fini(&step);
}

/* If the first value of a state has another shape, only its own row fails. */
static void
a_wrong_beginning_fails_alone(void **state)
{
    struct step good, bad, *both[] = {&bad, &good};

    (void)state;
    step_init(&good, 1);
    step_init(&bad, 1);
    bad.parts[1].content_type = CN_STR("tensor/INT32[2]");
    run(both, 2);
    assert_int_equal(bad.item.reply.error_code, CN_E_BAD_REQUEST);
    assert_int_equal(fake.n, 1);
    assert_int_equal(good.item.reply.error_code, 0);
    bad.item.reply.error_code = 0;
    bad.parts[1].content_type = CN_STR("tensor/INT16[1]");
    run_one(&bad);
    assert_int_equal(bad.item.reply.error_code, CN_E_BAD_REQUEST);
    step_fini(&good);
    step_fini(&bad);
}

/* A row without a sequence always begins with the first values. */
static void
rows_without_sequence_keep_nothing(void **state)
{
    struct step step;

    (void)state;
    step_init(&step, -1);
    step.row.flags = 0;
    fake.puts[0] = 5;
    run_one(&step);
    assert_null(step.item.state);
    assert_string_equal(names(&step.item.reply.body), "OUT MORE");
    run_one(&step);
    assert_int_equal(fake.found[0], 0);
    step_fini(&step);
}

/* A step that fails does not change the state. */
static void
a_failure_changes_nothing(void **state)
{
    struct step step;

    (void)state;
    step_init(&step, 3);
    fake.puts[0] = 4;
    run_one(&step);
    fake.fails = true;
    run_one(&step);
    assert_int_equal(step.item.reply.error_code, CN_E_HANDLER_FAILED);
    fake.fails = false;
    step.item.reply.error_code = 0;
    run_one(&step);
    assert_int_equal(fake.found[0], 4);
    step_fini(&step);
}

/* A state in a piece counts from that piece on, and is cut out of the piece. The runtime below
 * finds its own `resume` again, and learns of a stream that is given up. */
static void
streams(void **state)
{
    struct step step;

    (void)state;
    step_init(&step, -1);
    fake.puts[0] = 5;
    fake.goes_on = true;
    run_one(&step);
    assert_true(step.item.reply.more);
    assert_non_null(step.item.resume);
    assert_string_equal(names(&step.item.reply.chunks[0].body), "OUT MORE");
    assert_non_null(step.item.state);
    cn_reply_next(&step.item.reply);
    step.item.reply.head_out = true;
    fake.goes_on = false;
    fake.puts[0] = -1;
    run((struct step *[]){&step}, 1);
    assert_null(step.item.resume);
    assert_string_equal(names(&step.item.reply.body), "OUT");
    run_one(&step);
    assert_int_equal(fake.found[0], 5);
    fake.goes_on = true;
    run_one(&step);
    fake.base.ops->drop(&fake.base, step.item.resume);
    assert_int_equal(fake.dropped, 1);
    step_fini(&step);
}

/* A stored state is decoded. It is refused if it does not fit the declaration. */
static void
states_are_bytes(void **state)
{
    const struct cn_runtime_ops *ops = fake.base.ops;
    struct cn_error err;
    struct step step;
    struct cn_buf bytes;
    void *again;

    (void)state;
    cn_buf_init(&bytes, 0);
    step_init(&step, -1);
    fake.puts[0] = 77;
    run_one(&step);
    assert_int_equal(ops->state_encode(&fake.base, step.item.state, &bytes, &err), 0);
    assert_int_equal(ops->state_decode(&fake.base, cn_buf_str(&bytes), 3, &again, &err), 0);
    ops->state_free(&fake.base, step.item.state);
    step.item.state = again;
    run_one(&step);
    assert_int_equal(fake.found[0], 77);
    assert_int_equal(ops->state_decode(&fake.base, cn_buf_str(&bytes), 2, &again, &err),
                     CN_E_HANDLER_FAILED);
    assert_non_null(strstr(err.message, "schema 2, but the handler declares 3"));
    assert_int_equal(ops->state_decode(&fake.base, CN_STR("flat"), 3, &again, &err),
                     CN_E_STATE_STORE);
    ops->on_close(&fake.base, CN_STR("s"), step.item.state, CN_CLOSE_ENDED);
    assert_int_equal(fake.closed, 1);
    cn_buf_fini(&bytes);
    step_fini(&step);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_state_goes_round),
        TEST(the_order_of_a_batch_may_change),
        TEST(the_caller_begins_it),
        TEST(a_wrong_beginning_fails_alone),
        TEST(rows_without_sequence_keep_nothing),
        TEST(a_failure_changes_nothing),
        TEST(streams),
        TEST(states_are_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
