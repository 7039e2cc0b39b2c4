/* torchserve/settings/torchserve_config.c - config.properties, flags and TS_ variables become the
 * server's options. Main thread, at start.
 *
 * All sources are put together as properties first (torchserve_sources.c); then properties.def says
 * what each key does. The properties as a whole are what a snapshot begins with. The variables of
 * Continuo itself come last.
 *
 * A key that TorchServe has and Continuo does not need is accepted, with a warning if its value
 * asks for something that will not happen. An unknown key gets a warning with the nearest known
 * one, because TorchServe ignores it, too. `continuo.NAME` sets any of Continuo's own options. */
#include "torchserve/settings/torchserve_config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/server/server_options.h"
#include "core/errors/panic.h"
#include "core/text/suggest.h"
#include "torchserve/settings/torchserve_logs.h"
#include "torchserve/settings/torchserve_models.h"
#include "torchserve/settings/torchserve_sources_priv.h"

#define OWN_PREFIX "continuo."

/* --- what a key does */

static const struct cn_option *
option_of(const char *flag)
{
    const struct cn_option *option = cn_option_find(cn_str_from(flag));

    cn_assert(option != NULL); /* each row of properties.def names an option that exists */
    return option;
}

/* Adds TorchServe's port to an address that has none. https has other ports than http. The address
 * is parsed twice, with two default ports: if the results differ, it has no port of its own. */
static const char *
with_port(const char *key, const char *text, char *out, size_t out_bytes)
{
    static const struct {
        const char *key;
        unsigned http, https;
    } ports[] = {{"inference_address", 80, 443},
                 {"management_address", 8081, 8444},
                 {"metrics_address", 8082, 8445}};
    struct cn_address one, other;

    if (cn_address_parse(text, 1, &one, NULL) != 0 || cn_address_parse(text, 2, &other, NULL) != 0)
        return text;
    if (one.is_unix || one.port == other.port)
        return text;
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        if (strcmp(ports[i].key, key) != 0)
            continue;
        snprintf(out, out_bytes, "%s:%u", text, one.is_https ? ports[i].https : ports[i].http);
        return out;
    }
    return text;
}

static int
set_option(struct loading *loading, const struct row *row, enum cn_config_source source,
           const char *where, const char *value, struct cn_error *err)
{
    const struct cn_option *option = option_of(row->flag);
    char whole[640], text[600], *end;
    double minutes;
    size_t len;

    snprintf(whole, sizeof(whole), "%.500s: %s", where, row->key);
    if (row->kind == BOOL || row->kind == NOT) {
        value = cn_torchserve_is_true(value) == (row->kind == BOOL) ? "true" : "false";
    } else if (row->kind == MINUTES) {
        minutes = strtod(value, &end);
        if (end == value || *end != '\0' || !(minutes > 0 && minutes < 1e9))
            return cn_fail(err, CN_E_CONFIG, "%s: expected a number of minutes, found \"%.100s\"",
                           whole, value);
        snprintf(text, sizeof(text), "%.0f", minutes * 60000);
        value = text;
    } else if (row->kind == ADDRESS) {
        value = with_port(row->key, value, text, sizeof(text));
    } else if (row->kind == INT) { /* spaces at the end are easily typed and hard to see */
        snprintf(text, sizeof(text), "%s", value);
        for (len = strlen(text); len > 0 && text[len - 1] == ' '; len--)
            text[len - 1] = '\0';
        value = text;
    }
    return cn_option_set(loading->config, option, source, whole, value, err);
}

static void
tell(struct loading *loading, const struct cn_property *property, const char *text)
{
    char line[1024], key[CN_YAML_SHOWN_MAX];

    snprintf(line, sizeof(line), "%.400s: %s %s", property->where,
             cn_yaml_shown(cn_str_from(property->key), key), text);
    if (loading->warn != NULL)
        loading->warn(loading->ctx, line);
}

static void
tell_unknown(struct loading *loading, const struct cn_property *property)
{
    const char *names[CN_N_TORCHSERVE_ROWS], *near;
    char text[128];

    for (size_t i = 0; i < CN_N_TORCHSERVE_ROWS; i++)
        names[i] = cn_torchserve_rows[i].key;
    near = cn_suggest(cn_str_from(property->key), names, CN_N_TORCHSERVE_ROWS);
    snprintf(text, sizeof(text), "is not a known key%s%s%s", near ? " (did you mean " : "",
             near ? near : "", near ? "?)" : "");
    tell(loading, property, text);
}

/* Sets one of Continuo's options: "continuo.state-dir=DIR". */
static int
apply_own(struct loading *loading, const struct cn_property *property, struct cn_error *err)
{
    const char *flag = property->key + strlen(OWN_PREFIX);
    const struct cn_option *option = cn_option_find(cn_str_from(flag));
    char where[640];

    if (option == NULL || option->yaml_key[0] == '\0') {
        tell(loading, property, "is not a known key; continuo --help all lists the options");
        return 0;
    }
    snprintf(where, sizeof(where), "%.500s: %.100s", property->where, property->key);
    return cn_option_set(loading->config, option, CN_FROM_FILE, where, property->value, err);
}

static int
apply_property(struct loading *loading, const struct cn_property *property, struct cn_error *err)
{
    char text[400];

    if (strncmp(property->key, OWN_PREFIX, strlen(OWN_PREFIX)) == 0)
        return apply_own(loading, property, err);
    for (size_t i = 0; i < CN_N_TORCHSERVE_ROWS; i++) {
        const struct row *row = &cn_torchserve_rows[i];

        if (strcmp(row->key, property->key) != 0)
            continue;
        if (row->flag[0] != '\0' && property->value[0] != '\0')
            return set_option(loading, row, property->where[0] == '-' ? CN_FROM_FLAG : CN_FROM_FILE,
                              property->where, property->value, err);
        if (row->kind == NOTE && strcmp(row->otherwise, "*") != 0 &&
            strcmp(row->otherwise, property->value) != 0) {
            snprintf(text, sizeof(text), "has no effect: %s", row->text);
            tell(loading, property, text);
        }
        return 0;
    }
    tell_unknown(loading, property);
    return 0;
}

static int
apply_all(struct loading *loading, struct cn_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < CN_N_TORCHSERVE_ROWS; i++) {
        if (cn_torchserve_rows[i].flag[0] != '\0' && cn_torchserve_rows[i].otherwise[0] != '\0')
            rc = set_option(loading, &cn_torchserve_rows[i], CN_FROM_DEFAULT,
                            "TorchServe's default", cn_torchserve_rows[i].otherwise, err);
    }
    for (uint32_t i = 0; rc == 0 && i < loading->properties.n; i++)
        rc = apply_property(loading, &loading->properties.items[i], err);
    return rc;
}

/* --- what needs more than a row */

static int
check_dir(const struct loading *loading, const char *key, const char *flag, struct cn_error *err)
{
    const char *dir = cn_torchserve_value(loading, key);
    struct stat st;

    if (dir != NULL && (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)))
        return cn_fail(err, CN_E_CONFIG, "%s directory not found: %s", flag, dir);
    return 0;
}

static int
check_files(const struct loading *loading, struct cn_error *err)
{
    static const enum cn_torchserve_flag files[] = {CN_TS_LOG_CONFIG, CN_TS_CPP_LOG_CONFIG};
    int rc;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const char *path = loading->command->values[files[i]];

        if (path != NULL && access(path, F_OK) != 0)
            return cn_fail(err, CN_E_CONFIG, "%s file not found: %s",
                           cn_torchserve_flag_names[files[i]], path);
    }
    if (cn_torchserve_value(loading, "model_store") == NULL)
        return cn_fail(err, CN_E_CONFIG, "Missing mandatory parameter --model-store");
    rc = check_dir(loading, "model_store", "--model-store", err);
    if (rc == 0)
        rc = check_dir(loading, "workflow_store", "--workflow-store", err);
    return rc;
}

/* In TorchServe, host and port of the gRPC addresses are two keys; they become one address. */
static int
choose_grpc(struct loading *loading, struct cn_error *err)
{
    static const struct {
        const char *host, *port, *flag, *default_port;
    } apis[] = {
        {"grpc_inference_address", "grpc_inference_port", "grpc-inference-address", "7070"},
        {"grpc_management_address", "grpc_management_port", "grpc-management-address", "7071"},
    };
    const char *ssl = cn_torchserve_value(loading, "enable_grpc_ssl");
    const char *scheme = ssl != NULL && cn_torchserve_is_true(ssl) ? "https" : "http";
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(apis) / sizeof(apis[0]); i++) {
        const char *host = cn_torchserve_value(loading, apis[i].host),
                   *port = cn_torchserve_value(loading, apis[i].port);
        char text[400], where[100];

        if (host == NULL && port == NULL && ssl == NULL)
            continue;
        host = host != NULL ? host : "127.0.0.1";
        snprintf(text, sizeof(text),
                 strchr(host, ':') ? "%s://[%.300s]:%.20s" : "%s://%.300s:%.20s", scheme, host,
                 port != NULL ? port : apis[i].default_port);
        snprintf(where, sizeof(where), "%s, %s", apis[i].host, apis[i].port);
        rc =
            cn_option_set(loading->config, option_of(apis[i].flag), CN_FROM_FILE, where, text, err);
    }
    return rc;
}

/* Where no number of workers is set, TorchServe starts as many as there are processors. */
static void
choose_startup_workers(struct cn_server_config *config)
{
    cpu_set_t cores;

    if (config->startup_workers > 0 || config->default_workers > 0)
        return;
    config->startup_workers =
        sched_getaffinity(0, sizeof(cores), &cores) < 0 ? 1 : (uint32_t)CPU_COUNT(&cores);
}

static int
choose_models(struct loading *loading, struct cn_error *err)
{
    const struct cn_property *settings = cn_properties_find(&loading->properties, "models");
    const struct cn_property *snapshot = cn_properties_find(&loading->properties, "model_snapshot");
    const struct cn_property *load = cn_properties_find(&loading->properties, "load_models");
    struct cn_server_config *config = loading->config;
    char where[600];
    int rc = 0;

    if (settings != NULL && settings->value[0] != '\0') {
        snprintf(where, sizeof(where), "%.500s: models", settings->where);
        rc = cn_torchserve_models_parse(where, settings->value, &config->settings,
                                        &config->n_settings, err);
    }
    if (rc == 0 && snapshot != NULL && snapshot->value[0] != '\0') {
        snprintf(where, sizeof(where), "%.500s: model_snapshot", snapshot->where);
        return cn_torchserve_snapshot_parse(where, snapshot->value, &config->restored,
                                            &config->n_restored, err);
    }
    if (rc == 0 && load != NULL) {
        snprintf(where, sizeof(where), "%.500s: load_models", load->where);
        config->models_source = CN_FROM_FILE;
        rc = cn_server_models_add(config, where, cn_str_from(load->value), err);
    }
    return rc;
}

/* Writes the first part of all later snapshots: everything that was configured. */
static void
prepare_snapshots(struct loading *loading)
{
    struct cn_server_config *config = loading->config;
    struct cn_buf text;

    if (loading->command->values[CN_TS_NCS] != NULL)
        return;
    cn_buf_init(&text, 0);
    cn_buf_printf(&text, "%s/config", cn_torchserve_logs_dir(loading->environment));
    config->snapshot_dir = cn_buf_take(&text, NULL);
    for (uint32_t i = 0; i < loading->properties.n; i++) {
        const struct cn_property *property = &loading->properties.items[i];

        if (strcmp(property->key, "model_snapshot") != 0 && strcmp(property->key, "version") != 0)
            cn_property_print(property->key, property->value, &text);
    }
    cn_property_print("version", CN_TORCHSERVE_VERSION, &text);
    config->snapshot_text = cn_buf_take(&text, NULL);
}

static int
load(struct loading *loading, struct cn_error *err)
{
    int rc = cn_torchserve_gather(loading, err);
    char text[600];

    if (rc == 0)
        rc = check_files(loading, err);
    if (rc == 0)
        rc = cn_torchserve_logs_place(
            loading->config, cn_torchserve_logs_dir(loading->environment),
            cn_environment_value(loading->environment, "METRICS_LOCATION"), err);
    if (rc == 0)
        rc = apply_all(loading, err);
    if (rc == 0)
        rc = choose_grpc(loading, err);
    if (rc == 0)
        rc = choose_models(loading, err);
    if (rc == 0)
        rc = cn_server_config_apply_environment(loading->config, loading->environment, err);
    if (rc != 0)
        return rc;
    choose_startup_workers(loading->config);
    cn_server_config_settle(loading->config);
    if (cn_torchserve_logs_check(loading->config, text, sizeof(text)) && loading->warn != NULL)
        loading->warn(loading->ctx, text);
    prepare_snapshots(loading);
    return 0;
}

int
cn_torchserve_config_load(const struct cn_torchserve_command *command, char **environment,
                          struct cn_server_config *out, cn_config_warn_fn warn, void *ctx,
                          struct cn_error *err)
{
    struct loading loading = {
        .command = command, .environment = environment, .config = out, .warn = warn, .ctx = ctx};
    int rc;

    cn_server_config_set_defaults(out);
    /* These are TorchServe's defaults; continuo.torchserve-errors=false and similar keys bring ours
     * back. TorchServe logs a model that it cannot load, goes on without it, and calls itself
     * healthy. Its handlers read files outside of their archives, and open connections. */
    out->sequence_on_expired = CN_EXPIRED_RESTART; /* TorchServe begins a new sequence */
    out->dialect = CN_DIALECT_TORCHSERVE;
    out->torchserve_errors = true;
    out->exit_on_model_failure = false;
    out->strict_readiness = false;
    out->worker_walls = 0;      /* off */
    out->scale_workers = false; /* TorchServe's maxWorkers only limits what an operator asks for */
    rc = load(&loading, err);
    cn_properties_fini(&loading.properties);
    if (rc != 0)
        cn_server_config_fini(out);
    return rc;
}
