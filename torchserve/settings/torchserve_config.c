/* torchserve/settings/torchserve_config.c - config.properties, flags and TS_ variables become the
 * server's options. Main thread, at start.
 *
 * All sources are put together as properties first, each with a word on where it came from; then
 * properties.def says what each key does. The properties as a whole are what a snapshot begins
 * with.
 *
 * Later sources win: the file, then flags, then TS_ variables (if enable_envvars_config allows
 * them), and at last the variables of Continuo itself. The file is the one of TS_CONFIG_FILE, else
 * of --ts-config, else the newest snapshot in logs/config, else config.properties in the current
 * folder.
 *
 * A key that TorchServe has and Continuo does not need is accepted, with a warning if its value
 * asks for something that will not happen. An unknown key gets a warning with the nearest known
 * one, because TorchServe ignores it, too. `continuo.NAME` sets any of Continuo's own options. */
#include "torchserve/settings/torchserve_config.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/server/server_options.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"
#include "torchserve/settings/properties.h"
#include "torchserve/settings/torchserve_logs.h"
#include "torchserve/settings/torchserve_models.h"

#define OWN_PREFIX "continuo."

enum property_kind { TEXT, INT, ADDRESS, BOOL, NOT, MINUTES, SPECIAL, NOTE };

static const struct row {
    const char *key;
    enum property_kind kind;
    const char *env, *otherwise, *flag, *text;
} rows[] = {
#define CN_PROPERTY(key, kind, env, otherwise, flag, text) {key, kind, env, otherwise, flag, text},
#include "torchserve/settings/properties.def"
#undef CN_PROPERTY
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *const flag_keys[CN_TS_N_FLAGS] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) key,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
};
static const char *const flag_names[CN_TS_N_FLAGS] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) flag,
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
};

struct loading {
    const struct cn_torchserve_command *command;
    char **environment;
    struct cn_properties properties;
    struct cn_server_config *config;
    cn_config_warn_fn warn;
    void *ctx;
};

static const char *
logs_dir(char **environment)
{
    const char *dir = cn_environment_value(environment, "LOG_LOCATION");

    return dir != NULL && dir[0] != '\0' ? dir : "logs";
}

static bool
java_true(const char *text)
{
    return cn_str_eq_nocase(cn_str_from(text), CN_STR("true"));
}

static const char *
value_of(const struct loading *loading, const char *key)
{
    const struct cn_property *found = cn_properties_find(&loading->properties, key);

    return found != NULL && found->value[0] != '\0' ? found->value : NULL;
}

/* --- which file */

bool
cn_snapshot_is_name(const char *name)
{
    size_t digits = strspn(name, "0123456789");

    return digits == 17 && (strcmp(name + digits, "-startup.cfg") == 0 ||
                            strcmp(name + digits, "-snapshot.cfg") == 0 ||
                            strcmp(name + digits, "-shutdown.cfg") == 0);
}

/* Finds the newest snapshot by the time in its name. Returns NULL if there is none; free the result
 * with cn_free(). */
static char *
newest_snapshot(const char *logs)
{
    char newest[64] = "", path[4096];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/config", logs);
    dir = opendir(path);
    if (dir == NULL)
        return NULL;
    while ((entry = readdir(dir)) != NULL) {
        if (cn_snapshot_is_name(entry->d_name) && strcmp(entry->d_name, newest) > 0)
            snprintf(newest, sizeof(newest), "%.63s", entry->d_name);
    }
    closedir(dir);
    if (newest[0] == '\0')
        return NULL;
    snprintf(path, sizeof(path), "%s/config/%s", logs, newest);
    return cn_strdup(path);
}

static int
read_file(struct loading *loading, struct cn_error *err)
{
    const char *path = cn_environment_value(loading->environment, "TS_CONFIG_FILE");
    char *snapshot = NULL, text[600];
    int rc;

    if (path == NULL)
        path = loading->command->values[CN_TS_TS_CONFIG];
    if (path != NULL && access(path, F_OK) != 0)
        return cn_fail(err, CN_E_CONFIG, "--ts-config file not found: %s", path);
    if (path == NULL && loading->command->values[CN_TS_NCS] == NULL)
        path = snapshot = newest_snapshot(logs_dir(loading->environment));
    if (path == NULL && access("config.properties", F_OK) == 0)
        path = "config.properties";
    if (path == NULL)
        return 0;
    if (loading->warn != NULL && snapshot != NULL) {
        snprintf(text, sizeof(text),
                 "restoring the newest snapshot %.400s (start with --ncs to ignore it)", snapshot);
        loading->warn(loading->ctx, text);
    }
    rc = cn_properties_read(path, &loading->properties, err);
    cn_free(snapshot);
    return rc;
}

/* --- the sources, one over the other */

/* Replaces $$NAME$$ by the value of that environment variable. */
static int
expand_value(const struct loading *loading, struct cn_property *property, struct cn_error *err)
{
    const char *at = property->value, *begin, *end;
    struct cn_buf out;

    if (strstr(at, "$$") == NULL)
        return 0;
    cn_buf_init(&out, 0);
    while ((begin = strstr(at, "$$")) != NULL && (end = strstr(begin + 2, "$$")) != NULL) {
        char *name = cn_strndup(begin + 2, (size_t)(end - begin - 2));
        const char *value = cn_environment_value(loading->environment, name);

        if (value == NULL) {
            cn_fail(err, CN_E_CONFIG, "%s: %s: Invalid Environment Variable %s", property->where,
                    property->key, name);
            cn_free(name);
            cn_buf_fini(&out);
            return CN_E_CONFIG;
        }
        cn_free(name);
        cn_buf_append(&out, at, (size_t)(begin - at));
        cn_buf_puts(&out, value);
        at = end + 2;
    }
    cn_buf_puts(&out, at);
    cn_free(property->value);
    property->value = cn_buf_take(&out, NULL);
    return 0;
}

static int
add_flags(struct loading *loading, struct cn_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < CN_TS_N_FLAGS; i++) {
        if (flag_keys[i][0] != '\0' && loading->command->values[i] != NULL)
            rc = cn_properties_set(&loading->properties, cn_str_from(flag_keys[i]),
                                   cn_str_from(loading->command->values[i]), flag_names[i], err);
    }
    return rc;
}

/* TorchServe allows allowed_urls from the environment only with a second switch: somebody who can
 * set variables could otherwise make the server download from anywhere. */
static bool
may_come_from_environment(const struct loading *loading, const char *key)
{
    const char *allowed = value_of(loading, "use_env_allowed_urls");

    return strcmp(key, "allowed_urls") != 0 || (allowed != NULL && java_true(allowed));
}

static int
add_environment(struct loading *loading, struct cn_error *err)
{
    const char *allowed = value_of(loading, "enable_envvars_config");
    int rc = 0;

    if (allowed == NULL || !java_true(allowed))
        return 0;
    for (size_t i = 0; rc == 0 && i < N_ROWS; i++) {
        const char *value =
            rows[i].env[0] ? cn_environment_value(loading->environment, rows[i].env) : NULL;

        if (value != NULL && may_come_from_environment(loading, rows[i].key))
            rc = cn_properties_set(&loading->properties, cn_str_from(rows[i].key),
                                   cn_str_from(value), rows[i].env, err);
    }
    return rc;
}

static int
gather(struct loading *loading, struct cn_error *err)
{
    int rc = read_file(loading, err);

    for (uint32_t i = 0; rc == 0 && i < loading->properties.n; i++)
        rc = expand_value(loading, &loading->properties.items[i], err);
    if (rc == 0)
        rc = add_flags(loading, err);
    if (rc == 0)
        rc = add_environment(loading, err);
    return rc;
}

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
        value = java_true(value) == (row->kind == BOOL) ? "true" : "false";
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
    const char *names[N_ROWS], *near;
    char text[128];

    for (size_t i = 0; i < N_ROWS; i++)
        names[i] = rows[i].key;
    near = cn_suggest(cn_str_from(property->key), names, N_ROWS);
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
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *row = &rows[i];

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

    for (size_t i = 0; rc == 0 && i < N_ROWS; i++) {
        if (rows[i].flag[0] != '\0' && rows[i].otherwise[0] != '\0')
            rc = set_option(loading, &rows[i], CN_FROM_DEFAULT, "TorchServe's default",
                            rows[i].otherwise, err);
    }
    for (uint32_t i = 0; rc == 0 && i < loading->properties.n; i++)
        rc = apply_property(loading, &loading->properties.items[i], err);
    return rc;
}

/* --- what needs more than a row */

static int
check_dir(const struct loading *loading, const char *key, const char *flag, struct cn_error *err)
{
    const char *dir = value_of(loading, key);
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
            return cn_fail(err, CN_E_CONFIG, "%s file not found: %s", flag_names[files[i]], path);
    }
    if (value_of(loading, "model_store") == NULL)
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
    const char *ssl = value_of(loading, "enable_grpc_ssl");
    const char *scheme = ssl != NULL && java_true(ssl) ? "https" : "http";
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(apis) / sizeof(apis[0]); i++) {
        const char *host = value_of(loading, apis[i].host), *port = value_of(loading, apis[i].port);
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
    cn_buf_printf(&text, "%s/config", logs_dir(loading->environment));
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
    int rc = gather(loading, err);
    char text[600];

    if (rc == 0)
        rc = check_files(loading, err);
    if (rc == 0)
        rc = cn_torchserve_logs_place(
            loading->config, logs_dir(loading->environment),
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
