/* management/api/describe.c - the JSON of GET /models/... Loop 0; the facts come from the queues'
 * loops.
 *
 * Members that TorchServe has come first, in its order and under its names; ours follow. Settings
 * are known on loop 0, but everything that changes (workers, queue, sequences) belongs to the loop
 * of each version. So a description of several versions is gathered: gather() asks each pool,
 * on_facts() fills in the object of its version, and the last answer completes the whole.
 *
 * The version cannot be freed meanwhile: a close asks the same loop after us, so our question is
 * answered first.
 */
#include "management/api/describe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/model/model_io.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "management/api/environment_json.h"
#include "management/api/json_text.h"
#include "management/api/self_description.h"
#include "management/cluster/cluster.h"
#include "management/models/download.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"

#define IDS_MAX 1000 /* one more than the highest device number, "cuda:999" */

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

static bool
is_gpu(const struct cn_worker_facts *worker)
{
    return strncmp(worker->device, "cuda", 4) == 0;
}

/* What the worker works on; null: nothing. */
static json_t *
show_busy(const struct cn_worker_facts *worker)
{
    json_t *out;

    if (worker->busy_rows == 0)
        return json_null();
    out = json_object();
    put(out, "forMSec", number(worker->busy_ms));
    put(out, "rows", number(worker->busy_rows));
    put(out, "sequence",
        worker->busy_sequence[0] ? cn_json_text(worker->busy_sequence) : json_null());
    return out;
}

static json_t *
show_worker(const struct cn_worker_facts *worker)
{
    json_t *out = json_object();
    char text[32];

    put(out, "id", json_sprintf("%u", worker->id));
    cn_wall_format(worker->started_wall_ms, text);
    put(out, "startTime", json_string(text));
    put(out, "status", json_string(worker->state == CN_WORKER_READY ? "READY" : "UNLOADING"));
    put(out, "memoryUsage", number(worker->stats.rss_bytes));
    put(out, "pid", number((uint64_t)worker->pid));
    put(out, "gpu", json_boolean(is_gpu(worker)));
    if (worker->state == CN_WORKER_READY)
        put(out, "device", cn_json_text(worker->device[0] ? worker->device : "cpu"));
    put(out, "gpuUsage", json_string("N/A"));
    put(out, "index", number(worker->index));
    put(out, "state", json_string(cn_worker_state_word(worker->state)));
    put(out, "restarts", number(worker->restarts));
    if (worker->progress[0])
        put(out, "loading", cn_json_text(worker->progress));
    if (worker->warning[0])
        put(out, "warning", cn_json_text(worker->warning));
    put(out, "liveSequences", number(worker->live_sequences));
    put(out, "busy", show_busy(worker));
    put(out, "lastExit", worker->last_exit[0] ? cn_json_text(worker->last_exit) : json_null());
    return out;
}

/* The zygote: the process that forks the workers. */
static json_t *
show_zygote(const struct cn_worker_facts *zygote)
{
    json_t *out = json_object();

    put(out, "pid", number((uint64_t)zygote->pid));
    put(out, "state", json_string(cn_worker_state_word(zygote->state)));
    if (zygote->loaded)
        put(out, "loadMSec", number(zygote->load_ms));
    if (zygote->progress[0])
        put(out, "loading", cn_json_text(zygote->progress));
    put(out, "restarts", number(zygote->restarts));
    put(out, "lastExit", zygote->last_exit[0] ? cn_json_text(zygote->last_exit) : json_null());
    return out;
}

static json_t *
show_dims(const int64_t *dims, uint32_t rank)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < rank; i++)
        json_array_append_new(out, json_integer(dims[i]));
    return out;
}

/* The state tensors that the model declares, in the words of its YAML. */
static json_t *
show_state(const struct cn_state_specs *specs)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < specs->n; i++) {
        const struct cn_state_spec *spec = &specs->items[i];
        json_t *one = json_object(), *init = json_object();

        put(one, "input", cn_json_text(spec->input.ptr));
        put(one, "output", cn_json_text(spec->output.ptr));
        put(one, "dataType", json_string(cn_datatype_word(spec->type)));
        put(one, "dims", show_dims(spec->dims, spec->rank));
        put(one, "batchAxis", number(spec->batch_axis));
        if (spec->init == CN_STATE_NONE)
            put(init, "none", json_true());
        if (spec->init == CN_STATE_FILE)
            put(init, "file", cn_json_text(spec->init_from.ptr));
        if (spec->init == CN_STATE_CALLER)
            put(init, "caller", cn_json_text(spec->init_from.ptr));
        put(init, "dims", show_dims(spec->init_dims, spec->rank));
        put(one, "init", init);
        put(one, "visible", json_boolean(spec->visible));
        json_array_append_new(out, one);
    }
    return out;
}

/* The devices that the workers run on, which need not be those that the YAML asks for. */
static void
show_devices(json_t *out, const struct cn_worker_pool_facts *facts)
{
    bool seen[IDS_MAX] = {false};
    json_t *ids;
    uint32_t n = 0;

    for (uint32_t i = 0; i < facts->n_workers; i++) {
        const struct cn_worker_facts *worker = &facts->workers[i];
        unsigned id = 0;
        char more;

        if (!is_gpu(worker))
            continue;
        n++;
        if (sscanf(worker->device, "cuda:%3u%c", &id, &more) == 1 && id < IDS_MAX)
            seen[id] = true;
    }
    put(out, "deviceType", json_string(n ? "gpu" : "cpu"));
    if (n == 0)
        return;
    ids = json_array();
    for (unsigned id = 0; id < IDS_MAX; id++)
        if (seen[id])
            json_array_append_new(ids, json_integer(id));
    put(out, "deviceIds", ids);
}

static void
show_settings(json_t *out, const struct cn_version *version,
              const struct cn_worker_pool_facts *facts)
{
    const struct cn_model_about *about = &version->about;
    const struct cn_model_config *config = &about->config;
    bool stateful = config->sequence_batching;

    put(out, "modelName", cn_json_text(about->name));
    put(out, "modelVersion", cn_json_text(about->version));
    put(out, "modelUrl", cn_json_text(about->url));
    put(out, "runtime", json_string(about->runtime));
    put(out, "minWorkers", number(version->min_workers));
    put(out, "maxWorkers", number(version->max_workers));
    put(out, "batchSize", number(config->batch_size));
    put(out, "maxBatchDelay", number(config->max_batch_delay_ms));
    put(out, "responseTimeout", number(config->response_timeout_s));
    put(out, "startupTimeout", number(config->startup_timeout_s));
    put(out, "maxRetryTimeoutInSec", json_integer(0)); /* workers are always started again */
    put(out, "clientTimeoutInMills", number(config->client_timeout_ms));
    put(out, "parallelType", json_string(cn_parallel_word(config->parallel)));
    put(out, "parallelLevel", json_integer(0));
    show_devices(out, facts);
    put(out, "continuousBatching", json_boolean(config->continuous_batching));
    put(out, "useJobTicket", json_boolean(config->use_job_ticket));
    put(out, "useVenv", json_boolean(config->use_venv));
    put(out, "stateful", json_boolean(config->sequence_batching));
    if (about->io && about->io->state.n > 0)
        put(out, "state", show_state(&about->io->state));
    put(out, "sequenceMaxIdleMSec", number(config->sequence_max_idle_ms));
    put(out, "sequenceTimeoutMSec", number(config->sequence_timeout_ms));
    put(out, "maxNumSequence", number(stateful ? config->max_num_sequence : 0));
    put(out, "maxSequenceJobQueueSize", number(stateful ? config->max_sequence_job_queue_size : 0));
    put(out, "loadedAtStartup", json_boolean(version->at_startup));
    if (version->environment)
        put(out, "environment", cn_environment_json(version));
}

/* How far the swap from this version to the default one has come. */
static void
show_swap(json_t *out, const struct cn_version *version, const struct cn_model_queue_stats *stats)
{
    const struct cn_version *to = version->model ? version->model->default_version : version;
    json_t *swap;
    char text[32];

    if (!version->about.config.sequence_batching)
        return;
    put(out, "swapPolicy", json_string(cn_swap_policy_word(version->swap_policy)));
    if (to == version)
        return;
    swap = json_object();
    put(swap, "to", cn_json_text(to->about.version));
    put(swap, "policy", json_string(cn_swap_policy_word(to->swap_policy)));
    /* Steps that are asked in other versions may still begin a sequence here. */
    put(swap, "sequencesLeft", number(stats->live_sequences + stats->diverted_jobs));
    put(swap, "retired", json_boolean(version->retired));
    cn_wall_format(version->retire_wall_ms, text);
    put(swap, "deadline", version->retire_wall_ms ? json_string(text) : json_null());
    put(out, "swap", swap);
}

/* The mean time of a handler's call, to the nanosecond; null: there was no call. */
static json_t *
mean_call(const struct cn_metrics *metrics)
{
    uint64_t calls = cn_metrics_get(metrics, CN_M_HANDLER_TIME);
    double us = (double)cn_metrics_sum(metrics, CN_M_HANDLER_TIME);

    return calls ? json_real(round(us * 1000 / (double)calls) / 1e6) : json_null();
}

/* Why the archive that the version came from could not be loaded again; null: nothing is wrong. */
static json_t *
show_failed_reload(const struct cn_version *version)
{
    const struct cn_repository_failure *failure =
        cn_repository_failure(version->management->repository, version->about.url);
    char since[32];
    json_t *out;

    if (!failure)
        return json_null();
    out = json_object();
    cn_wall_format(failure->since_wall_ms, since);
    put(out, "archive", cn_json_text(failure->url));
    put(out, "error", cn_json_text(failure->error));
    put(out, "since", json_string(since));
    return out;
}

/* How many workers there should be, and what changed that number last. */
static json_t *
show_scaling(const struct cn_version *version, const struct cn_worker_pool_scaling *scaling)
{
    json_t *out = json_object(), *last = json_null();
    char at[32];

    put(out, "automatic", json_boolean(scaling->automatic));
    if (scaling->fixed_for)
        put(out, "fixedBecause", json_string(scaling->fixed_for));
    put(out, "current", number(scaling->wanted));
    put(out, "min", number(version->min_workers));
    put(out, "max", number(version->max_workers));
    if (scaling->reason != CN_SCALED_NOT) {
        last = json_object();
        put(last, "from", number(scaling->from));
        put(last, "to", number(scaling->to));
        put(last, "reason", json_string(cn_scale_reason_word(scaling->reason)));
        cn_wall_format(scaling->wall_ms, at);
        put(last, "time", json_string(at));
    }
    put(out, "lastChange", last);
    return out;
}

/* Where the model's states are kept; null: it has none. Of a shared store it says what the worker
 * with the worst connection has reported last. */
static json_t *
show_store(const struct cn_model_config *config, const struct cn_worker_pool_facts *facts)
{
    const struct cn_store_stats *worst = NULL;
    char url[CN_STATE_STORE_SHOWN_MAX], since[32];
    json_t *out;

    if (!config->sequence_batching)
        return json_null();
    out = json_object();
    if (config->durability == CN_DURABILITY_NONE || !config->state_store.url[0]) {
        put(out, "kind",
            json_string(config->durability == CN_DURABILITY_NONE ? "memory" : "embedded"));
        return out;
    }
    put(out, "kind", json_string("shared"));
    put(out, "url", cn_json_text(cn_state_store_url_shown(config->state_store.url, url)));
    for (uint32_t i = 0; i < facts->n_workers; i++) {
        const struct cn_store_stats *store = &facts->workers[i].stats.store;

        if (store->shared &&
            (!worst || store->connected < worst->connected ||
             (store->connected == worst->connected && store->since_wall_ms > worst->since_wall_ms)))
            worst = store;
    }
    put(out, "connected", worst ? json_boolean(worst->connected) : json_null());
    if (worst && worst->since_wall_ms)
        cn_wall_format(worst->since_wall_ms, since);
    put(out, "since", worst && worst->since_wall_ms ? json_string(since) : json_null());
    put(out, "lastError",
        worst && worst->last_error[0] ? cn_json_text(worst->last_error) : json_null());
    return out;
}

static void
show_facts(json_t *out, const struct cn_version *version, const struct cn_worker_pool_facts *facts)
{
    const struct cn_model_config *config = &version->about.config;
    const struct cn_model_queue_stats *stats = &facts->queue;
    uint64_t waiting = stats->waiting_jobs;
    json_t *workers = json_array(), *queue = json_object(), *sequences = json_object();
    uint32_t i;

    for (i = 0; i < facts->n_workers; i++)
        json_array_append_new(workers, show_worker(&facts->workers[i]));
    put(out, "workers", workers);
    if (cn_model_preloads(&version->about))
        put(out, "zygote", facts->has_zygote ? show_zygote(&facts->zygote) : json_null());
    put(queue, "remainingCapacity",
        number(waiting < config->job_queue_size ? config->job_queue_size - waiting : 0));
    put(queue, "pendingRequests", number(waiting));
    put(queue, "inFlight", number(stats->in_flight_jobs));
    put(out, "jobQueueStatus", queue);
    put(out, "scaling", show_scaling(version, &facts->scaling));
    put(sequences, "live", number(stats->live_sequences));
    put(sequences, "opened", number(stats->opened_sequences));
    put(sequences, "expired", number(stats->expired_sequences));
    put(sequences, "idsMissing", json_boolean(stats->ids_missing));
    put(out, "sequences", sequences);
    put(out, "liveSequences", number(stats->live_sequences));
    put(out, "steps", number(stats->jobs));
    put(out, "meanCallMSec", mean_call(&facts->metrics));
    put(out, "redispatched", number(stats->redispatched));
    put(out, "replayed", number(stats->replayed));
    put(out, "durability", json_string(cn_durability_word(config->durability)));
    put(out, "stateStore", show_store(config, facts));
    show_swap(out, version, stats);
    put(out, "failedReload", show_failed_reload(version));
    put(out, "lastError", facts->last_error[0] ? cn_json_text(facts->last_error) : json_null());
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

    show_settings(gathering->place, gathering->version, facts);
    show_facts(gathering->place, gathering->version, facts);
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
