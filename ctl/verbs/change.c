/* ctl/verbs/change.c - register, scale, set-default, swap and unregister.
 *
 * Each is one call of the management API, whose answer is printed. `swap` then looks every second
 * how many sequences still live in older versions, until none does. What stops workers or forgets
 * states is asked for on the terminal, or needs --yes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

#define ANSWER_MAX_BYTES (64u << 20)
#define LOOK_EVERY_MS 1000

int
cn_ctl_confirm(const struct cn_ctl_options *options, const char *what, struct cn_error *err)
{
    char line[16] = "";

    if (options->verb.yes)
        return 0;
    if (!isatty(STDIN_FILENO))
        return cn_fail(err, CN_E_CONFIG, "%s. Give --yes if that is what you want", what);
    fprintf(stderr, "%s. Go on? [yes/no] ", what);
    if (fgets(line, sizeof line, stdin) && (strcmp(line, "yes\n") == 0 || strcmp(line, "y\n") == 0))
        return 0;
    return cn_fail(err, CN_E_CONFIG, "nothing was changed");
}

void
cn_ctl_verb_query(struct cn_buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    cn_buf_printf(path, "%c%s=", memchr(path->data, '?', path->len) ? '&' : '?', name);
    cn_ctl_put_escaped(path, value);
}

/* MODEL/VERSION is split before each part is escaped, because the slash between them must stay one:
 * a?b/1.0 becomes /models/a%3Fb/1.0. */
void
cn_ctl_verb_path(struct cn_buf *path, const char *base, const char *model)
{
    const char *slash = strchr(model, '/');
    char *name = cn_strndup(model, slash ? (size_t)(slash - model) : strlen(model));

    cn_buf_puts(path, base);
    cn_ctl_put_escaped(path, name);
    cn_free(name);
    if (slash) {
        cn_buf_puts(path, "/");
        cn_ctl_put_escaped(path, slash + 1);
    }
}

int
cn_ctl_verb_call(struct cn_ctl_http *http, const struct cn_ctl_options *options, const char *method,
                 const char *path, bool patient, json_t **out, struct cn_error *err)
{
    struct cn_ctl_call call = {
        .method = method, .path = path, .max_bytes = ANSWER_MAX_BYTES, .patient = patient};
    struct cn_buf answer;
    int rc;

    cn_buf_init(&answer, 0);
    rc = cn_ctl_http_call(http, options->management, &call, &answer, err);
    *out = rc ? NULL : json_loadb(answer.data ? answer.data : "", answer.len, 0, NULL);
    cn_buf_fini(&answer);
    if (!rc && !json_is_object(*out) && !json_is_array(*out)) {
        json_decref(*out);
        *out = NULL;
        rc = cn_fail(err, CN_E_PROTOCOL,
                     "the answer from %s is not that of a Continuo management address; give the "
                     "management address with --server",
                     options->management);
    }
    return rc;
}

/* Asks before something is lost. */
static int
ask_first(const struct cn_ctl_options *options, struct cn_error *err)
{
    const char *model = options->words[0], *policy = options->verb.policy;
    const bool stops =
        options->command == CN_CTL_SCALE && strtoull(options->words[1], NULL, 10) == 0;
    char what[300];

    if (options->command == CN_CTL_UNREGISTER)
        snprintf(what, sizeof what,
                 "%.100s will be unregistered: its workers stop, and steps that wait are refused "
                 "(the states stay in its store)",
                 model);
    else if (stops)
        snprintf(what, sizeof what, "%.100s will have 0 workers: it answers no more steps", model);
    else if (options->command == CN_CTL_SWAP && policy && strcmp(policy, "reset") == 0)
        snprintf(what, sizeof what,
                 "sequences that live in older versions than %.100s will lose their states (reset)",
                 model);
    else
        return 0;
    return cn_ctl_confirm(options, what, err);
}

/* Writes method and path of the command's request. */
static const char *
make_request(const struct cn_ctl_options *options, struct cn_buf *path)
{
    const struct cn_ctl_verb_options *verb = &options->verb;

    if (options->command == CN_CTL_REGISTER) {
        cn_buf_puts(path, "/models");
        cn_ctl_verb_query(path, "url", options->words[0]);
        cn_ctl_verb_query(path, "model_name", verb->name);
        cn_ctl_verb_query(path, "initial_workers", verb->workers);
        cn_ctl_verb_query(path, "batch_size", verb->batch_size);
        cn_ctl_verb_query(path, "synchronous", verb->no_wait ? "false" : "true");
        return "POST";
    }
    cn_ctl_verb_path(path, "/models/", options->words[0]);
    switch (options->command) {
    case CN_CTL_UNREGISTER:
        return "DELETE";
    case CN_CTL_SCALE:
        cn_ctl_verb_query(path, "min_worker", options->words[1]);
        cn_ctl_verb_query(path, "max_worker", options->words[options->n_words - 1]);
        cn_ctl_verb_query(path, "synchronous", verb->no_wait ? "false" : "true");
        return "PUT";
    case CN_CTL_SWAP:
        cn_buf_puts(path, "/set-default");
        cn_ctl_verb_query(path, "swap_policy", verb->policy ? verb->policy : "migrate");
        cn_ctl_verb_query(path, "swap_deadline", verb->deadline);
        return "PUT";
    default:
        cn_buf_puts(path, "/set-default");
        cn_ctl_verb_query(path, "swap_policy", verb->policy);
        cn_ctl_verb_query(path, "swap_deadline", verb->deadline);
        return "PUT";
    }
}

/* Reads how many sequences still live in versions that were swapped for another one.
 *
 * The answer has one object for each version. Those that were swapped for another one have a member
 * "swap"; the missing members of the others count as 0. */
static int
count_left(struct cn_ctl_http *http, const struct cn_ctl_options *options, uint64_t *left,
           struct cn_error *err)
{
    const char *slash = strchr(options->words[0], '/');
    char *model = cn_strndup(options->words[0], (size_t)(slash - options->words[0]));
    json_t *versions, *version;
    struct cn_buf path;
    size_t i;
    int rc;

    cn_buf_init(&path, 0);
    cn_ctl_verb_path(&path, "/models/", model);
    cn_buf_append(&path, "/all", sizeof "/all");
    rc = cn_ctl_verb_call(http, options, "GET", path.data, false, &versions, err);
    cn_buf_fini(&path);
    cn_free(model);
    *left = 0;
    if (rc)
        return rc;
    json_array_foreach(versions, i, version)
    {
        const json_t *swap = json_object_get(version, "swap");

        *left += (uint64_t)json_integer_value(json_object_get(swap, "sequencesLeft"));
    }
    json_decref(versions);
    return 0;
}

/* Shows how far the swap is, until no sequence lives in an older version. */
static int
watch_swap(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_error *err)
{
    const struct timespec pause = {LOOK_EVERY_MS / 1000, LOOK_EVERY_MS % 1000 * 1000000L};
    uint64_t left, shown = UINT64_MAX;
    int rc;

    while ((rc = count_left(http, options, &left, err)) == 0) {
        if (left != shown)
            fprintf(stderr, "%" PRIu64 " sequences live in older versions%s\n", left,
                    left ? "; each one moves with its next step (Ctrl-C stops watching only)" : "");
        shown = left;
        if (left == 0)
            return 0;
        nanosleep(&pause, NULL);
    }
    return rc;
}

int
cn_ctl_change(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
              struct cn_buf *hint, struct cn_error *err)
{
    const bool waits = !options->verb.no_wait;
    const char *method, *status;
    struct cn_buf path;
    json_t *value;
    int rc = ask_first(options, err);

    if (rc)
        return rc;
    cn_buf_init(&path, 0);
    method = make_request(options, &path);
    cn_buf_append(&path, "", 1);
    rc = cn_ctl_verb_call(http, options, method, path.data, waits, &value, err);
    cn_buf_fini(&path);
    if (rc == CN_E_NOT_FOUND)
        cn_buf_puts(hint, options->command == CN_CTL_REGISTER
                              ? "A name without a folder is looked up in the folder of the "
                                "server's --model-store.\n"
                              : "continuo-ctl models lists what is registered.\n");
    if (rc)
        return rc;
    if (options->command == CN_CTL_SWAP && waits)
        rc = watch_swap(http, options, err);
    status = json_string_value(json_object_get(value, "status"));
    if (!rc && options->json)
        cn_ctl_json_print(json_incref(value), false, out);
    else if (!rc)
        cn_buf_printf(out, "%s\n", status ? status : "done");
    json_decref(value);
    return rc;
}
