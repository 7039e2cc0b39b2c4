/* examples/v2/implicit_state/implicit_state.c - the running sum of handler.lua, in C. */
#include <continuo/handler.h>

static int32_t
first_of(const struct continuo_tensor *tensor)
{
    int32_t value;

    memcpy(&value, tensor->data.data, sizeof(value)); /* the declared shape is [1] */
    return value;
}

static void
answer(struct continuo_item *item)
{
    static const int64_t shape[] = {1};
    struct continuo_tensor out[2];
    int32_t total = (int32_t)((uint32_t)first_of(continuo_tensor(item, "TOTAL_IN")) +
                              (uint32_t)first_of(continuo_tensor(item, "INPUT")));

    memset(out, 0, sizeof(out));
    for (int i = 0; i < 2; i++) {
        out[i].name = continuo_text(i ? "TOTAL_OUT" : "OUTPUT");
        out[i].datatype = CONTINUO_INT32;
        out[i].rank = 1;
        out[i].shape = shape;
        out[i].data.data = (const char *)&total;
        out[i].data.len = sizeof(total);
    }
    continuo_reply_tensors(item, out, 2);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++)
        answer(items[i]);
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
