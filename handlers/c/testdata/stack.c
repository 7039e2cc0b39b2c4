/* handlers/c/testdata/stack.c - a handler that doubles the X of all items at once, and answers how
 * many rows there were. */
#include <continuo/handler.h>
#include <stdlib.h>

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    const struct continuo_tensor *all = continuo_stack(items, n, "X");
    struct continuo_tensor out[2];
    int32_t *values, *rows;
    size_t elements, n_rows;
    int64_t shape[2];

    (void)model;
    if (!all) {
        for (size_t i = 0; i < n; i++)
            continuo_fail(items[i], 400, "X differs");
        return 0;
    }
    elements = continuo_elements(all);
    n_rows = (size_t)all->shape[0];
    values = malloc(sizeof(*values) * (elements + n_rows + 1));
    if (!values)
        return -1;
    rows = values + elements;
    for (size_t i = 0; i < elements; i++)
        values[i] = 2 * ((const int32_t *)(const void *)all->data.data)[i];
    for (size_t i = 0; i < n_rows; i++)
        rows[i] = (int32_t)n_rows;
    shape[0] = all->shape[0];
    shape[1] = 1;
    out[0] = out[1] = *all;
    out[0].name = continuo_text("Y");
    out[0].data.data = (const char *)values;
    out[1].name = continuo_text("ROWS");
    out[1].rank = 2;
    out[1].shape = shape;
    out[1].data.data = (const char *)rows;
    out[1].data.len = sizeof(*rows) * n_rows;
    continuo_reply_stack(items, n, out, 2);
    free(values);
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
