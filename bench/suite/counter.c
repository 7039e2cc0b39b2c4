/* bench/suite/counter.c - the counter of examples/counter in C: a running sum, as text. */
#include <continuo/handler.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void
answer(struct continuo_item *item)
{
    struct continuo_bytes body = continuo_body(item);
    int64_t *total = continuo_state(item, sizeof(*total));
    char text[24] = "", *end;
    long long number;

    if (!total)
        return;
    memcpy(text, body.data, body.len < sizeof(text) ? body.len : sizeof(text) - 1);
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0') {
        continuo_fail(item, 400, "send a decimal integer");
        return;
    }
    if (number == 0)
        continuo_end_sequence(item);
    *total += number;
    continuo_replyf(item, "%lld", (long long)*total);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++)
        answer(items[i]);
    return 0;
}

const struct continuo_handler continuo_handler = {.abi = CONTINUO_HANDLER_ABI,
                                                  .size = sizeof(struct continuo_handler),
                                                  .state_bytes = sizeof(int64_t),
                                                  .run = run};
