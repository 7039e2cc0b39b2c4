#include <continuo/handler.h>
#include <stdlib.h>

/* The state of a sequence, which the server stores after each step. It has no pointers, and is all
 * zero in a new sequence. */
struct state {
    uint64_t count;
    double mean;
};

/* Does one step of a sequence: changes the state in place and replies. */
static void
step(struct continuo_item *item)
{
    struct state *state = continuo_state(item, sizeof(*state));
    double x;

    if (!state)
        return; /* the item has failed already, with a message */
    if (continuo_json_double(item, "", &x) != 0) {
        continuo_fail(item, 400, "send a number");
        return;
    }
    state->count++;
    state->mean += (x - state->mean) / (double)state->count;
    continuo_set_content_type(item, "application/json");
    continuo_replyf(item, "{\"count\":%llu,\"mean\":%.6g}", (unsigned long long)state->count,
                    state->mean);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++)
        step(items[i]);
    return 0; /* nonzero: the whole batch failed */
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI,
    .size = sizeof(struct continuo_handler),
    .state_schema = 1,
    .state_bytes = sizeof(struct state),
    .run = run,
};
