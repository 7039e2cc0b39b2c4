/* ctl/verbs/slowlog.c - the steps that took long, with what they spent their time on.
 *
 * The server keeps the last of them in a ring (tracing/slow_steps.h) and answers with the newest
 * first. The table has the total time of each step and how it is divided: the wait in the queue,
 * the time in the worker, and of that the handler and the commit. `slowlog clear` empties the ring
 * after a question.
 *
 * --limit, --model and --sort become the query, so the server chooses and sorts the steps. The hint
 * about an empty list names the threshold, because a threshold that is too high looks like a server
 * without slow steps. */
#include <string.h>

#include "ctl/columns.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

static const char *
text_of(const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));

    return text && *text ? text : "-";
}

static void
add_ms(struct cn_ctl_table *table, const json_t *step, const char *key)
{
    const double ms = json_number_value(json_object_get(step, key));

    cn_ctl_table_add(table, ms < 100 ? "%.2f" : "%.0f", ms);
}

static void
put_table(const json_t *steps, struct cn_buf *out)
{
    static const char *const heads[] = {"ENDED", "MODEL",  "SEQUENCE", "STEP",   "TOTAL MS",
                                        "QUEUE", "WORKER", "HANDLER",  "COMMIT", "ERROR"};
    static const char *const times[] = {"totalMSec", "queueMSec", "workerMSec", "handlerMSec",
                                        "commitMSec"};
    struct cn_ctl_table table;
    const json_t *step;
    size_t i, k;

    cn_ctl_table_init(&table, "lllrrrrrrl");
    for (k = 0; k < sizeof heads / sizeof *heads; k++)
        cn_ctl_table_add(&table, "%s", heads[k]);
    json_array_foreach(steps, i, step)
    {
        const json_t *number = json_object_get(step, "step");

        cn_ctl_table_add(&table, "%s", text_of(step, "ended"));
        cn_ctl_table_add(&table, "%s/%s", text_of(step, "modelName"),
                         text_of(step, "modelVersion"));
        cn_ctl_table_add(&table, "%s", text_of(step, "sequence"));
        if (json_is_integer(number))
            cn_ctl_table_add(&table, "%lld", (long long)json_integer_value(number));
        else
            cn_ctl_table_add(&table, "-");
        for (k = 0; k < sizeof times / sizeof *times; k++)
            add_ms(&table, step, times[k]);
        cn_ctl_table_add(&table, "%s", text_of(step, "error"));
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

/* The word `clear` stands behind the verb. */
static int
clear(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
      struct cn_error *err)
{
    json_t *value;
    int rc = cn_ctl_confirm(options, "the server forgets its slow steps", err);

    if (!rc)
        rc = cn_ctl_verb_call(http, options, "DELETE", "/slowlog", false, &value, err);
    if (rc)
        return rc;
    if (options->json)
        cn_ctl_json_print(json_incref(value), false, out);
    else
        cn_buf_printf(out, "%s\n", text_of(value, "status"));
    json_decref(value);
    return 0;
}

int
cn_ctl_slowlog(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err)
{
    char limit[16];
    struct cn_buf path;
    json_t *value, *steps;
    int rc;

    if (options->n_words)
        return clear(http, options, out, err);
    cn_buf_init(&path, 0);
    cn_buf_puts(&path, "/slowlog");
    snprintf(limit, sizeof limit, "%u", options->seq.limit);
    cn_ctl_verb_query(&path, "limit", options->seq.limit ? limit : NULL);
    cn_ctl_verb_query(&path, "model", options->verb.model);
    cn_ctl_verb_query(&path, "sort", options->verb.sort);
    cn_buf_append(&path, "", 1);
    rc = cn_ctl_verb_call(http, options, "GET", path.data, false, &value, err);
    cn_buf_fini(&path);
    if (rc)
        return rc;
    steps = json_object_get(value, "steps");
    if (options->json)
        cn_ctl_json_print(json_incref(value), false, out);
    else if (json_array_size(steps))
        put_table(steps, out);
    if (!options->json && !json_array_size(steps))
        cn_buf_printf(hint, "No step took %lld ms or more (--slowlog-threshold of the server).\n",
                      (long long)json_integer_value(json_object_get(value, "thresholdMSec")));
    json_decref(value);
    return 0;
}
