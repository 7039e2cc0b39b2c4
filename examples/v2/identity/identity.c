/* examples/v2/identity/identity.c - gives each input back as the output of its name. */
#include <continuo/handler.h>

#define MAX 32 /* inputs; more than model-config.yaml has */

static void
answer(struct continuo_item *item)
{
    const size_t n = continuo_tensor_count(item);
    struct continuo_tensor outputs[MAX];

    if (n > MAX) {
        continuo_fail(item, 400, "%zu inputs, the limit is %d", n, MAX);
        return;
    }
    for (size_t i = 0; i < n; i++)
        outputs[i] = *continuo_tensor_at(item, i);
    continuo_reply_tensors(item, outputs, n);
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
