/* examples/v2/square/square.c - a typed model in C: each element of IN, squared. */
#include <continuo/handler.h>
#include <stdlib.h>

static void
answer(struct continuo_item *item)
{
    const struct continuo_tensor *in = continuo_tensor(item, "IN");
    const size_t n = in ? continuo_elements(in) : 0;
    const float *values = in ? (const float *)(const void *)in->data.data : NULL;
    struct continuo_tensor out;
    float *squares;

    if (!in) {
        continuo_fail(item, 400, "send the tensor IN");
        return;
    }
    squares = malloc(sizeof(*squares) * (n ? n : 1));
    if (!squares) {
        continuo_fail(item, 0, "not enough memory for %zu numbers", n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        squares[i] = values[i] * values[i];
    out = *in; /* its datatype and shape */
    out.name = continuo_text("OUT");
    out.data.data = (const char *)squares;
    continuo_reply_tensors(item, &out, 1);
    free(squares);
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
