/* examples/v2/decoupled_square/decoupled_square.c - a decoupled model in C: IN = n gets n
 * responses, each of them n; none for 0.
 *
 * A few of them in each call of run(), so that the requests of other clients have their turns and a
 * slow client is not flooded.
 */
#include <continuo/handler.h>

#define AT_ONCE 64

struct progress {
    int32_t done;
};

static void
go_on(struct continuo_item *item)
{
    struct progress *at = continuo_stream(item, sizeof(*at)); /* zeroed the first time */
    const struct continuo_tensor *in = continuo_tensor(item, "IN");
    struct continuo_tensor out;
    int32_t n;

    if (!at)
        return;
    memcpy(&n, in->data.data, sizeof(n));
    out = *in; /* its datatype and shape, and its value as well */
    out.name = continuo_text("OUT");
    for (int i = 0; i < AT_ONCE && at->done < n; i++, at->done++)
        if (continuo_respond(item, &out, 1) != 0)
            return; /* it has failed: the client gets the reason */
    if (at->done >= n || continuo_stop_reason(item))
        continuo_finish(item);
    else
        continuo_more(item, 0);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++)
        go_on(items[i]);
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
