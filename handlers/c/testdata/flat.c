/* A handler with a flat state: sums integers. For handlers/c/c_runtime_test.c.
 *
 * Bodies: an integer; "skip" leaves the item unanswered, "fail" fails the batch, "twice" answers
 * twice, "wide" asks for a state of another size, "teapot" refuses with 200, "nothing" streams no
 * bytes, "stream" counts to 3 in pieces, "more" goes on after its answer, "metric" measures, "big"
 * answers 1,000,000 bytes, "info" shows what the request and the model hold. */
#include <continuo/handler.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct total {
    int64_t sum;
    uint32_t steps;
};

/* Schema 1 was a plain int64_t. */
static int
migrate(struct continuo_model *model, uint32_t from_schema, const void *old, size_t old_bytes,
        void *fresh)
{
    struct total *total = fresh;

    (void)model;
    if (from_schema != 1 || old_bytes != sizeof(int64_t))
        return -1;
    memcpy(&total->sum, old, sizeof(total->sum));
    total->steps = 1000;
    return 0;
}

static int
load(struct continuo_model *model)
{
    static int marker;

    if (continuo_config_bool(model, "handler.refuse", 0))
        return continuo_load_error(model, "refused by %s", "handler.refuse");
    continuo_set_data(model, &marker);
    continuo_log(model, CONTINUO_LOG_DEBUG, "%s loaded", continuo_model_name(model));
    return 0;
}

static int
is(struct continuo_bytes text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

static void
info(struct continuo_model *model, struct continuo_item *item)
{
    struct continuo_bytes header = continuo_header(item, "x_probe");
    struct continuo_bytes id = continuo_sequence_id(item), extra = continuo_part(item, "extra");
    struct continuo_bytes none = continuo_part(item, "none");

    continuo_send(item, "piece ", 6);
    continuo_set_status(item, 201);
    continuo_set_header(item, "x-answer", "yes");
    continuo_set_content_type(item, "text/x-info");
    continuo_end_sequence(item);
    continuo_replyf(
        item, "%s %s %u %.*s %.*s %.*s %d%d%d%d %" PRIu64 " %s %" PRId64 " %g %d",
        continuo_model_name(model), continuo_model_version(model), continuo_worker(model),
        (int)id.len, id.data, (int)header.len, header.data, (int)extra.len, extra.data,
        continuo_is_start(item), continuo_is_end(item), continuo_is_cancelled(item),
        none.data == NULL, continuo_step(item), continuo_config_string(model, "handler.name", "?"),
        continuo_config_int(model, "handler.depth", 7),
        continuo_config_double(model, "handler.rate", 0.5), continuo_data(model) != NULL);
}

static void
stream(struct continuo_item *item)
{
    int *at = continuo_stream(item, sizeof(*at));
    const char *why = continuo_stop_reason(item);
    char digit;

    if (!at)
        return;
    if (why || *at == 3) {
        continuo_replyf(item, "%s", why ? why : "done");
        return;
    }
    if (*at == 0)
        continuo_set_content_type(item, "text/x-count");
    digit = (char)('1' + (*at)++);
    continuo_send(item, &digit, 1);
    continuo_more(item, *at == 2 ? 0.5 : 0);
}

static void
answer(struct continuo_model *model, struct continuo_item *item)
{
    struct total *total = continuo_state(item, sizeof(*total));
    struct continuo_bytes body = continuo_body(item);
    int64_t number;

    if (!total)
        return;
    total->steps++;
    if (is(body, "wide")) {
        continuo_state(item, sizeof(*total) + 8);
    } else if (is(body, "teapot")) {
        continuo_fail(item, 200, "not so");
    } else if (is(body, "nothing")) {
        continuo_stream(item, 0);
    } else if (is(body, "info")) {
        info(model, item);
    } else if (is(body, "twice")) {
        continuo_reply(item, "1", 1);
        continuo_reply(item, "2", 1);
    } else if (is(body, "stream")) {
        stream(item);
    } else if (is(body, "more")) {
        continuo_reply(item, "1", 1);
        continuo_more(item, 0);
    } else if (is(body, "metric")) {
        struct continuo_dimension dim = {"b", "2"};
        int rc = continuo_metric(model, CONTINUO_HISTOGRAM, "took", "ms", 2.5, &dim, 1);

        rc = 10 * rc + continuo_metric(model, (enum continuo_metric_type)7, "x", "", 1, NULL, 0);
        rc = 10 * rc + continuo_metric(model, CONTINUO_GAUGE, NULL, NULL, 1, NULL, 0);
        continuo_replyf(item, "%d", rc);
    } else if (is(body, "stop")) {
        continuo_stop_streams(item);
        continuo_reply(item, "-1", 2);
    } else if (is(body, "big")) {
        char *big = calloc(1, 1000000);

        continuo_reply(item, big, 1000000);
        free(big);
    } else if (continuo_json_int(item, "", &number) == 0 ||
               continuo_json_int(item, "input.n", &number) == 0) {
        total->sum += number;
        continuo_replyf(item, "%" PRId64 "/%u", total->sum, (unsigned)total->steps);
    } else {
        total->sum = -1; /* must not be kept */
        continuo_fail(item, 400, "%.*s is not an integer", (int)body.len, body.data);
    }
}

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        if (is(continuo_body(items[i]), "skip"))
            continue;
        if (is(continuo_body(items[i]), "fail"))
            rc = 7;
        answer(model, items[i]);
    }
    return rc;
}

static int
describe(struct continuo_model *model, struct continuo_item *item)
{
    if (continuo_state(item, sizeof(struct total)) == NULL || continuo_sequence_id(item).data)
        return 9;
    continuo_replyf(item, "{\"rate\": %g}", continuo_config_double(model, "handler.rate", 0.5));
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI,
    .size = sizeof(struct continuo_handler),
    .state_schema = 2,
    .state_bytes = sizeof(struct total),
    .load = load,
    .run = run,
    .migrate = migrate,
    .describe = describe,
};
