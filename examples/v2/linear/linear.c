/* examples/v2/linear/linear.c - a linear layer over a whole batch: the rows of all requests are one
 * tensor, and each request gets its own of the answer's. */
#include <stdlib.h>

#include <continuo/handler.h>

#define IN 3
#define OUT 2

static const float weights[IN][OUT] = {{1.0f, -1.0f}, {0.5f, 2.0f}, {0.25f, 0.0f}};
static const float bias[OUT] = {10.0f, 20.0f};

/* Where these loops are, a library's product of matrices would be. */
static void
compute(const float *x, size_t rows, float *y)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t out = 0; out < OUT; out++) {
            float sum = bias[out];

            for (size_t i = 0; i < IN; i++)
                sum += x[IN * row + i] * weights[i][out];
            y[OUT * row + out] = sum;
        }
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    const struct continuo_tensor *x = continuo_stack(items, n, "X"); /* shape {rows, 3} */
    int64_t shape[2] = {0, OUT};
    struct continuo_tensor out = {
        .name = continuo_text("Y"), .datatype = CONTINUO_FP32, .rank = 2, .shape = shape};
    float *y;

    (void)model;
    if (!x)
        return -1; /* no memory: it can't be another shape, the server keeps those apart */
    shape[0] = x->shape[0];
    out.data.len = (size_t)shape[0] * OUT * sizeof(*y);
    y = malloc(out.data.len);
    if (!y)
        return -1;
    compute((const float *)(const void *)x->data.data, (size_t)shape[0], y);
    out.data.data = (const char *)y;
    continuo_reply_stack(items, n, &out, 1);
    free(y);
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
