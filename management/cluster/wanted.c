/* management/cluster/wanted.c - the wanted set of models as JSON, and its changes. No state, any
 * thread.
 *
 * The text comes from other nodes, perhaps of another version of Continuo, by way of a store that
 * other programs may write to. So everything in it is checked before it is used.
 */
#include "management/cluster/wanted_priv.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/text/utf8.h"

#define LAYOUT 1
#define TEXT_BYTES_MAX 2048
#define NUMBER_MAX INT64_C(4102444800000) /* the year 2100, as the largest time in ms */

static const struct {
    const char *key;
    size_t offset;
    bool needed;
} texts[] = {
    {"name", offsetof(struct cn_wanted_model, name), true},
    {"version", offsetof(struct cn_wanted_model, version), true},
    {"url", offsetof(struct cn_wanted_model, url), true},
    {"digest", offsetof(struct cn_wanted_model, digest), true},
    {"id", offsetof(struct cn_wanted_model, id), true},
    {"handler", offsetof(struct cn_wanted_model, handler), false},
    {"runtime", offsetof(struct cn_wanted_model, runtime), false},
    {"swapPolicy", offsetof(struct cn_wanted_model, swap_policy), false},
};

static const struct {
    const char *key;
    size_t offset;
    int64_t otherwise, min, max;
} numbers[] = {
    {"batchSize", offsetof(struct cn_wanted_model, batch_size), -1, -1, 65536},
    {"maxBatchDelay", offsetof(struct cn_wanted_model, max_batch_delay_ms), -1, -1, 3600000},
    {"responseTimeout", offsetof(struct cn_wanted_model, response_timeout_s), -1, -1, 2147483},
    {"startupTimeout", offsetof(struct cn_wanted_model, startup_timeout_s), -1, -1, 2147483},
    {"minWorkers", offsetof(struct cn_wanted_model, min_workers), 1, 0, 1024},
    {"maxWorkers", offsetof(struct cn_wanted_model, max_workers), 1, 0, 1024},
    {"retireMSec", offsetof(struct cn_wanted_model, retire_wall_ms), 0, 0, NUMBER_MAX},
};

#define N_TEXTS (sizeof texts / sizeof *texts)
#define N_NUMBERS (sizeof numbers / sizeof *numbers)

static char **
text_at(const struct cn_wanted_model *model, size_t i)
{
    return (char **)((uintptr_t)model + texts[i].offset);
}

static int64_t *
number_at(const struct cn_wanted_model *model, size_t i)
{
    return (int64_t *)((uintptr_t)model + numbers[i].offset);
}

void
cn_wanted_model_fini(struct cn_wanted_model *model)
{
    for (size_t i = 0; i < N_TEXTS; i++)
        cn_free(*text_at(model, i));
    *model = (struct cn_wanted_model){0};
}

void
cn_wanted_fini(struct cn_wanted *wanted)
{
    for (uint32_t i = 0; i < wanted->n; i++)
        cn_wanted_model_fini(&wanted->models[i]);
    cn_free(wanted->models);
    for (uint32_t i = 0; i < wanted->n_log; i++)
        cn_wanted_model_fini(&wanted->log[i].model);
    *wanted = (struct cn_wanted){0};
}

struct cn_wanted_model *
cn_wanted_find(const struct cn_wanted *wanted, const char *name, const char *version)
{
    for (uint32_t i = 0; i < wanted->n; i++) {
        struct cn_wanted_model *model = &wanted->models[i];

        if (strcmp(model->name, name) == 0 &&
            (version && *version ? strcmp(model->version, version) == 0 : model->is_default))
            return model;
    }
    return NULL;
}

/* --- reading and writing */

static int
take_text(const json_t *from, size_t i, const struct cn_wanted_entry *entry,
          struct cn_wanted_model *model, struct cn_error *err)
{
    const json_t *value = json_object_get(from, texts[i].key);
    const char *text = json_string_value(value);

    if (!value && !(entry->is_whole && texts[i].needed))
        return 0;
    if (!text || !*text || strlen(text) > TEXT_BYTES_MAX)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store is damaged: \"%s\" of %s %u must "
                       "be a text of 1 to %d bytes",
                       texts[i].key, entry->what, entry->number, TEXT_BYTES_MAX);
    *text_at(model, i) = cn_strdup(text);
    return 0;
}

static int
take_number(const json_t *from, size_t i, const struct cn_wanted_entry *entry,
            struct cn_wanted_model *model, struct cn_error *err)
{
    const json_t *value = json_object_get(from, numbers[i].key);
    const json_int_t found = value ? json_integer_value(value) : numbers[i].otherwise;

    if ((value && !json_is_integer(value)) || found < numbers[i].min || found > numbers[i].max)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store is damaged: \"%s\" of %s %u must "
                       "be a number from %lld to %lld",
                       numbers[i].key, entry->what, entry->number, (long long)numbers[i].min,
                       (long long)numbers[i].max);
    *number_at(model, i) = found;
    return 0;
}

int
cn_wanted_take_model(const json_t *from, const struct cn_wanted_entry *entry,
                     struct cn_wanted_model *model, struct cn_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < N_TEXTS && !rc; i++)
        rc = take_text(from, i, entry, model, err);
    for (size_t i = 0; i < N_NUMBERS && !rc; i++)
        rc = take_number(from, i, entry, model, err);
    model->is_default = json_is_true(json_object_get(from, "default"));
    if (!rc && model->id && strlen(model->id) >= CN_WANTED_ID_MAX)
        rc = cn_fail(err, CN_E_PROTOCOL,
                     "the set of models in the shared store is damaged: the \"id\" of %s %u is too "
                     "long",
                     entry->what, entry->number);
    return rc;
}

/* Each version stands once, and each name has one default. */
static int
check_set(const struct cn_wanted *wanted, struct cn_error *err)
{
    for (uint32_t i = 0; i < wanted->n; i++) {
        const struct cn_wanted_model *model = &wanted->models[i];
        const struct cn_wanted_model *chosen = cn_wanted_find(wanted, model->name, NULL);

        if (cn_wanted_find(wanted, model->name, model->version) != model)
            return cn_fail(err, CN_E_PROTOCOL,
                           "the set of models in the shared store is damaged: it has model %s "
                           "version %s twice",
                           model->name, model->version);
        if (!chosen || (model->is_default && chosen != model))
            return cn_fail(err, CN_E_PROTOCOL,
                           "the set of models in the shared store is damaged: model %s must have "
                           "one default version",
                           model->name);
    }
    return 0;
}

static int
take_root(const json_t *root, struct cn_wanted *out, struct cn_error *err)
{
    const json_t *models = json_object_get(root, "models");
    const json_int_t layout = json_integer_value(json_object_get(root, "layout"));
    const size_t n = json_array_size(models);
    int rc = 0;

    if (layout != LAYOUT)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store has layout %lld; this version of "
                       "Continuo knows layout %d",
                       (long long)layout, LAYOUT);
    if (!json_is_array(models) || n > CN_WANTED_MODELS_MAX)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store is damaged: \"models\" must be an "
                       "array of at most %d entries",
                       CN_WANTED_MODELS_MAX);
    out->models = cn_alloc((n + 1) * sizeof *out->models);
    for (uint32_t i = 0; i < n && !rc; i++) {
        const struct cn_wanted_entry entry = {"entry", i + 1, true};

        rc = cn_wanted_take_model(json_array_get(models, i), &entry, &out->models[out->n++], err);
    }
    if (!rc)
        rc = cn_wanted_take_log(root, out, err);
    return rc ? rc : check_set(out, err);
}

int
cn_wanted_parse(struct cn_str text, struct cn_wanted *out, struct cn_error *err)
{
    json_error_t wrong;
    json_t *root;
    int rc;

    *out = (struct cn_wanted){.has_log = text.len == 0};
    if (text.len == 0)
        return 0;
    root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &wrong);
    if (!root)
        return cn_fail(err, CN_E_PROTOCOL,
                       "the set of models in the shared store is not JSON: line %d: %s", wrong.line,
                       wrong.text);
    rc = take_root(root, out, err);
    json_decref(root);
    if (rc)
        cn_wanted_fini(out);
    return rc;
}

json_t *
cn_wanted_show_model(const struct cn_wanted_model *model)
{
    json_t *out = json_object();

    for (size_t i = 0; i < N_TEXTS; i++)
        if (*text_at(model, i))
            json_object_set_new(out, texts[i].key, json_string(*text_at(model, i)));
    for (size_t i = 0; i < N_NUMBERS; i++)
        json_object_set_new(out, numbers[i].key, json_integer(*number_at(model, i)));
    json_object_set_new(out, "default", json_boolean(model->is_default));
    return out;
}

void
cn_wanted_print(const struct cn_wanted *wanted, struct cn_buf *out)
{
    json_t *root = json_object(), *models = json_array();
    char *text;

    for (uint32_t i = 0; i < wanted->n; i++)
        json_array_append_new(models, cn_wanted_show_model(&wanted->models[i]));
    json_object_set_new(root, "layout", json_integer(LAYOUT));
    json_object_set_new(root, "models", models);
    cn_wanted_show_log(wanted, root);
    text = json_dumps(root, JSON_COMPACT);
    if (text)
        cn_buf_puts(out, text);
    free(text);
    json_decref(root);
}

/* --- changes */

static void
set_text(char **to, const char *text)
{
    char *fresh = text ? cn_strdup(text) : NULL;

    cn_free(*to);
    *to = fresh;
}

void
cn_wanted_copy_model(struct cn_wanted_model *to, const struct cn_wanted_model *from)
{
    *to = *from;
    for (size_t i = 0; i < N_TEXTS; i++)
        *text_at(to, i) = *text_at(from, i) ? cn_strdup(*text_at(from, i)) : NULL;
}

/* Readers refuse a text that is too long or is not UTF-8, so it must not be written. */
static int
check_texts(const struct cn_wanted_model *model, struct cn_error *err)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *text = *text_at((struct cn_wanted_model *)(uintptr_t)model, i);

        if (text && (strlen(text) > TEXT_BYTES_MAX || !cn_utf8_is_valid(cn_str_from(text))))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "\"%s\" has %zu bytes; with --cluster-models it must be UTF-8 of at "
                           "most %d bytes",
                           texts[i].key, strlen(text), TEXT_BYTES_MAX);
    }
    return 0;
}

static int
apply_register(struct cn_wanted *wanted, const struct cn_wanted_model *model, bool *changed,
               char *id, struct cn_error *err)
{
    const struct cn_wanted_model *other = cn_wanted_find(wanted, model->name, model->version);
    struct cn_wanted_model *more;

    if (other && strcmp(other->digest, model->digest) != 0)
        return cn_fail(err, CN_E_CONFLICT,
                       "Model version %s is already registered for model %s, with another archive "
                       "(SHA-256 %.12s..., not %.12s...)",
                       model->version, model->name, other->digest, model->digest);
    if (id)
        snprintf(id, CN_WANTED_ID_MAX, "%s", other ? other->id : model->id);
    if (other)
        return 0;
    if (check_texts(model, err))
        return err->code;
    if (wanted->n >= CN_WANTED_MODELS_MAX)
        return cn_fail(err, CN_E_UNAVAILABLE, "the nodes already serve %d model versions",
                       CN_WANTED_MODELS_MAX);
    more = cn_alloc((wanted->n + 1) * sizeof *more);
    if (wanted->n)
        memcpy(more, wanted->models, wanted->n * sizeof *more);
    cn_free(wanted->models);
    wanted->models = more;
    cn_wanted_copy_model(&more[wanted->n], model);
    more[wanted->n].is_default = !cn_wanted_find(wanted, model->name, NULL);
    more[wanted->n].retire_wall_ms = 0;
    wanted->n++;
    *changed = true;
    return 0;
}

static void
apply_scale(struct cn_wanted_model *found, const struct cn_wanted_model *model, bool *changed)
{
    *changed = found->min_workers != model->min_workers || found->max_workers != model->max_workers;
    found->min_workers = model->min_workers;
    found->max_workers = model->max_workers;
}

/* The default until now gets the time at which it goes; the version that becomes the default loses
 * such a time, if it had one from an earlier swap. */
static void
apply_default(struct cn_wanted *wanted, struct cn_wanted_model *found,
              const struct cn_wanted_change *change, bool *changed)
{
    struct cn_wanted_model *before = cn_wanted_find(wanted, found->name, NULL);

    if (before != found) {
        before->is_default = false;
        before->retire_wall_ms = change->retire_wall_ms;
        set_text(&before->swap_policy, NULL);
    }
    found->is_default = true;
    found->retire_wall_ms = 0;
    set_text(&found->swap_policy, change->model.swap_policy);
    *changed = true;
}

static bool
has_others(const struct cn_wanted *wanted, const struct cn_wanted_model *model)
{
    for (uint32_t i = 0; i < wanted->n; i++)
        if (&wanted->models[i] != model && strcmp(wanted->models[i].name, model->name) == 0)
            return true;
    return false;
}

static int
apply_unregister(struct cn_wanted *wanted, struct cn_wanted_model *found, bool *changed,
                 struct cn_error *err)
{
    const uint32_t i = (uint32_t)(found - wanted->models);

    if (found->is_default && has_others(wanted, found))
        return cn_fail(err, CN_E_VERSION_IN_USE, "Cannot remove default version for model %s",
                       found->name);
    cn_wanted_model_fini(found);
    memmove(found, found + 1, (wanted->n - i - 1) * sizeof *found);
    wanted->n--;
    wanted->models[wanted->n] = (struct cn_wanted_model){0};
    *changed = true;
    return 0;
}

static int
fail_unknown(const struct cn_wanted *wanted, const struct cn_wanted_change *change,
             struct cn_error *err)
{
    const char *name = change->model.name, *version = change->model.version;

    if (!cn_wanted_find(wanted, name, NULL))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND, "Model not found: %s", name);
    if (change->kind == CN_WANTED_SET_DEFAULT) /* TorchServe's text has no colons here */
        return cn_fail(err, CN_E_VERSION_NOT_FOUND, "Model version %s does not exist for model %s",
                       version, name);
    return cn_fail(err, CN_E_VERSION_NOT_FOUND, "Model version: %s does not exist for model: %s",
                   version, name);
}

/* Applies the change to a version that the set has. */
static int
apply_to(struct cn_wanted *wanted, struct cn_wanted_model *found,
         const struct cn_wanted_change *change, bool *changed, struct cn_error *err)
{
    const struct cn_wanted_model *model = &change->model;
    const bool is_meant = !model->id || strcmp(found->id, model->id) == 0;

    switch (change->kind) {
    case CN_WANTED_SCALE:
        apply_scale(found, model, changed);
        return 0;
    case CN_WANTED_SET_DEFAULT:
        apply_default(wanted, found, change, changed);
        return 0;
    case CN_WANTED_RETIRED:
        return is_meant && !found->is_default ? apply_unregister(wanted, found, changed, err) : 0;
    default:
        return is_meant ? apply_unregister(wanted, found, changed, err) : 0;
    }
}

/* The change is noted in the log with the registration's id and its version, even if the caller has
 * named neither. When the log is merged into another set later, "unregister the default version"
 * must not hit another version there. */
int
cn_wanted_apply(struct cn_wanted *wanted, const struct cn_wanted_change *change, bool *changed,
                char *id, struct cn_error *err)
{
    const struct cn_wanted_model *model = &change->model;
    struct cn_wanted_change noted = *change;
    struct cn_wanted_model *found = cn_wanted_find(wanted, model->name, model->version);
    char its_id[CN_WANTED_ID_MAX], *version = NULL;
    int rc;

    *changed = false;
    if (change->kind == CN_WANTED_REGISTER) {
        rc = apply_register(wanted, model, changed, id, err);
    } else if (!found) {
        return change->kind == CN_WANTED_RETIRED ? 0 : fail_unknown(wanted, change, err);
    } else {
        snprintf(its_id, sizeof its_id, "%s", found->id);
        version = cn_strdup(found->version);
        noted.model.id = its_id;
        noted.model.version = version;
        if (id)
            snprintf(id, CN_WANTED_ID_MAX, "%s", its_id);
        rc = apply_to(wanted, found, change, changed, err);
    }
    if (*changed)
        cn_wanted_note(wanted, &noted);
    cn_free(version);
    return rc;
}
