/* management/api/json/version_json.c - one model version as JSON: its settings, workers, queue and
 * sequences. Loop 0.
 *
 * Members that TorchServe has come first, in its order and under its names; ours follow.
 *
 * In our own members, null means that there is nothing to be said, as in "busy": null for a worker
 * that waits, and a duration has its unit in its name (MSec). */
#include "management/api/json/version_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/model/model_io.h"
#include "config/model/model_words.h"
#include "config/model/replicas.h"
#include "core/time/clock.h"
#include "management/api/json/environment_json.h"
#include "management/api/json/json_text.h"
#include "management/management_priv.h"
#include "management/repository/repository_priv.h"

#define IDS_MAX 1000 /* one more than the highest device number, "cuda:999" */

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

/* The walls around the process, as a list; and what could not be built. */
static void
show_walls(json_t *out, const struct cn_worker_facts *worker)
{
    json_t *list = json_array();

    for (const char *word = worker->walls; *word;) {
        size_t n = strcspn(word, " ");

        json_array_append_new(list, json_stringn(word, n));
        word += n + strspn(word + n, " ");
    }
    put(out, "walls", list);
    if (worker->lacking[0])
        put(out, "wallsLacking", cn_json_text(worker->lacking));
    if (worker->unbounded[0])
        put(out, "limitsLacking", cn_json_text(worker->unbounded));
}

/* What each worker may use of the machine; 0: no bound. */
static json_t *
show_limits(const struct cn_bounds *bounds)
{
    json_t *out = json_object();

    put(out, "memoryBytes", number(bounds->memory_bytes));
    put(out, "cpuPercent", number(bounds->cpu_percent));
    put(out, "processes", number(bounds->processes));
    put(out, "tempBytes", number(bounds->temp_bytes));
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
    if (worker->loaded)
        show_walls(out, worker);
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
    if (zygote->loaded)
        show_walls(out, zygote);
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

/* A model whose requests are pieces of a stream: what a client may send. */
static json_t *
show_stream_input(const struct cn_model_config *config)
{
    json_t *out = json_object();

    put(out, "input", json_string(cn_model_words("stream.input")[config->stream_input]));
    if (config->stream_input == CN_STREAM_AUDIO) {
        put(out, "encoding",
            json_string(cn_model_words("stream.encoding")[config->stream_encoding]));
        put(out, "rate", number(config->stream_rate));
        put(out, "resample", json_boolean(config->stream_resample));
    }
    put(out, "window", number(config->stream_window));
    put(out, "hop", number(config->stream_hop ? config->stream_hop : config->stream_window));
    put(out, "maxChunkSamples", number(config->stream_chunk_max));
    put(out, "answers", json_string(cn_model_words("stream.answers")[config->stream_answers]));
    return out;
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
    if (about->bounds.memory_bytes || about->bounds.cpu_percent || about->bounds.processes ||
        about->bounds.temp_bytes)
        put(out, "limits", show_limits(&about->bounds));
    put(out, "parallelType", json_string(cn_parallel_word(config->parallel)));
    put(out, "parallelLevel", json_integer(0));
    show_devices(out, facts);
    put(out, "continuousBatching", json_boolean(config->continuous_batching));
    put(out, "useJobTicket", json_boolean(config->use_job_ticket));
    put(out, "useVenv", json_boolean(config->use_venv));
    put(out, "stateful", json_boolean(config->sequence_batching));
    if (about->io && about->io->state.n > 0)
        put(out, "state", show_state(&about->io->state));
    if (config->stream_input != CN_STREAM_NONE)
        put(out, "streamInput", show_stream_input(config));
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
    put(out, "replicas",
        config->store_replicas == CN_REPLICAS_ALL ? json_string(CN_REPLICAS_ALL_WORD)
                                                  : number(config->store_replicas));
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

void
cn_version_show(json_t *out, const struct cn_version *version,
                const struct cn_worker_pool_facts *facts)
{
    show_settings(out, version, facts);
    show_facts(out, version, facts);
}
