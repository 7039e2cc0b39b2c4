/* A handler that answers items later. "keep" leaves an item open; other items, or timers, answer
 * it. For handlers/c/c_open_test.c. */
#include <continuo/handler.h>
#include <stdio.h>

static struct continuo_item *kept;
static char heard[100];

static void
on_stop(struct continuo_item *item, const char *reason, void *arg)
{
    snprintf(heard, sizeof(heard), "%s %s", (const char *)arg, reason);
    kept = NULL;
    if (strcmp(reason, "deadline") == 0)
        continuo_reply(item, "late", 4);
}

static void
on_time(struct continuo_model *model, void *arg)
{
    (void)model;
    if (kept)
        continuo_send(kept, arg, strlen(arg));
}

static int
is(struct continuo_item *item, const char *word)
{
    const struct continuo_bytes body = continuo_body(item);

    return body.len == strlen(word) && memcmp(body.data, word, body.len) == 0;
}

static void
answer(struct continuo_model *model, struct continuo_item *item)
{
    static const int64_t shape[1] = {1};
    static char two[] = "two", one[] = "one", arg[] = "stopped:";
    const int32_t number = 7;
    struct continuo_tensor tensor = {
        continuo_text("N"), CONTINUO_INT32, 1, shape, {(const char *)&number, sizeof(number)}};

    if (is(item, "keep") || is(item, "wait")) {
        continuo_send(item, "first", 5);
        kept = continuo_defer(item, on_stop, arg);
        if (is(kept, "wait") && (continuo_after(model, 0.2, on_time, two) != 0 ||
                                 continuo_after(model, 0.1, on_time, one) != 0))
            continuo_fail(kept, 500, "no timers");
        return;
    } else if (is(item, "stream")) { /* either handle leads to the item's bytes */
        kept = continuo_defer(item, on_stop, arg);
        memcpy(continuo_stream(item, 5), "same", 5);
        continuo_send(kept, continuo_stream(kept, 5), 4);
        return;
    } else if (is(item, "no stop")) {
        continuo_defer(item, NULL, NULL);
        return;
    } else if (is(item, "none")) {
        continuo_finish(item);
        return;
    } else if (is(item, "heard")) {
        continuo_reply(item, heard, strlen(heard));
        return;
    } else if (is(item, "end")) {
        continuo_reply(kept, "last", 4);
    } else if (is(item, "finish")) {
        continuo_finish(kept);
    } else if (is(item, "fail")) {
        continuo_fail(kept, 418, "no more");
    } else if (is(item, "more")) {
        continuo_more(kept, 0);
    } else if (is(item, "tensor")) {
        continuo_respond(kept, &tensor, 1);
    } else {
        continuo_send(kept, continuo_body(item).data, continuo_body(item).len);
    }
    continuo_reply(item, "ok", 2);
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        answer(model, items[i]);
        rc |= is(items[i], "boom");
    }
    return rc;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
