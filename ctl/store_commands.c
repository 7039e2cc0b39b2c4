/* ctl/store_commands.c - the commands of continuo-ctl store: they list the stores, delete stores
 * without a model, and accept the loss of damaged stores.
 *
 * A store is the folder with the states of one model version. It stays when its model is
 * unregistered, so that the model can come back with its sequences; `store rm` removes it. A store
 * that lost acknowledged steps makes the server report a problem until an operator accepts the
 * loss: the sequences concerned are then forgotten, and their ids begin anew. The server refuses
 * what would be dangerous, such as deleting the store of a registered model; this program only
 * asks. */
#include "ctl/store_commands.h"

#include <jansson.h>
#include <string.h>

#include "core/memory/mem.h"
#include "ctl/columns.h"
#include "ctl/json_out.h"

#define ANSWER_MAX_BYTES (64u << 20)

static const struct {
    const char *name, *words, *help;
    unsigned n_words;
} verbs[] = {
    {"ls", "", "list the stores in the state folder with their sizes and sequences", 0},
    {"rm", "MODEL/VERSION", "delete a store that belongs to no registered model", 1},
    {"accept", "MODEL[/VERSION]", "accept the loss of a damaged store; what it lost starts anew",
     1},
    {"count-shared", "MODEL/VERSION", "count the sequences of a model version in the shared store",
     1},
    {"rm-shared", "MODEL/VERSION",
     "delete them there; no node may serve the model version any more", 1},
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])

void
cn_ctl_store_help(FILE *out)
{
    fputs("usage: continuo-ctl store COMMAND\n\n"
          "Manages the stores in the server's state folder; each model version has one. The "
          "commands\n"
          "with \"shared\" concern the store that several nodes share.\n\n",
          out);
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(out, "  store %-12s %-16s %s\n", verbs[i].name, verbs[i].words, verbs[i].help);
    fputs(
        "\nWrite MODEL and VERSION as store ls shows them. continuo-ctl --help explains --server\n"
        "and --json.\n",
        out);
}

void
cn_ctl_store_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out)
{
    char name[64];

    for (size_t i = 0; i < N_VERBS; i++) {
        snprintf(name, sizeof name, "store %s %s", verbs[i].name, verbs[i].words);
        put(out, name, verbs[i].help);
    }
}

int
cn_ctl_store_check(const struct cn_ctl_options *options, struct cn_error *err)
{
    const char *name = options->n_words > 1 ? options->words[1] : "", *slash = strchr(name, '/');
    size_t i = 0;

    while (options->n_words > 0 && i < N_VERBS && strcmp(verbs[i].name, options->words[0]) != 0)
        i++;
    if (options->n_words == 0 || i == N_VERBS)
        return cn_fail(err, CN_E_CONFIG,
                       "unknown command \"store %.60s\"; store --help lists the commands",
                       options->n_words ? options->words[0] : "");
    if (options->n_words - 1 != verbs[i].n_words)
        return cn_fail(err, CN_E_CONFIG,
                       "wrong number of arguments; usage: continuo-ctl store %s %s", verbs[i].name,
                       verbs[i].words);
    if (verbs[i].n_words &&
        (!name[0] || slash == name || (slash && (!slash[1] || strchr(slash + 1, '/'))) ||
         (!slash && strcmp(verbs[i].name, "accept") != 0)))
        return cn_fail(
            err, CN_E_CONFIG,
            "\"%.100s\" does not name a store; write %s as continuo-ctl store ls shows it", name,
            verbs[i].words);
    return 0;
}

/* --- calls --- */

static int
call_json(struct cn_ctl_http *http, const char *management, const char *method, const char *path,
          json_t **out, struct cn_error *err)
{
    struct cn_ctl_call call = {.method = method, .path = path, .max_bytes = ANSWER_MAX_BYTES};
    struct cn_buf answer;
    int rc;

    cn_buf_init(&answer, 0);
    rc = cn_ctl_http_call(http, management, &call, &answer, err);
    *out = rc ? NULL : json_loadb(answer.data ? answer.data : "", answer.len, 0, NULL);
    cn_buf_fini(&answer);
    if (!rc && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        rc = cn_fail(err, CN_E_PROTOCOL,
                     "the answer from %s is not that of a Continuo management address; give the "
                     "management address with --server",
                     management);
    }
    return rc;
}

static const char *
text_of(const json_t *value, const char *key)
{
    const char *text = json_string_value(json_object_get(value, key));

    return text ? text : "";
}

static void
put_table(const json_t *stores, struct cn_buf *out)
{
    struct cn_ctl_table table;
    const json_t *store;
    size_t i;

    cn_ctl_table_init(&table, "llrrl");
    for (i = 0; i < 5; i++)
        cn_ctl_table_add(&table, "%s",
                         ((const char *[]){"STORE", "STATE", "SIZE", "SEQUENCES", "DAMAGE"})[i]);
    json_array_foreach(stores, i, store)
    {
        const json_t *sequences = json_object_get(store, "sequences");
        struct cn_buf size;

        cn_buf_init(&size, 0);
        cn_ctl_put_bytes(&size, (uint64_t)json_integer_value(json_object_get(store, "bytes")));
        cn_ctl_table_add(&table, "%s", text_of(store, "name"));
        cn_ctl_table_add(&table, "%s", text_of(store, "state"));
        cn_ctl_table_add(&table, "%.*s", (int)size.len, size.data);
        if (json_is_integer(sequences))
            cn_ctl_table_add(&table, "%lld", (long long)json_integer_value(sequences));
        else
            cn_ctl_table_add(&table, "-");
        cn_ctl_table_add(&table, "%s", *text_of(store, "damage") ? text_of(store, "damage") : "-");
        cn_buf_fini(&size);
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

/* Writes "/BEGIN/model/version", then `more` and its NUL, into `path`. */
static void
put_path(struct cn_buf *path, const char *begin, const char *name, const char *more)
{
    const char *slash = strchr(name, '/');
    char *model = cn_strndup(name, (size_t)(slash - name));

    cn_buf_reset(path);
    cn_buf_printf(path, "/%s/", begin);
    cn_ctl_put_escaped(path, model);
    cn_buf_puts(path, "/");
    cn_ctl_put_escaped(path, slash + 1);
    cn_buf_append(path, more, strlen(more) + 1);
    cn_free(model);
}

static int
change(struct cn_ctl_http *http, const struct cn_ctl_options *options, const char *name,
       struct cn_buf *out, struct cn_error *err)
{
    const bool accepts = strcmp(options->words[0], "accept") == 0;
    struct cn_buf path;
    json_t *value;
    int rc;

    cn_buf_init(&path, 0);
    put_path(&path, "stores", name, accepts ? "/accept" : "");
    rc = call_json(http, options->management, accepts ? "POST" : "DELETE", path.data, &value, err);
    cn_buf_fini(&path);
    if (rc)
        return rc;
    if (options->json)
        cn_ctl_json_print(json_incref(value), true, out);
    else
        cn_buf_printf(out, "%s %s\n", name, text_of(value, "status"));
    json_decref(value);
    return 0;
}

static long long
number_in(const json_t *value, const char *key)
{
    return (long long)json_integer_value(json_object_get(value, key));
}

/* Counts or deletes in the shared store. The server deletes a part with each call. Progress goes to
 * stderr; if this program is stopped, the same command goes on with what is left. */
static int
change_shared(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
              struct cn_error *err)
{
    const bool removes = strcmp(options->words[0], "rm-shared") == 0;
    const char *name = options->words[1];
    long long removed = 0, left, now;
    struct cn_buf path;
    json_t *value;
    int rc;

    cn_buf_init(&path, 0);
    put_path(&path, "shared-states", name, "");
    do {
        rc = call_json(http, options->management, removes ? "DELETE" : "GET", path.data, &value,
                       err);
        if (rc)
            break;
        removed += now = number_in(value, "removed");
        left = number_in(value, "left");
        if (removes && left && !now)
            rc = cn_fail(err, CN_E_CONFLICT,
                         "%.100s still has %lld sequences, and the server deletes none of them: "
                         "something writes to them",
                         name, left);
        if (removes && left)
            fprintf(stderr, "%s: %lld deleted, %lld left\n", name, removed, left);
        if ((!removes || !left) && options->json) {
            if (removes)
                json_object_set_new(value, "removed", json_integer(removed));
            cn_ctl_json_print(json_incref(value), true, out);
        } else if (!removes) {
            cn_buf_printf(out, "%s has %lld sequences in the shared store%s\n", name, left,
                          json_is_true(json_object_get(value, "inUse")) ? ", and a node serves it"
                                                                        : "");
        } else if (!left) {
            cn_buf_printf(out, "%s: %lld sequences deleted from the shared store\n", name, removed);
        }
        json_decref(value);
    } while (!rc && removes && left);
    cn_buf_fini(&path);
    return rc;
}

/* Accepts the loss of all damaged stores of a model. */
static int
accept_all(struct cn_ctl_http *http, const struct cn_ctl_options *options, json_t *stores,
           struct cn_buf *out, struct cn_error *err)
{
    const char *model = options->words[1];
    const size_t len = strlen(model);
    const json_t *store;
    unsigned n = 0;
    int rc = 0;
    size_t i;

    json_array_foreach(stores, i, store)
    {
        const char *name = text_of(store, "name");

        if (rc || strncmp(name, model, len) != 0 || name[len] != '/' || !*text_of(store, "damage"))
            continue;
        n++;
        rc = change(http, options, name, out, err);
    }
    if (!rc && n == 0)
        return cn_fail(err, CN_E_NOT_FOUND,
                       "model %.100s has no damaged store; continuo-ctl store ls lists all", model);
    return rc;
}

int
cn_ctl_store(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
             struct cn_error *err)
{
    json_t *value, *stores;
    int rc;

    if (strstr(options->words[0], "-shared"))
        return change_shared(http, options, out, err);
    if (options->n_words > 1 && strchr(options->words[1], '/'))
        return change(http, options, options->words[1], out, err);
    rc = call_json(http, options->management, "GET", "/stores?count=true", &value, err);
    if (rc)
        return rc;
    stores = json_object_get(value, "stores");
    if (options->n_words > 1)
        rc = accept_all(http, options, stores, out, err);
    else if (options->json)
        cn_ctl_json_print(json_incref(stores), false, out);
    else
        put_table(stores, out);
    json_decref(value);
    return rc;
}

void
cn_ctl_store_read(struct cn_ctl_http *http, const char *management, struct cn_ctl_view *view)
{
    struct cn_error err;
    const json_t *entry;
    json_t *value;
    size_t i;

    if (call_json(http, management, "GET", "/stores", &value, &err))
        return;
    json_array_foreach(json_object_get(value, "unhealthy"), i, entry)
    {
        if (view->n_reasons == CN_CTL_REASONS_MAX)
            break;
        view->reasons[view->n_reasons].subject =
            cn_arena_printf(&view->arena, "%s", text_of(entry, "subject"));
        view->reasons[view->n_reasons].kind =
            cn_arena_printf(&view->arena, "%s", text_of(entry, "kind"));
        view->reasons[view->n_reasons++].text =
            cn_arena_printf(&view->arena, "%s", text_of(entry, "text"));
    }
    json_array_foreach(json_object_get(value, "stores"), i, entry)
    {
        if (strcmp(text_of(entry, "state"), "in use") == 0)
            continue;
        view->n_unused++;
        view->unused_bytes += (uint64_t)json_integer_value(json_object_get(entry, "bytes"));
        if (!view->unused)
            view->unused = cn_arena_printf(&view->arena, "%s", text_of(entry, "name"));
    }
    json_decref(value);
}
