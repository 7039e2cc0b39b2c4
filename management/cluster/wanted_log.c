/* management/cluster/wanted_log.c - the last changes of the wanted set, and the merge of two sets.
 * No state, any thread.
 *
 * Two sets differ if the store has lost changes at a failover and other nodes have made new ones
 * since. The lost changes were made earlier, so the new ones are applied to the set that has the
 * lost ones: the last change of the same thing then wins, as if nothing had been lost. Only if the
 * store has forgotten some of its new changes (more than the log holds), the lost ones are applied
 * to the store's set.
 *
 * Every change has a random id, and the merged log has the ids of both sets. So all nodes agree
 * after the first merge that is written: what another node misses is in it.
 */
#include <string.h>

#include "management/cluster/wanted_priv.h"

static const char *const kinds[] = {
    [CN_WANTED_REGISTER] = "register",       [CN_WANTED_SCALE] = "scale",
    [CN_WANTED_SET_DEFAULT] = "set-default", [CN_WANTED_UNREGISTER] = "unregister",
    [CN_WANTED_RETIRED] = "retired",
};

#define GENERATION_MAX (INT64_C(1) << 53) /* as far as every reader of JSON counts exactly */
#define N_KINDS (sizeof kinds / sizeof *kinds)

const char *
cn_wanted_kind_word(enum cn_wanted_kind kind)
{
    return kinds[kind];
}

/* --- reading and writing */

static int
fail_log(uint32_t number, const char *what, struct cn_error *err)
{
    return cn_fail(err, CN_E_PROTOCOL,
                   "the set of models in the shared store is damaged: change %u: %s", number, what);
}

static int
take_change(const json_t *from, uint32_t number, struct cn_wanted_change *out, struct cn_error *err)
{
    const char *id = json_string_value(json_object_get(from, "change"));
    const json_int_t generation = json_integer_value(json_object_get(from, "generation"));
    const struct cn_wanted_entry entry = {"change", number, out->kind == CN_WANTED_REGISTER};
    int rc = cn_wanted_take_model(from, &entry, &out->model, err);

    if (rc)
        return rc;
    if (!out->model.name || !out->model.version)
        return fail_log(number, "name or version is missing", err);
    if (out->kind == CN_WANTED_RETIRED && !out->model.id)
        return fail_log(number, "\"id\" is missing", err);
    if (!id || !*id || strlen(id) >= CN_WANTED_ID_MAX)
        return fail_log(number, "\"change\" is missing or too long", err);
    if (generation < 1 || generation > GENERATION_MAX)
        return fail_log(number, "\"generation\" is out of range", err);
    memcpy(out->change_id, id, strlen(id) + 1);
    out->generation = (uint64_t)generation;
    out->retire_wall_ms = out->model.retire_wall_ms;
    return 0;
}

/* The kinds of all changes, or false if a newer version of Continuo has another kind. */
static bool
take_kinds(const json_t *changes, struct cn_wanted *out)
{
    for (uint32_t i = 0; i < json_array_size(changes); i++) {
        const char *word = json_string_value(json_object_get(json_array_get(changes, i), "kind"));
        uint32_t kind = 0;

        while (word && kind < N_KINDS && strcmp(kinds[kind], word) != 0)
            kind++;
        if (!word || kind == N_KINDS)
            return false;
        out->log[i].kind = (enum cn_wanted_kind)kind;
    }
    return true;
}

int
cn_wanted_take_log(const json_t *root, struct cn_wanted *out, struct cn_error *err)
{
    const json_t *changes = json_object_get(root, "changes");
    const json_int_t since = json_integer_value(json_object_get(root, "changesSince"));
    uint64_t least;
    int rc = 0;

    if (!changes)
        return 0;
    if (!json_is_array(changes) || json_array_size(changes) > CN_WANTED_LOG_MAX || since < 0 ||
        since > GENERATION_MAX)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store is damaged: \"changes\" must be an "
                       "array of at most %d entries, and \"changesSince\" at least 0",
                       CN_WANTED_LOG_MAX);
    out->has_log = take_kinds(changes, out);
    out->log_since = (uint64_t)since;
    least = out->log_since + 1;
    for (uint32_t i = 0; out->has_log && i < json_array_size(changes) && !rc; i++) {
        rc = take_change(json_array_get(changes, i), i + 1, &out->log[out->n_log++], err);
        if (!rc && out->log[i].generation < least)
            rc = fail_log(i + 1, "\"generation\" is lower than the one before", err);
        least = out->log[i].generation;
    }
    return rc;
}

void
cn_wanted_show_log(const struct cn_wanted *wanted, json_t *root)
{
    json_t *changes = json_array();

    for (uint32_t i = 0; i < wanted->n_log; i++) {
        const struct cn_wanted_change *change = &wanted->log[i];
        json_t *out = cn_wanted_show_model(&change->model);

        json_object_set_new(out, "kind", json_string(kinds[change->kind]));
        json_object_set_new(out, "change", json_string(change->change_id));
        json_object_set_new(out, "generation", json_integer((json_int_t)change->generation));
        json_array_append_new(changes, out);
    }
    if (wanted->has_log) {
        json_object_set(root, "changes", changes);
        json_object_set_new(root, "changesSince", json_integer((json_int_t)wanted->log_since));
    }
    json_decref(changes);
}

/* --- the log */

void
cn_wanted_note(struct cn_wanted *wanted, const struct cn_wanted_change *change)
{
    struct cn_wanted_change *out;

    if (!wanted->has_log) {
        wanted->has_log = true;
        wanted->log_since = change->generation - 1;
    }
    if (wanted->n_log == CN_WANTED_LOG_MAX) {
        wanted->log_since = wanted->log[0].generation;
        cn_wanted_model_fini(&wanted->log[0].model);
        memmove(wanted->log, wanted->log + 1, --wanted->n_log * sizeof *wanted->log);
    }
    out = &wanted->log[wanted->n_log++];
    *out = *change;
    if (wanted->n_log > 1 && out->generation < out[-1].generation) /* by a log from elsewhere */
        out->generation = out[-1].generation;
    cn_wanted_copy_model(&out->model, &change->model);
    out->model.retire_wall_ms = change->retire_wall_ms;
}

static bool
log_has(const struct cn_wanted *wanted, const struct cn_wanted_change *change)
{
    for (uint32_t i = 0; i < wanted->n_log; i++)
        if (strcmp(wanted->log[i].change_id, change->change_id) == 0)
            return true;
    return false;
}

/* Whether the change is in the set. One that is older than the log counts as contained. */
static bool
contains(const struct cn_wanted *wanted, const struct cn_wanted_change *change)
{
    return change->generation <= wanted->log_since || log_has(wanted, change);
}

/* --- the merge */

static bool
contains_all(const struct cn_wanted *wanted, const struct cn_wanted *other)
{
    for (uint32_t i = 0; i < other->n_log; i++)
        if (!contains(wanted, &other->log[i]))
            return false;
    return true;
}

static void
swap(struct cn_wanted *a, struct cn_wanted *b)
{
    struct cn_wanted kept = *a;

    *a = *b;
    *b = kept;
}

/* Applies the changes of `from` that `to` does not have. */
static void
apply_missing(struct cn_wanted *to, const struct cn_wanted *from, uint64_t generation,
              cn_wanted_lost_fn on_lost, void *ctx)
{
    const struct cn_wanted_change *missing[CN_WANTED_LOG_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < from->n_log; i++) /* before the log of `to` forgets anything */
        if (!contains(to, &from->log[i]))
            missing[n++] = &from->log[i];
    for (uint32_t i = 0; i < n; i++) {
        struct cn_wanted_change change = *missing[i];
        struct cn_error err;
        bool changed;

        change.generation = generation;
        if (cn_wanted_apply(to, &change, &changed, NULL, &err))
            on_lost(ctx, &change, &err);
        if (!changed)
            cn_wanted_note(to, &change); /* it has been dealt with, on all nodes */
    }
}

/* Example: the store has the changes 1 2 3, fails over and comes back with 1 2; then another node
 * adds 4. This node still has 1 2 3. The store's set lacks 3, so 4 is applied to 1 2 3. Had both
 * scaled the same model, 4 would win, as it is the later one. A set without a log is of an older
 * version: then the higher generation wins as a whole. */
bool
cn_wanted_merge(struct cn_wanted *stored, struct cn_wanted *mine, bool went_back,
                uint64_t generation, cn_wanted_lost_fn on_lost, void *ctx)
{
    if (!stored->has_log || !mine->has_log) {
        if (went_back)
            swap(stored, mine);
        return went_back;
    }
    if (contains_all(stored, mine))
        return false;
    /* Does the store's log reach back to what both sets have? */
    if (stored->n_log == 0 || stored->log_since == 0 || contains(mine, &stored->log[0]))
        swap(stored, mine);
    apply_missing(stored, mine, generation, on_lost, ctx);
    return true;
}
