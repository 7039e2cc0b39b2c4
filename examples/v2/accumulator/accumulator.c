/* examples/v2/accumulator/accumulator.c - the running sum by control tensors, in C. */
#include <continuo/handler.h>

static int32_t
value_of(struct continuo_item *item, const char *name)
{
    const struct continuo_tensor *tensor = continuo_tensor(item, name);

    return tensor && continuo_elements(tensor) ? *(const int32_t *)(const void *)tensor->data.data
                                               : 0;
}

static void
answer(struct continuo_item *item)
{
    static const int64_t shape[2] = {1, 1};
    int32_t *total = continuo_state(item, sizeof(*total)), zero = 0;
    struct continuo_tensor out = {.name = continuo_text("OUTPUT"),
                                  .datatype = CONTINUO_INT32,
                                  .rank = 2,
                                  .shape = shape,
                                  .data = {(const char *)&zero, sizeof(zero)}};

    if (!total)
        return;
    if (value_of(item, "READY")) { /* else a slot without a row */
        uint32_t before = value_of(item, "START") ? 0 : (uint32_t)*total;

        *total = (int32_t)(before + (uint32_t)value_of(item, "INPUT")); /* wraps, as Lua's does */
        out.data.data = (const char *)total;
    }
    continuo_reply_tensors(item, &out, 1);
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
                                                  .state_bytes = sizeof(int32_t),
                                                  .run = run};
