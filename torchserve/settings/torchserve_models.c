/* torchserve/settings/torchserve_models.c - the JSON of per-model settings, in the property
 * `models` and in snapshots. Main thread.
 *
 * Both have the same shape, {"MODEL": {"VERSION": {settings}}}. In a snapshot, a setting may be 0
 * (a model that was scaled to no workers), and marName is required, since it says which archive to
 * load again. A setting that is missing or not a number of its range becomes -1, which means that
 * the model's own YAML decides. */
#include "torchserve/settings/torchserve_models.h"

#include <jansson.h>

#include "core/memory/mem.h"

#define MODELS_MAX 10000 /* the same limit as for --models */

static int64_t
number(const json_t *object, const char *key, int64_t least)
{
    const json_t *value = json_object_get(object, key);
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;

    return n >= least && n <= INT32_MAX ? n : -1;
}

static void
read_settings(const char *name, const char *version, const json_t *from, int64_t least_workers,
              struct cn_model_settings *out)
{
    const char *mar_name = json_string_value(json_object_get(from, "marName"));

    *out = (struct cn_model_settings){
        .name = cn_strdup(name),
        .version = cn_strdup(version),
        .mar_name = mar_name ? cn_strdup(mar_name) : NULL,
        .is_default = json_is_true(json_object_get(from, "defaultVersion")),
        .min_workers = number(from, "minWorkers", least_workers),
        .max_workers = number(from, "maxWorkers", least_workers),
        .batch_size = number(from, "batchSize", 1),
        .max_batch_delay_ms = number(from, "maxBatchDelay", least_workers),
        .response_timeout_s = number(from, "responseTimeout", 1),
        .startup_timeout_s = number(from, "startupTimeout", 1),
    };
}

/* Reads the models of either key. A number of workers below `least_workers` counts as not given. */
static int
read_models(const char *where, const json_t *models, int64_t least_workers,
            struct cn_model_settings **out, uint32_t *count, struct cn_error *err)
{
    struct cn_model_settings *found, *grown;
    const char *name, *version;
    json_t *versions, *settings;
    uint32_t n = 0;

    if (!json_is_object(models))
        return cn_fail(err, CN_E_CONFIG, "%s: expected {\"MODEL\": {\"VERSION\": {...}}}", where);
    found = NULL;
    json_object_foreach((json_t *)(uintptr_t)models, name, versions)
    {
        if (!json_is_object(versions)) {
            cn_model_settings_free(found, n);
            return cn_fail(err, CN_E_CONFIG, "%s: model %.100s: expected {\"VERSION\": {...}}",
                           where, name);
        }
        json_object_foreach(versions, version, settings)
        {
            grown = json_is_object(settings) && n < MODELS_MAX
                        ? cn_try_realloc(found, (n + 1) * sizeof(*found))
                        : NULL;
            if (grown == NULL) {
                cn_model_settings_free(found, n);
                return cn_fail(err, CN_E_CONFIG,
                               "%s: model %.100s version %.100s: expected {...} with settings, and "
                               "at most %d models",
                               where, name, version, MODELS_MAX);
            }
            found = grown;
            read_settings(name, version, settings, least_workers, &found[n++]);
        }
    }
    *out = found;
    *count = n;
    return 0;
}

static json_t *
parse(const char *where, const char *text, struct cn_error *err)
{
    json_error_t why;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);

    if (json == NULL)
        cn_fail(err, CN_E_CONFIG, "%s: the value is not valid JSON: %s (at byte %d)", where,
                why.text, why.position);
    return json;
}

int
cn_torchserve_models_parse(const char *where, const char *json, struct cn_model_settings **out,
                           uint32_t *count, struct cn_error *err)
{
    json_t *root = parse(where, json, err);
    int rc = CN_E_CONFIG;

    if (root != NULL)
        rc = read_models(where, root, 1, out, count, err);
    json_decref(root);
    return rc;
}

int
cn_torchserve_snapshot_parse(const char *where, const char *json, struct cn_model_settings **out,
                             uint32_t *count, struct cn_error *err)
{
    json_t *root = parse(where, json, err);
    int rc = CN_E_CONFIG;

    if (root != NULL)
        rc = read_models(where, json_object_get(root, "models"), 0, out, count, err);
    json_decref(root);
    for (uint32_t i = 0; rc == 0 && i < *count; i++) {
        if ((*out)[i].mar_name != NULL && (*out)[i].mar_name[0] != '\0')
            continue;
        rc = cn_fail(err, CN_E_CONFIG, "%s: model %.100s version %.100s has no marName", where,
                     (*out)[i].name, (*out)[i].version);
        cn_model_settings_free(*out, *count);
        *out = NULL;
        *count = 0;
    }
    return rc;
}
