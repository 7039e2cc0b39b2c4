/* management/models/model_load.c - from an archive to what a worker needs to know. File thread.
 *
 * cn_model_load() unpacks the archive, reads its manifest, chooses name, version, handler and
 * runtime, and makes the configuration (model_settings.c). It leaves a struct cn_model_about, which
 * never changes afterwards and which all loops may read.
 *
 * An archive is foreign input: names become parts of paths, messages and URLs, and file names must
 * not lead out of the folder. Therefore check_name() and cn_model_check_file() look at everything
 * that is taken from a manifest. If something is wrong, nothing is left behind on the disk.
 */
#include "management/models/model_load.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/python_handler.h"
#include "config/model/model_io.h"
#include "config/state_store_url.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "core/tuning/tuning.h"
#include "management/models/model_load_priv.h"
#include "management/models/python_models.h"
#include "management/models/unpacked.h"
#include "management/repository/model_store.h"
#include "management/state/clock_watch.h"
#include "torchserve/metrics/metric_lines.h"

#define NAME_MAX_BYTES 128
#define LUA_MEMORY_BYTES (256ull << 20)

/* Checks a name or version, which becomes a part of paths, messages and URLs. */
static int
check_name(const char *what, const char *name, struct cn_error *err)
{
    const char *at;

    if (!*name || strlen(name) > NAME_MAX_BYTES)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "the %s of a model must have 1 to %d bytes, not %zu", what, NAME_MAX_BYTES,
                       strlen(name));
    for (at = name; *at; at++)
        if (*at == '/' || (unsigned char)*at <= 0x20 || *at == 0x7f || *at == '"')
            return cn_fail(
                err, CN_E_INVALID_MODEL,
                "the %s of a model may not contain slashes, quotes, spaces or control characters",
                what);
    if (!cn_utf8_is_valid(
            cn_str_from(name))) /* otherwise no client could read a page of metrics with it */
        return cn_fail(err, CN_E_INVALID_MODEL, "the %s of a model must be UTF-8", what);
    return 0;
}

int
cn_model_check_file(const struct cn_model_about *about, const char *what, const char *file,
                    struct cn_error *err)
{
    struct cn_buf path;
    struct stat st;
    int rc = 0;

    if (file[0] == '/' || strstr(file, ".."))
        return cn_fail(err, CN_E_INVALID_MODEL, "the %s %s is not inside the archive", what, file);
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", about->dir, file);
    cn_buf_append(&path, "", 1);
    if (stat(path.data, &st) < 0 || !S_ISREG(st.st_mode))
        rc = cn_fail(err, CN_E_INVALID_MODEL, "model %s: the %s %s is not in the archive",
                     about->name, what, file);
    cn_buf_fini(&path);
    return rc;
}

static bool
ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text), ending_len = strlen(ending);

    return len >= ending_len && strcmp(text + len - ending_len, ending) == 0;
}

/* Does the call name a handler that is not in the archive? TorchServe registers such a model; its
 * workers then fail to start and say what is missing. */
static bool
is_absent_handler(const struct cn_model_about *about, const struct cn_model_request *request,
                  const struct cn_server_config *server)
{
    struct cn_error err;

    return server->dialect == CN_DIALECT_TORCHSERVE && request->handler && *request->handler &&
           cn_model_check_file(about, "handler", about->handler, &err) != 0;
}

/* Does the runtime run models without a handler? */
bool
cn_model_runs_models(const char *runtime)
{
    return strcmp(runtime, "torch") == 0 || strcmp(runtime, "onnx") == 0;
}

static bool
is_runtime(const char *word)
{
    return word &&
           (strcmp(word, "lua") == 0 || strcmp(word, "c") == 0 || cn_model_runs_models(word));
}

/* Is it a runtime of TorchServe? Archivers write "python" whatever the handler is, so these words
 * say nothing: the name of the handler's file decides. */
static bool
is_torchserve_runtime(const char *word)
{
    return strcmp(word, "python") == 0 || strcmp(word, "python3") == 0 || strcmp(word, "LSP") == 0;
}

/* Chooses the runtime. The call's word decides; then the manifest's, if it is one of ours; then the
 * ending of the handler's file name, because other archivers write "python" whatever the handler
 * is. */
static int
choose_runtime(struct cn_model_about *about, const char *wanted, const char *manifest, bool absent,
               struct cn_error *err)
{
    if (wanted && is_torchserve_runtime(wanted))
        wanted = NULL;
    if (wanted && !is_runtime(wanted))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Invalid RuntimeType value: %s (this server runs lua, c, torch, onnx and "
                       "python)",
                       wanted);
    if (!*about->handler)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "Model %s has no handler: its manifest or the register call must name one",
                       about->name);
    if (wanted)
        about->runtime = cn_strdup(wanted);
    else if (is_runtime(manifest))
        about->runtime = cn_strdup(manifest);
    else if (ends_with(about->handler, ".lua"))
        about->runtime = cn_strdup("lua");
    else if (ends_with(about->handler, ".so"))
        about->runtime = cn_strdup("c");
    else if (cn_is_python_handler(about->handler, manifest))
        about->runtime = cn_strdup("python");
    else if (absent)
        about->runtime = cn_strdup("lua");
    else
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "model %s has the handler %s (runtime %s): this server runs handlers in "
                       "Python (.py), Lua (.lua) and C (.so), and TorchScript and ONNX models "
                       "(runtimes torch and onnx)",
                       about->name, about->handler, manifest ? manifest : "unknown");
    return 0;
}

bool
cn_model_is_python(const struct cn_model_about *about)
{
    return about->runtime && strcmp(about->runtime, "python") == 0;
}

/* Is the handler's file in the archive? */
static int
check_handler(const struct cn_model_about *about, struct cn_error *err)
{
    char file[PATH_MAX];

    if (!cn_model_is_python(about))
        return cn_model_check_file(about, "handler", about->handler, err);
    if (cn_python_handler_is_built_in(about->handler))
        return 0;
    if (!cn_python_handler_file(about->handler, file, sizeof(file)))
        return cn_fail(err, CN_E_INVALID_MODEL, "the name of the handler is too long");
    return cn_model_check_file(about, "handler", file, err);
}

static char *
first_of(const char *a, const char *b, const char *otherwise)
{
    return cn_strdup(a && *a ? a : b && *b ? b : otherwise);
}

/* Adds the missing ending: torch-model-archiver --runtime LSP packs NAME.so but writes NAME. */
static void
complete_handler(struct cn_model_about *about, const char *runtime)
{
    struct cn_buf name;

    if (!runtime || strcmp(runtime, "LSP") != 0 || !*about->handler ||
        ends_with(about->handler, ".so") || ends_with(about->handler, ".lua"))
        return;
    cn_buf_init(&name, 0);
    cn_buf_printf(&name, "%s.so", about->handler);
    cn_free(about->handler);
    about->handler = cn_buf_take(&name, NULL);
}

/* What the runtime runs: a handler, or, with torch and onnx, the model itself. */
static char *
choose_handler(const struct cn_model_request *request, const struct cn_manifest *manifest,
               const struct cn_server_config *server)
{
    bool model = cn_model_runs_models(cn_manifest_runtime(manifest)) ||
                 (request->runtime && cn_model_runs_models(request->runtime));

    if (model && manifest->serialized_file)
        return first_of(request->handler, manifest->serialized_file, "");
    return first_of(request->handler, manifest->handler,
                    server->default_handler ? server->default_handler : "");
}

/* The path of a library that an option names; absolute, because workers run in their models'
 * folders. */
static char *
library_path(const char *option)
{
    char *path = option ? realpath(option, NULL) : NULL, *copy;

    copy = first_of(path, option, "");
    free(path);
    return copy;
}

/* Notes the requirements file of a Python model, if the operator wants packages to be installed:
 * that runs code of strangers. Otherwise the log says why a package may be missing. */
static int
take_requirements(struct cn_model_about *about, const char *file,
                  const struct cn_server_config *server, struct cn_error *err)
{
    char quoted[1024];

    if (!file || !*file || !cn_model_is_python(about))
        return 0;
    if (!server->install_packages) {
        cn_log(CN_LOG_WARN,
               "event=requirements_not_installed model=%s version=%s file=%s text=\"the server "
               "installs packages only with --install-packages\"",
               about->name, about->version,
               cn_log_quote(file, strlen(file), quoted, sizeof quoted));
        return 0;
    }
    about->requirements = cn_strdup(file);
    return cn_model_check_file(about, "requirements file", file, err);
}

/* Unpacks the archive into `place`. A folder that an earlier start unpacked from the same archive
 * is used again: all of its files are as they were when they were checked. With trusted keys none
 * is, because a signature covers the archive and not the folder. If the disk is full,
 * folders that no model has asked for yet are removed, and it is tried once more. *stamp is taken
 * before the archive is opened. One that is replaced meanwhile then counts as changed, and would
 * otherwise pass for the state that was loaded. */
static int
unpack(const char *path, const char *place, struct cn_unpacked *kept, struct cn_manifest *manifest,
       char **dir, uint64_t *stamp, const char *trusted_keys, struct cn_error *err)
{
    struct cn_archive_limits limits = cn_archive_default_limits;
    int rc;

    limits.trusted_keys = trusted_keys;
    *stamp = cn_model_store_stamp(path);
    if (!trusted_keys && cn_unpacked_take(kept, path, *stamp, place)) {
        if (cn_archive_reread(place, manifest, dir, err) == 0)
            return 0;
        cn_unpacked_remove(place);
    }
    rc = cn_archive_unpack(path, place, &limits, manifest, dir, err);
    if (rc == CN_E_IO && cn_unpacked_remove_rest(kept))
        rc = cn_archive_unpack(path, place, &limits, manifest, dir, err);
    if (!rc && strncmp(*dir, place, strlen(place)) == 0)
        cn_unpacked_note(kept, path, *stamp, place);
    return rc;
}

/* Makes the folder for the temporary files of a model's workers. Returns NULL if that fails: on a
 * full disk a model that needs none must still start. */
static char *
make_temp_dir(const char *place)
{
    struct cn_buf path;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s.temp", place);
    cn_buf_append(&path, "", 1);
    if (mkdir(path.data, 0700) == 0)
        return cn_buf_take(&path, NULL);
    cn_log(CN_LOG_WARN, "event=no_temporary_files folder=%s reason=\"%s\"", path.data,
           strerror(errno));
    cn_buf_fini(&path);
    return NULL;
}

/* The model's YAML may lower what the operator allows, and not raise it. */
static struct cn_bounds
bounds_of(const struct cn_model_config *config, const struct cn_server_config *server)
{
    return cn_bounds_smaller(
        (struct cn_bounds){server->worker_memory, server->worker_cpu, server->worker_processes,
                           server->worker_temp_bytes},
        (struct cn_bounds){config->worker_memory, config->worker_cpu, config->worker_processes,
                           config->worker_temp_bytes});
}

/* The --worker-files, and the folders of the certificates in the URL of --state-store, because
 * workers connect to that store themselves and read the certificates anew for each connection. A
 * URL in the model's YAML opens nothing: the wall is there against whoever packs the archive. */
static char *
operators_files(const struct cn_model_config *config, const struct cn_server_config *server)
{
    struct cn_state_store_text text;
    struct cn_state_store_url url = {0};
    struct cn_buf files;

    cn_buf_init(&files, 0);
    cn_buf_puts(&files, server->worker_files ? server->worker_files : "");
    if (cn_state_store_text_set(&text, cn_str_from(server->state_store), NULL) == 0 &&
        strcmp(text.url, config->state_store.url) == 0 &&
        cn_state_store_url_parse(cn_str_from(text.url), &url, NULL) == 0 && url.tls) {
        for (int i = 0; i < 3; i++) {
            const char *path = (const char *[]){url.ca, url.certificate, url.key}[i];
            const char *slash = strrchr(path, '/');

            if (slash && slash != path)
                cn_buf_printf(&files, ":%.*s", (int)(slash - path), path);
        }
    }
    return cn_buf_take(&files, NULL);
}

void
cn_model_about_remove_files(const struct cn_model_about *about)
{
    if (about->unpacked)
        cn_unpacked_remove(about->unpacked);
    if (about->temp_dir)
        cn_archive_remove_dir(about->temp_dir);
}

int
cn_model_load(const char *path, const char *place, struct cn_unpacked *kept,
              const struct cn_model_request *request, const struct cn_server_config *server,
              bool at_startup, struct cn_model_about *out, struct cn_error *err)
{
    struct cn_model_about about = {0};
    struct cn_manifest manifest = {0};
    bool absent;
    char *stem;
    int rc;

    rc = unpack(path, place, kept, &manifest, &about.dir, &about.stamp, server->trusted_keys, err);
    if (rc)
        return rc;
    if (strncmp(about.dir, place, strlen(place)) == 0)
        about.unpacked = cn_strdup(place);
    stem = cn_model_store_stem(path);
    about.url = cn_strdup(request->url);
    about.name = first_of(request->model_name, manifest.model_name, stem);
    about.version = first_of(manifest.model_version, NULL, "1.0");
    about.handler = choose_handler(request, &manifest, server);
    complete_handler(&about, manifest.runtime);
    about.torch_library = library_path(server->torch_library);
    about.onnxruntime = library_path(server->onnxruntime);
    about.service_envelope = cn_strdup(server->service_envelope ? server->service_envelope : "");
    about.busy_wait_us = server->busy_wait_us;
    about.walls = server->worker_walls;
    about.says_as_torchserve = server->dialect == CN_DIALECT_TORCHSERVE;
    about.clock_jump_ms = server->clock_jump_ms;
    about.config_file = first_of(manifest.config_file, NULL, "");
    rc = check_name("name", about.name, err);
    if (!rc)
        rc = check_name("version", about.version, err);
    absent = is_absent_handler(&about, request, server);
    if (!rc)
        rc = choose_runtime(&about, request->runtime, manifest.runtime, absent, err);
    if (!rc && !absent)
        rc = check_handler(&about, err);
    if (!rc)
        rc = cn_model_make_config(&about, request, server, at_startup, err);
    if (!rc) {
        about.worker_files = operators_files(&about.config, server);
        about.bounds = bounds_of(&about.config, server);
    }
    if (!rc)
        rc = take_requirements(&about, manifest.requirements_file, server, err);
    if (!rc && strcmp(about.runtime, "lua") != 0) /* its sandbox has no files */
        about.temp_dir = make_temp_dir(place);
    cn_free(stem);
    cn_manifest_fini(&manifest);
    if (rc) {
        cn_model_about_remove_files(&about);
        cn_model_about_fini(&about);
        return rc;
    }
    *out = about;
    return 0;
}

void
cn_model_about_fini(struct cn_model_about *about)
{
    cn_free(about->digest);
    cn_free(about->name);
    cn_free(about->version);
    cn_free(about->url);
    cn_free(about->dir);
    cn_free(about->archive);
    cn_free(about->unpacked);
    cn_free(about->temp_dir);
    cn_free(about->handler);
    cn_free(about->config_file);
    cn_free(about->runtime);
    cn_free(about->python);
    cn_free(about->python_package);
    cn_free(about->requirements);
    cn_free(about->torch_library);
    cn_free(about->onnxruntime);
    cn_free(about->service_envelope);
    cn_free(about->worker_files);
    cn_free(about->metrics);
    cn_model_io_unref(about->io);
    *about = (struct cn_model_about){0};
}

bool
cn_model_preloads(const struct cn_model_about *about)
{
    return about->config.preload &&
           (cn_model_runs_models(about->runtime) || cn_model_is_python(about));
}

/* A Lua handler always has a limit; what a Python process needs depends on its packages. */
static uint64_t
memory_limit(const struct cn_model_about *about)
{
    if (about->config.memory_max_bytes == 0 && strcmp(about->runtime, "lua") == 0)
        return LUA_MEMORY_BYTES;
    return about->config.memory_max_bytes;
}

void
cn_model_fill_load(const struct cn_model_about *about, const char *store_dir, uint32_t worker_index,
                   struct cn_load *load)
{
    const struct cn_model_config *config = &about->config;
    bool kept = config->durability != CN_DURABILITY_NONE;

    *load = (struct cn_load){
        .model_name = about->name,
        .model_version = about->version,
        .model_dir = about->dir,
        .handler = about->handler,
        .config_file = about->config_file,
        .runtime = about->runtime,
        .torch_library = about->torch_library,
        .onnxruntime = about->onnxruntime,
        .service_envelope = about->service_envelope,
        .metrics = about->metrics ? about->metrics : "",
        .temp_dir = about->temp_dir ? about->temp_dir : "",
        .worker_files = about->worker_files ? about->worker_files : "",
        .store_dir = kept ? store_dir : "",
        .state_store = kept ? config->state_store.url : "",
        .worker_index = worker_index,
        .zygote = worker_index == 0,
        .busy_wait_us = about->busy_wait_us,
        .walls = about->walls,
        .network = config->network,
        .tuning = cn_tuning_bits,
        .batch_size = config->batch_size,
        .stateful = config->sequence_batching,
        .durability = config->durability,
        .cache_entries = config->cache_entries,
        .cache_bytes = config->cache_bytes,
        .state_max_bytes = config->state_max_bytes,
        .answer_keep_bytes = config->answer_keep_bytes,
        .answer_max_bytes = config->answer_max_bytes,
        .store_max_bytes = config->store_max_bytes,
        .store_timeout_ms = config->store_timeout_ms,
        .store_wait_ms = config->store_wait_ms,
        .store_replicas = config->store_replicas,
        .journal_max_bytes = config->journal_max_bytes,
        .journal = config->journal,
        .check_max_bytes = config->check_max_bytes,
        .idle_ms =
            config->sequence_max_idle_ms ? config->sequence_max_idle_ms + config->state_ttl_ms : 0,
        .lifetime_ms = config->sequence_timeout_ms,
        .clock_floor_ms = cn_clock_watch_floor_ms(),
        .clock_jump_ms = about->clock_jump_ms,
        .tombstone_ms = config->tombstone_ms,
        .restart_expired = config->on_expired == CN_EXPIRED_RESTART,
        .key_window = config->key_window,
        .memory_max_bytes = memory_limit(about),
        /* A handler's call ends itself a little before the server would replace its worker. That
         * costs one row its answer, instead of a restart for every row of the batch. */
        .step_time_ms = config->step_time_ms ? config->step_time_ms
                                             : (uint64_t)config->response_timeout_s * 900,
        .traceback_bytes = config->traceback_bytes,
        .strict_globals = config->strict_globals,
        .continuous = config->sequence_batching && config->continuous_batching,
        .stream_bytes = config->stream_bytes,
        .stream_ms = config->stream_ms,
        .report_jobs = cn_ts_logs(), /* its lines carry request ids */
        .max_batch_size = config->io ? config->io->max_batch_size : 0,
        .samples_max = config->metric_series_max ? config->metric_samples_max : 0,
    };
}
