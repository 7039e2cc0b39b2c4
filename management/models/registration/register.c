/* management/models/registration/register.c - registers a model: download, unpack, reserve, store,
 * queue and workers, publish. Loop 0, with visits to the file thread and, for URLs, to a download
 * thread.
 *
 * The way of a registration (struct registration), each step begun by the end of the one before:
 * - work_download: only for http(s) URLs, and for names if the model store is a web server. The
 *   archive then lies in the model store or in the model cache.
 * - work_unpack: the archive becomes a struct cn_model_about.
 * - done_unpack: name and version are reserved in the registry, so that a second registration of
 *   the same version gets a conflict from here on.
 * - want_environment: the archive's packages are installed, if it has any and the operator wants
 *   that. The version is reserved meanwhile, and all that wait for it are told that it is loading.
 * - work_store: the folder of the store is made, or checked after a power cut.
 * - make_pool: queue and workers are ordered. Nothing is visible to predictions yet.
 * - on_pool_started: the queue exists, so the version is up and is published to all loops.
 *
 * register_end.c waits for the publication and the workers, and answers; it also undoes a
 * registration that has failed. */
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/models/registration/registration_priv.h"
#include "management/repository/find_archive.h"
#include "management/repository/model_store.h"

/* A frame carries an answer and its headers. A body over the model's own limit is refused by the
 * worker itself. */
#define FRAME_SLACK_BYTES (1u << 20)

#define DOWNLOADS_MAX 64 /* downloads that run or wait for a thread */

static char *
copy(const char *text)
{
    return text ? cn_strdup(text) : NULL;
}

/* --- the middle: queue and workers */

static void
on_pool_started(struct cn_worker_pool_start *start)
{
    struct registration *reg = cn_container_of(start, struct registration, start);
    struct cn_version *version = reg->version;

    version->queue = start->queue;
    version->phase = CN_VERSION_UP;
    cn_log(CN_LOG_INFO,
           "event=model_registered model=%s version=%s runtime=%s durability=%s workers=%u",
           version->about.name, version->about.version, version->about.runtime,
           cn_durability_word(version->about.config.durability), version->min_workers);
    if (atomic_load(&reg->management->draining)) {
        /* A drain began while the queue was made: this version closes like the others. */
        cn_version_close(
            reg->management, version,
            &(struct cn_close_call){.code = CN_E_DRAINING, .reason = "the server is stopping"},
            NULL, NULL);
        reg->published = true;
        return;
    }
    cn_registry_publish(reg->management->registry, cn_registration_on_published, reg);
}

static void
make_pool(struct registration *reg)
{
    struct cn_management *management = reg->management;
    struct cn_version *version = reg->version;
    const struct cn_model_config *config = &version->about.config;
    uint64_t bytes = config->answer_max_bytes;

    if (bytes < management->config->max_request_bytes)
        bytes = management->config->max_request_bytes;
    if (bytes < management->config->max_envelope_bytes)
        bytes = management->config->max_envelope_bytes;
    version->min_workers = config->min_workers;
    version->max_workers = config->max_workers;
    version->health.wanted = version->min_workers;
    version->pool = cn_worker_pool_create(&(struct cn_worker_pool_spec){
        .loop = management->loops[management->n_versions_made++ % management->n_loops],
        .home = management->home,
        .about = &version->about,
        .store_dir = version->store_dir ? version->store_dir : "",
        .program = management->worker_program,
        .lock_fd = cn_state_dir_lock_fd(management->state),
        .max_frame_bytes = bytes + FRAME_SLACK_BYTES,
        .error_lines = management->config->handler_error_lines,
        .next_worker_id = &management->next_worker_id,
        .health = &version->health,
        .family = {cn_management_version_at, management},
        .accounts = cn_management_owners(management),
        .scales = management->config->scale_workers,
    });
    reg->start.on_done = on_pool_started;
    cn_worker_pool_start(version->pool, &reg->start);
    /* Workers are ordered at once, so that a request that finds the model waits for them instead of
     * being refused. */
    reg->scale.min = version->min_workers;
    reg->scale.max = version->max_workers;
    reg->scale.on_done = cn_registration_on_scaled;
    cn_worker_pool_scale(version->pool, &reg->scale);
}

static void
work_store(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    reg->rc = cn_state_dir_prepare_store(reg->version->store_dir, reg->management->worker_program,
                                         reg->management->config->accept_store_loss, &reg->err);
}

static void
done_store(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    if (reg->rc)
        cn_registration_discard(reg);
    else if (!cn_registration_stop_if_draining(reg))
        make_pool(reg);
}

/* From now on the store is in use, and nobody may remove it. Packages may take minutes to install
 * before a worker opens it. */
static void
take_store(struct registration *reg)
{
    struct cn_version *version = reg->version;

    if (version->about.config.durability == CN_DURABILITY_NONE ||
        version->about.config.state_store.url[0])
        return; /* nothing is in the state folder */
    version->store_dir =
        cn_state_dir_store(reg->management->state, version->about.name, version->about.version);
}

static void
prepare_store(struct registration *reg)
{
    if (!reg->version->store_dir) {
        make_pool(reg);
        return;
    }
    reg->task.work = work_store;
    reg->task.done = done_store;
    cn_file_thread_run(reg->management->files, &reg->task);
}

/* --- before that: packages */

static void
on_environment(struct cn_environment_want *want)
{
    struct registration *reg = cn_container_of(want, struct registration, want);
    struct cn_model_about *about = &reg->version->about;

    reg->version->environment = want->environment;
    if (!want->environment) {
        reg->err = want->err;
        reg->rc = want->err.code;
        cn_registration_discard(reg);
        return;
    }
    cn_free(about->python);
    about->python = cn_strdup(cn_environment_python(want->environment));
    if (!cn_registration_stop_if_draining(reg))
        prepare_store(reg);
}

static void
want_environment(struct registration *reg)
{
    const struct cn_model_about *about = &reg->version->about;

    reg->want.model = about->name;
    reg->want.version = about->version;
    reg->want.dir = about->dir;
    reg->want.requirements = about->requirements;
    reg->want.python = about->python;
    reg->want.package = about->python_package;
    reg->want.on_done = on_environment;
    cn_environments_want(reg->management->environments, &reg->want);
}

/* --- the beginning: files */

/* The registry knows the name and version now, or the registration has failed before. */
static void
reserved(struct registration *reg)
{
    if (reg->call.at_startup)
        cn_management_reserved(reg->management);
}

static void
done_unpack(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);
    struct cn_version *version;

    if (reg->rc) {
        reserved(reg);
        cn_registration_discard(reg);
        return;
    }
    if (cn_registration_stop_if_draining(reg)) {
        reserved(reg);
        return;
    }
    version = cn_alloc(sizeof *version);
    cn_list_init(&version->link);
    version->about = reg->about;
    version->at_startup = reg->call.at_startup;
    cn_lifecycle_init_retiring(reg->management, version);
    reg->rc = cn_registry_add(reg->management->registry, version, &reg->err);
    reserved(reg);
    if (reg->rc) {
        version->about = (struct cn_model_about){0};
        cn_version_free(version);
        cn_registration_discard(reg);
        return;
    }
    reg->about = (struct cn_model_about){0};
    version->about.archive = reg->archive;
    reg->archive = NULL;
    reg->version = version;
    take_store(reg);
    if (version->about.requirements)
        want_environment(reg);
    else
        prepare_store(reg);
}

static void
work_unpack(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);
    struct cn_management *management = reg->management;
    const struct cn_archive_wanted wanted = {
        .config = management->config,
        .rules = management->url_rules,
        .url = reg->url,
        .digest = reg->digest,
        .is_operators = reg->call.at_startup || reg->call.keep,
    };
    char *path = NULL, *place, digest[CN_DIGEST_TEXT] = "";

    if (reg->archive || reg->cached)
        path = cn_strdup(reg->cached ? reg->cached->path : reg->archive);
    else
        reg->rc = cn_find_archive(&wanted, &path, &reg->err);
    if (!reg->rc && management->cluster)
        reg->rc = cn_archive_digest(&wanted, path, digest, &reg->err);
    if (reg->rc) {
        cn_free(path);
        return;
    }
    place = cn_state_dir_unpack_place(management->state);
    reg->rc =
        cn_model_load(path, place, cn_state_dir_unpacked(management->state), &reg->call.request,
                      management->config, reg->call.at_startup, &reg->about, &reg->err);
    if (!reg->rc && digest[0])
        reg->about.digest = cn_strdup(digest);
    cn_model_cache_release(management->cache, reg->cached);
    reg->cached = NULL;
    cn_free(place);
    cn_free(path);
}

static void
begin_unpack(struct registration *reg)
{
    reg->task.work = work_unpack;
    reg->task.done = done_unpack;
    cn_file_thread_run(reg->management->files, &reg->task);
}

/* --- before that: a download */

static void
work_download(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    if (reg->cached_url)
        reg->rc = cn_model_cache_get(reg->management->cache, &reg->download, reg->digest,
                                     &reg->cached, &reg->err);
    else
        reg->rc = cn_download_run(&reg->download, &reg->archive, &reg->err);
}

static void
done_download(struct cn_file_task *task)
{
    struct registration *reg = cn_container_of(task, struct registration, task);

    cn_list_remove(&reg->download.link);
    reg->management->n_downloads--;
    cn_log(CN_LOG_INFO, "event=download_%s bytes=%llu", reg->rc ? "failed" : "done",
           (unsigned long long)reg->download.bytes);
    if (reg->rc)
        cn_registration_discard(reg);
    else if (!cn_registration_stop_if_draining(reg))
        begin_unpack(reg);
}

/* Does the archive come by way of the cache? */
static bool
is_cached(const struct registration *reg)
{
    if (!reg->management->cache || !reg->url)
        return false;
    return cn_download_is_url(reg->url) ||
           (cn_model_store_is_remote(reg->management->config->model_store) && *reg->url != '/' &&
            !strstr(reg->url, "://"));
}

static void
prepare_download(struct registration *reg)
{
    const struct cn_server_config *config = reg->management->config;

    reg->download.signed_archive = config->trusted_keys != NULL;
    if (is_cached(reg)) {
        reg->cached_url = cn_model_cache_url(reg->management->cache, reg->url);
        cn_model_cache_prepare(reg->management->cache, reg->cached_url, &reg->download);
        return;
    }
    reg->download.rules = reg->management->url_rules;
    reg->download.url = reg->url;
    reg->download.store = config->model_store;
    reg->download.max_bytes = config->max_download_bytes;
    reg->download.timeout_ms = config->download_timeout_ms;
    reg->download.stopping = &reg->management->draining;
}

/* Begins a download. Returns at once with what is wrong with the URL; 0: the download is under
 * way. */
static int
begin_download(struct registration *reg)
{
    struct cn_management *management = reg->management;
    const struct cn_server_config *config = management->config;
    struct cn_error *err = &reg->err;
    int rc = cn_model_store_check_url(reg->url, err);

    if (rc)
        return rc;
    if (!config->model_store && !is_cached(reg))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Model not found at: %.600s (the server was started without --model-store)",
                       reg->url);
    if (!reg->call.at_startup && management->n_downloads >= DOWNLOADS_MAX)
        return cn_fail(err, CN_E_UNAVAILABLE, "%d downloads are already running; try again later",
                       DOWNLOADS_MAX);
    management->n_downloads++;
    prepare_download(reg);
    reg->download.name = reg->model_name;
    cn_list_push_back(&management->downloads, &reg->download.link);
    reg->task.work = work_download;
    reg->task.done = done_download;
    cn_file_thread_run(management->downloaders, &reg->task);
    return 0;
}

static bool
is_forbidden_file(const struct registration *reg)
{
    return cn_model_store_is_file_url(reg->url) &&
           !cn_url_rules_allow(reg->management->url_rules, reg->url);
}

void
cn_lifecycle_register(struct cn_management *management, const struct cn_register_call *call,
                      cn_lifecycle_done_fn done, void *ctx)
{
    struct registration *reg = cn_alloc(sizeof *reg);
    int rc = 0;

    cn_assert_on_loop(management->home);
    cn_management_op_begin(management);
    reg->management = management;
    reg->call = *call;
    reg->call.request.url = reg->url = copy(call->request.url);
    reg->call.request.model_name = reg->model_name = copy(call->request.model_name);
    reg->call.request.handler = reg->handler = copy(call->request.handler);
    reg->call.request.runtime = reg->runtime = copy(call->request.runtime);
    reg->call.request.config = reg->config = copy(call->request.config);
    reg->done = done;
    reg->ctx = ctx;
    reg->digest = copy(call->digest);
    if ((reg->url && cn_download_is_url(reg->url)) || is_cached(reg))
        rc = begin_download(reg); /* from here on reg->rc belongs to the other thread */
    else if (is_forbidden_file(reg))
        rc = cn_fail(&reg->err, CN_E_MODEL_NOT_FOUND,
                     "Given URL %.600s does not match any allowed URL(s)", reg->url);
    else
        begin_unpack(reg);
    if (rc) {
        reg->rc = rc;
        cn_registration_discard(reg);
    }
}
