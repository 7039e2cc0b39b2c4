/* management/models/model_settings.c - makes a model's configuration from all sources of settings.
 * File thread.
 *
 * A setting may stand in four places. From the strongest to the weakest: the register call, the
 * YAML of the archive (or the YAML that the load brings in its place), the server's settings for
 * this model version, the server's defaults. cn_model_make_config() applies them from the weakest
 * to the strongest.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "config/model/batching.h"
#include "config/model/model_io.h"
#include "config/model/model_state.h"
#include "config/model/overlay.h"
#include "config/model/replicas.h"
#include "config/model/stream_input.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/models/handler_metrics.h"
#include "management/models/model_load_priv.h"
#include "management/models/python_models.h"

#define OVERRIDE_FILE "continuo-override.yaml"

static void
warn_line(void *ctx, const char *line)
{
    const struct cn_model_about *about = ctx;
    const char *runtime = cn_model_is_python(about) ? "python" : about->runtime;
    char quoted[1024];

    if (!cn_model_config_warning_concerns(line, runtime))
        return;
    cn_log(CN_LOG_WARN, "event=model_config_warning model=%s text=%s", about->name,
           cn_log_quote(line, strlen(line), quoted, sizeof quoted));
}

/* Reads the archive's YAML; *doc is NULL if there is none. */
static int
read_yaml(const struct cn_model_about *about, struct cn_yaml_doc **doc, struct cn_error *err)
{
    struct cn_buf path;
    int rc;

    *doc = NULL;
    if (!*about->config_file)
        return 0;
    if ((rc = cn_model_check_file(about, "configuration file", about->config_file, err)) != 0)
        return rc;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", about->dir, about->config_file);
    cn_buf_append(&path, "", 1);
    rc = cn_yaml_parse_file_as(path.data, about->config_file, doc, err);
    cn_buf_fini(&path);
    return rc;
}

static int
find_python(struct cn_model_about *about, struct cn_yaml_doc *doc,
            const struct cn_server_config *server, struct cn_error *err)
{
    char *wanted;
    int rc;

    if (!cn_model_is_python(about))
        return 0;
    wanted = cn_python_wanted(doc);
    rc = cn_python_find(wanted, about->dir, server->python, &about->python, &about->python_package,
                        err);
    cn_free(wanted);
    about->metrics = cn_handler_metrics_json();
    return rc;
}

static int
apply_yaml(struct cn_model_about *about, const struct cn_server_config *server,
           struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = read_yaml(about, &doc, err);

    if (!rc)
        rc = find_python(about, doc, server, err);
    if (cn_model_is_python(about))
        about->config.preload = false; /* its author must know that the handler may be forked */
    if (rc || !doc) {
        cn_yaml_destroy(doc);
        return rc;
    }
    rc = cn_model_config_apply(&about->config, doc, warn_line, about, err);
    if (!rc)
        rc = cn_model_io_parse(doc, &about->io, err);
    if (!rc && about->io)
        rc = cn_model_state_check_files(about->io, about->dir, err);
    if (!rc)
        rc = cn_batching_parse(doc, about->name, about->io, err);
    if (!rc)
        cn_batching_apply(doc, about->io, &about->config);
    if (!rc)
        rc = cn_stream_input_check(&about->config, about->io, err);
    if (!rc && about->io)
        cn_stream_input_widen(&about->config, about->io);
    about->config.io = about->io;
    cn_yaml_destroy(doc);
    return rc;
}

/* Writes the archive's YAML with the call's configuration laid over it. */
static int
lay_over(const struct cn_model_about *about, const char *text, struct cn_buf *out,
         struct cn_error *err)
{
    struct cn_yaml_doc *below = NULL, *above = NULL;
    int rc = cn_yaml_parse("config", cn_str_from(text), &above, err);

    if (!rc)
        rc = read_yaml(about, &below, err);
    if (!rc)
        rc = cn_overlay_write(below, above, about->name, &about->config, out, err);
    cn_yaml_destroy(below);
    cn_yaml_destroy(above);
    return rc;
}

/* A load may bring a configuration of its own. It is written into a file beside those that were
 * unpacked, because workers read the configuration there, too. The stamp becomes 0, so that a later
 * load without it does not take this version for the archive's current state. */
static int
override_yaml(struct cn_model_about *about, const char *text, struct cn_error *err)
{
    struct cn_buf path, both;
    FILE *file;
    int rc;

    if (!about->unpacked)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s is a folder, so its configuration cannot be overridden: pack it "
                       "into an archive, or change its YAML",
                       about->name);
    cn_buf_init(&both, 0);
    rc = lay_over(about, text, &both, err);
    if (rc) {
        cn_buf_fini(&both);
        return rc;
    }
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/" OVERRIDE_FILE, about->dir);
    cn_buf_append(&path, "", 1);
    file = fopen(path.data, "we");
    if (!file || fwrite(both.data, 1, both.len, file) != both.len)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", path.data);
    if (file && fclose(file) != 0 && !rc)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", path.data);
    cn_buf_fini(&path);
    cn_buf_fini(&both);
    cn_free(about->config_file);
    about->config_file = cn_strdup(OVERRIDE_FILE);
    about->stamp = 0;
    return rc;
}

static int
take_number(const char *name, int64_t value, uint32_t min, uint32_t max, uint32_t *out,
            struct cn_error *err)
{
    if (value < 0)
        return 0;
    if (value < min || value > max)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s is %lld; allowed are %u to %u", name,
                       (long long)value, min, max);
    *out = (uint32_t)value;
    return 0;
}

static int
apply_request(struct cn_model_config *config, const struct cn_model_request *request,
              struct cn_error *err)
{
    int rc = take_number("batch_size", request->batch_size, 1, 65536, &config->batch_size, err);

    if (!rc)
        rc = take_number("max_batch_delay", request->max_batch_delay_ms, 0, 3600000,
                         &config->max_batch_delay_ms, err);
    if (!rc)
        rc = take_number("initial_workers", request->initial_workers, 0, 1024, &config->min_workers,
                         err);
    if (!rc)
        rc = take_number("response_timeout", request->response_timeout_s, 1, 2147483,
                         &config->response_timeout_s, err);
    if (!rc)
        rc = take_number("startup_timeout", request->startup_timeout_s, 1, 2147483,
                         &config->startup_timeout_s, err);
    if (!rc)
        rc = take_number("max_workers", request->max_workers, 0, 1024, &config->max_workers, err);
    if (!rc && request->initial_workers > 0 && config->max_workers < config->min_workers)
        config->max_workers = config->min_workers;
    return rc;
}

static void
apply_server(struct cn_model_config *config, const struct cn_server_config *server, bool at_startup)
{
    cn_model_config_init(config);
    config->durability = server->durability;
    cn_state_store_text_set(&config->state_store, cn_str_from(server->state_store), NULL);
    config->store_wait_ms = at_startup ? server->state_store_wait_s * 1000 : 0;
    config->on_expired = (enum cn_on_expired)server->sequence_on_expired;
    config->min_workers =
        at_startup && server->startup_workers ? server->startup_workers : server->default_workers;
    config->job_queue_size = server->job_queue_size;
    config->response_timeout_s = server->response_timeout_s;
    config->startup_timeout_s = server->startup_timeout_s;
    config->answer_max_bytes = server->max_response_bytes;
}

static void
take_setting(int64_t value, uint32_t *out)
{
    if (value >= 0)
        *out = (uint32_t)value;
}

/* Applies the server's settings for this model version. TorchServe takes the two numbers of workers
 * only as a pair. */
static void
apply_settings(struct cn_model_about *about, const struct cn_server_config *server)
{
    struct cn_model_config *config = &about->config;

    for (uint32_t i = 0; i < server->n_settings; i++) {
        const struct cn_model_settings *settings = &server->settings[i];

        if (strcmp(settings->name, about->name) != 0 ||
            strcmp(settings->version, about->version) != 0)
            continue;
        if (settings->max_workers >= settings->min_workers) {
            take_setting(settings->min_workers, &config->min_workers);
            take_setting(settings->max_workers, &config->max_workers);
        }
        take_setting(settings->batch_size, &config->batch_size);
        take_setting(settings->max_batch_delay_ms, &config->max_batch_delay_ms);
        take_setting(settings->response_timeout_s, &config->response_timeout_s);
        take_setting(settings->startup_timeout_s, &config->startup_timeout_s);
    }
}

int
cn_model_make_config(struct cn_model_about *about, const struct cn_model_request *request,
                     const struct cn_server_config *server, bool at_startup, struct cn_error *err)
{
    struct cn_model_config *config = &about->config;
    uint32_t by_default;
    int rc;

    apply_server(config, server, at_startup);
    apply_settings(about, server);
    by_default = config->min_workers;
    rc = request->config ? override_yaml(about, request->config, err) : 0;
    if (!rc)
        rc = apply_yaml(about, server, err);
    /* A YAML that only says maxWorkers also bounds the default of minWorkers. */
    if (!rc && config->min_workers == by_default && config->max_workers > 0 &&
        config->max_workers < by_default)
        config->min_workers = config->max_workers;
    if (!rc)
        rc = apply_request(&about->config, request, err);
    if (!rc && about->config.max_workers == 0)
        about->config.max_workers = about->config.min_workers;
    if (!rc)
        rc = cn_model_config_check(&about->config, err);
    if (!rc)
        rc = cn_replicas_check(&about->config, true, err);
    return rc;
}
