/* Adds up the doubles of X, or does what the string HOW says. For handlers/c/c_runtime_test.c. */
#include <continuo/handler.h>
#include <stdlib.h>

static void
sum(struct continuo_item *item)
{
    static const int64_t shape[1] = {1};
    const struct continuo_tensor *x = continuo_tensor(item, "X");
    const double *values = (const double *)(const void *)x->data.data;
    struct continuo_tensor out = {
        continuo_text("SUM"), CONTINUO_FP64, 1, shape, {NULL, sizeof(double)}};
    double total = 0;

    for (size_t i = 0; i < continuo_elements(x); i++)
        total += values[i];
    out.data.data = (const char *)&total;
    continuo_reply_tensors(item, &out, 1);
}

static void
answer(struct continuo_item *item)
{
    const struct continuo_tensor *how = continuo_tensor(item, "HOW");
    struct continuo_bytes rest, word = {"", 0};
    struct continuo_tensor out;

    if (!how) {
        sum(item);
        return;
    }
    rest = how->data;
    continuo_next_string(&rest, &word);
    out = *continuo_tensor_at(item, 0);
    if (word.len == 3 && memcmp(word.data, "cut", 3) == 0)
        out.data.len--;
    else if (word.len == 4 && memcmp(word.data, "rank", 4) == 0)
        out.rank = 1000;
    else if (word.len == 4 && memcmp(word.data, "type", 4) == 0)
        out.datatype = (enum continuo_datatype)99;
    else if (word.len == 5 && memcmp(word.data, "twice", 5) == 0)
        continuo_reply_tensors(item, &out, 1);
    else
        continuo_fail(item, 400, "%zu tensors, none at 9: %d, none of a name: %d",
                      continuo_tensor_count(item), continuo_tensor_at(item, 9) == NULL,
                      continuo_tensor(item, "NOBODY") == NULL);
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

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
