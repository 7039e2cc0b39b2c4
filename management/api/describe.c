/* management/api/describe.c - the JSON of GET /models/... Loop 0; the facts come from the queues'
 * loops.
 *
 * Settings are known on loop 0, but everything that changes (workers, queue, sequences) belongs to
 * the loop of each version. So a description of several versions is gathered: gather() asks each
 * pool, on_facts() fills in the object of its version (version_json.c), and the last answer
 * completes the whole.
 *
 * The version cannot be freed meanwhile: a close asks the same loop after us, so our question is
 * answered first.
 */
#include "management/api/describe.h"

#include <string.h>

#include "core/memory/mem.h"
#include "management/api/json/environment_json.h"
#include "management/api/json/json_text.h"
#include "management/api/json/version_json.h"
#include "management/api/self_description.h"
#include "management/cluster/cluster.h"
#include "management/models/download.h"
#include "management/repository/model_store.h"

struct describing {
    struct cn_management *management;
    cn_describe_done_fn done;
    void *ctx;
    json_t *models;
    json_t *metadata; /* what the handler says of itself, if that was asked for; or NULL */
    json_t *cluster;  /* the models of all nodes; NULL without --cluster-models */
    char *missing, *missing_version; /* the model that this node does not have, or NULL */
    struct cn_error err;
    unsigned left;
};

struct gathering {
    struct describing *describing;
    const struct cn_version *version;
    json_t *place; /* its object in the array, borrowed */
    struct cn_worker_pool_facts facts;
};

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *
cn_describe_version(const struct cn_version *version, const struct cn_worker_pool_facts *facts)
{
    json_t *out = json_object();

    cn_version_show(out, version, facts);
    return out;
}

/* Adds the versions of the set of models that this node has not loaded. */
static void
show_missing(struct describing *describing)
{
    const json_t *wanted;
    size_t i;

    json_array_foreach(json_object_get(describing->cluster, "models"), i, wanted)
    {
        const char *name = json_string_value(json_object_get(wanted, "name"));
        const char *version = json_string_value(json_object_get(wanted, "version"));
        const bool is_meant = describing->missing_version
                                  ? strcmp(describing->missing_version, version) == 0
                                  : json_is_true(json_object_get(wanted, "default"));
        json_t *out;

        if (strcmp(name, describing->missing) != 0 || !is_meant)
            continue;
        out = json_object();
        put(out, "modelName", json_incref(json_object_get(wanted, "name")));
        put(out, "modelVersion", json_incref(json_object_get(wanted, "version")));
        put(out, "modelUrl", json_incref(json_object_get(wanted, "url")));
        put(out, "workers", json_array());
        json_array_append_new(describing->models, out);
        describing->err.code = 0;
    }
}

/* Adds to each version how far the nodes are with it. */
static void
show_cluster(struct describing *describing)
{
    json_t *model;
    size_t i;

    if (describing->missing)
        show_missing(describing);
    json_array_foreach(describing->models, i, model)
    {
        const char *name = json_string_value(json_object_get(model, "modelName"));
        const char *version = json_string_value(json_object_get(model, "modelVersion"));
        json_t *nodes =
            name && version ? cn_cluster_of_version(describing->cluster, name, version) : NULL;

        if (nodes)
            put(model, "cluster", nodes);
    }
    json_decref(describing->cluster);
    cn_free(describing->missing);
    cn_free(describing->missing_version);
}

static void
describing_check(struct describing *describing)
{
    struct cn_management *management = describing->management;

    if (--describing->left > 0)
        return;
    show_cluster(describing);
    if (describing->metadata)
        put(json_array_get(describing->models, 0), "customizedMetadata", describing->metadata);
    if (describing->err.code) {
        json_decref(describing->models);
        describing->done(describing->ctx, NULL, &describing->err);
    } else {
        describing->done(describing->ctx, describing->models, NULL);
    }
    cn_free(describing);
    cn_management_op_end(management);
}

static void
on_cluster(void *ctx, json_t *value)
{
    struct describing *describing = ctx;

    describing->cluster = value;
    describing_check(describing);
}

static void
on_facts(struct cn_worker_pool_facts *facts)
{
    struct gathering *gathering = cn_container_of(facts, struct gathering, facts);
    struct describing *describing = gathering->describing;

    cn_version_show(gathering->place, gathering->version, facts);
    cn_worker_pool_facts_fini(facts);
    cn_free(gathering);
    describing_check(describing);
}

static void
gather(struct describing *describing, const struct cn_version *version)
{
    struct gathering *gathering = cn_alloc(sizeof *gathering);

    gathering->describing = describing;
    gathering->version = version;
    gathering->place = json_object();
    json_array_append_new(describing->models, gathering->place);
    gathering->facts.on_done = on_facts;
    describing->left++;
    cn_worker_pool_facts(version->pool, &gathering->facts);
}

static void
on_self_description(void *ctx, json_t *metadata, const struct cn_error *err)
{
    struct describing *describing = ctx;

    describing->metadata = metadata;
    if (err)
        describing->err = *err;
    describing_check(describing);
}

/* Is this the name that the model will have, as far as is known during its download? */
static bool
is_called(const struct cn_download *download, const char *name)
{
    char *file, *stem;
    bool same;

    if (download->name)
        return strcmp(download->name, name) == 0;
    file = cn_download_file_name(download->url, NULL);
    if (!file)
        return false;
    stem = cn_model_store_stem(file);
    same = strcmp(stem, name) == 0;
    cn_free(stem);
    cn_free(file);
    return same;
}

/* An array with the progress of the model's download; NULL: there is none. */
static json_t *
show_download(struct cn_management *management, const char *name)
{
    json_t *out, *progress, *all;
    struct cn_list *node;

    cn_list_for_each(node, &management->downloads) {
        const struct cn_download *download = cn_container_of(node, struct cn_download, link);

        if (!is_called(download, name))
            continue;
        out = json_object();
        put(out, "modelName", cn_json_text(name));
        put(out, "modelUrl", cn_json_text(download->url));
        put(out, "workers", json_array());
        progress = json_object();
        put(progress, "bytes",
            number(atomic_load_explicit(&download->bytes, memory_order_relaxed)));
        put(progress, "totalBytes",
            number(atomic_load_explicit(&download->total_bytes, memory_order_relaxed)));
        put(out, "download", progress);
        all = json_array();
        json_array_append_new(all, out);
        return all;
    }
    return NULL;
}

/* An array with the progress of the model's packages; NULL: it waits for none. */
static json_t *
show_installation(struct cn_management *management, const char *name, const char *version)
{
    json_t *environment = cn_environment_awaited_json(management, name, version), *out, *all;

    if (!environment)
        return NULL;
    out = json_object();
    put(out, "modelName", cn_json_text(name));
    put(out, "workers", json_array());
    put(out, "environment", environment);
    all = json_array();
    json_array_append_new(all, out);
    return all;
}

/* An array with the progress of a model that is not up yet; NULL: there is none to show. */
static json_t *
show_coming(struct cn_management *management, const char *name, const char *version,
            const struct cn_error *err)
{
    json_t *out;

    if (err->code != CN_E_MODEL_NOT_FOUND && err->code != CN_E_MODEL_LOADING)
        return NULL;
    out = show_download(management, name);
    return out ? out : show_installation(management, name, version);
}

void
cn_describe(struct cn_management *management, const char *name, const char *version,
            bool self_described, cn_describe_done_fn done, void *ctx)
{
    bool all = version && strcmp(version, "all") == 0;
    struct describing *describing;
    struct cn_version *found;
    struct cn_list *node;
    struct cn_error err;
    json_t *coming;

    found = cn_management_find_version(management, name, all ? NULL : version, &err);
    if (!found) {
        coming = show_coming(management, name, all ? NULL : version, &err);
        if (coming || !management->cluster) {
            done(ctx, coming, coming ? NULL : &err);
            return;
        }
    }
    cn_management_op_begin(management);
    describing = cn_alloc(sizeof *describing);
    describing->management = management;
    describing->done = done;
    describing->ctx = ctx;
    describing->models = json_array();
    describing->left =
        1; /* one for this function, so that it cannot end while versions are added */
    if (management->cluster) {
        describing->left++;
        cn_cluster_describe(management->cluster, on_cluster, describing);
    }
    if (!found) {
        describing->err = err;
        describing->missing = cn_strdup(name);
        describing->missing_version = version && !all ? cn_strdup(version) : NULL;
    } else if (!all) {
        gather(describing, found);
        if (self_described) {
            describing->left++;
            cn_self_description_ask(management, found, on_self_description, describing);
        }
    } else {
        cn_list_for_each(node, &found->model->versions) {
            found = cn_container_of(node, struct cn_version, link);
            if (found->phase == CN_VERSION_UP)
                gather(describing, found);
        }
    }
    describing_check(describing);
}

json_t *
cn_describe_ready(struct cn_management *management, const char *name, struct cn_error *err)
{
    const struct cn_version *version = cn_management_find_version(management, name, NULL, err);
    json_t *out;

    if (!version)
        return NULL;
    out = json_object();
    put(out, "name", cn_json_text(version->about.name));
    put(out, "ready", json_boolean(cn_worker_pool_is_ready(&version->health)));
    return out;
}

json_t *
cn_describe_list(struct cn_management *management, unsigned limit, unsigned from)
{
    json_t *out = json_object(), *models = json_array(), *entry;
    const struct cn_version *version;
    struct cn_list *node;
    unsigned count = 0;

    cn_list_for_each(node, cn_registry_models(management->registry)) {
        version = cn_container_of(node, struct cn_model, link)->default_version;
        if (version->phase != CN_VERSION_UP)
            continue;
        if (count >= from && count - from < limit) {
            entry = json_object();
            put(entry, "modelName", cn_json_text(version->about.name));
            put(entry, "modelUrl", cn_json_text(version->about.url));
            json_array_append_new(models, entry);
        }
        count++;
    }
    /* TorchServe also gives a token if a page ends exactly at the end of the list. */
    if ((uint64_t)from + limit <= count)
        put(out, "nextPageToken", json_sprintf("%u", from + limit));
    put(out, "models", models);
    return out;
}
