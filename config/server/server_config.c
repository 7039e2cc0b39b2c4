/* config/server/server_config.c - reads the options from defaults, file, environment and flags.
 * Main thread, at the start.
 *
 * The four sources are applied from the weakest to the strongest, each overwriting the one before,
 * and `sources` remembers which one decided, for --print-config. The command line is read first all
 * the same, because it may name the file or ask for --help; its values are applied last.
 *
 * All sources give text, which cn_option_read checks (server_options.c), so a value has the same
 * rules and the same message wherever it comes from; only the place in the message differs. A YAML
 * value must also have the right type. The list of models is the exception: it has several values,
 * and each stronger source replaces it as a whole. */
#include "config/server/server_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/server/server_options_priv.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"

#define V2_REQUEST_BYTES 67108864 /* Triton's limit for JSON; its binary tensors have no limit */

/* --- flags --- */

static int
apply_flags(struct cn_server_config *config, const struct cn_command_line *line,
            struct cn_error *err)
{
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        char where[64];
        int rc;

        if (line->values[i] == NULL)
            continue;
        snprintf(where, sizeof(where), "--%s", cn_server_options[i].flag);
        rc = cn_option_read(config, &cn_server_options[i], where, line->values[i], err);
        if (rc != 0)
            return rc;
        config->sources[i] = CN_FROM_FLAG;
    }
    return 0;
}

/* --- environment --- */

/* An empty variable counts as not set, because compose files pass what they do not have as empty.
 */
const char *
cn_environment_value(char **environment, const char *name)
{
    size_t len = strlen(name);

    for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=')
            return (*entry)[len + 1] != '\0' ? *entry + len + 1 : NULL;
    }
    return NULL;
}

static int
apply_environment(struct cn_server_config *config, bool has_models, char **environment,
                  struct cn_error *err)
{
    const char *models = cn_environment_value(environment, ENV_PREFIX "MODELS");
    char name[64];
    int rc;

    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const char *value =
            cn_environment_value(environment, cn_option_env_name(cn_server_options[i].flag, name));
        if (value == NULL)
            continue;
        rc = cn_option_read(config, &cn_server_options[i], name, value, err);
        if (rc != 0)
            return rc;
        config->sources[i] = CN_FROM_ENV;
    }
    if (models != NULL && !has_models) {
        cn_server_models_clear(config);
        rc = cn_server_models_add(config, ENV_PREFIX "MODELS", cn_str_from(models), err);
        if (rc != 0)
            return rc;
        config->models_source = CN_FROM_ENV;
    }
    return 0;
}

int
cn_server_config_apply_environment(struct cn_server_config *config, char **environment,
                                   struct cn_error *err)
{
    return apply_environment(config, false, environment, err);
}

/* Warns of a variable that looks like a misspelt one of ours. Other variables with our prefix may
 * belong to somebody else. */
static void
warn_environment(char **environment, cn_config_warn_fn warn, void *ctx)
{
    size_t prefix = strlen(ENV_PREFIX);

    for (char **entry = environment; warn != NULL && entry != NULL && *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '='), *near;
        char name[64], shown[CN_YAML_SHOWN_MAX], text[256];
        struct cn_str word;

        if (equals == NULL || strncmp(*entry, ENV_PREFIX, prefix) != 0)
            continue;
        word = (struct cn_str){*entry + prefix, (size_t)(equals - *entry) - prefix};
        near = cn_option_nearest(word, false);
        if (near == NULL && cn_edit_distance(word, CN_STR("config")) <= 1)
            near = "config";
        if (near == NULL || cn_edit_distance(word, cn_str_from(near)) == 0)
            continue;
        snprintf(text, sizeof(text), "unknown variable " ENV_PREFIX "%s (did you mean %s?)",
                 cn_yaml_shown(word, shown), cn_option_env_name(near, name));
        warn(ctx, text);
    }
}

/* --- file --- */

static int
apply_yaml_value(struct cn_server_config *config, const struct cn_option *option,
                 const char *doc_name, const struct cn_yaml *value, struct cn_error *err)
{
    bool right = value->kind == CN_YAML_STRING;
    char where[512], expected[96];

    snprintf(where, sizeof(where), "%.400s:%u:%u: %s", doc_name, value->line, value->column,
             option->yaml_key);
    if (option->kind == CN_KIND_UINT)
        right = value->kind == CN_YAML_INT;
    else if (option->kind == CN_KIND_BOOL)
        right = value->kind == CN_YAML_BOOL;
    else if (option->kind == CN_KIND_RATE)
        right = value->kind == CN_YAML_INT || value->kind == CN_YAML_FLOAT;
    if (!right) {
        char shown[CN_YAML_SHOWN_MAX];
        bool scalar = value->kind != CN_YAML_LIST && value->kind != CN_YAML_MAP &&
                      value->kind != CN_YAML_NULL;
        return cn_fail(err, CN_E_CONFIG, "%s: expected %s, found %s%s%s%s", where,
                       cn_option_expected(option, expected), cn_yaml_kind_word(value->kind),
                       scalar ? " (" : "", scalar ? cn_yaml_shown(value->text, shown) : "",
                       scalar ? ")" : "");
    }
    if (memchr(value->text.ptr, '\0', value->text.len) != NULL)
        return cn_fail(err, CN_E_CONFIG, "%s: a value cannot hold a zero byte", where);
    if (option->kind == CN_KIND_BOOL) { /* YAML allows "True", too */
        cn_option_set_number(config, option, value->boolean);
        return 0;
    }
    if (option->kind == CN_KIND_UINT) { /* YAML allows 0x10, too */
        char text[32];
        snprintf(text, sizeof(text), "%" PRId64, value->integer);
        return cn_option_read(config, option, where, text, err);
    }
    return cn_option_read(config, option, where, value->text.ptr, err);
}

static void
warn_yaml_key(const char *doc_name, const struct cn_yaml *value, cn_config_warn_fn warn, void *ctx)
{
    char key[CN_YAML_SHOWN_MAX], text[640];
    const char *near = cn_option_nearest(value->key, false);
    int n = snprintf(text, sizeof(text), "%.400s:%u:%u: unknown key %s", doc_name, value->key_line,
                     value->key_column, cn_yaml_shown(value->key, key));

    if (near != NULL)
        snprintf(text + n, sizeof(text) - (size_t)n, " (did you mean %s?)", near);
    if (warn != NULL)
        warn(ctx, text);
}

static int
apply_document(struct cn_server_config *config, bool has_models, const struct cn_yaml_doc *doc,
               cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    const struct cn_yaml *root = cn_yaml_root(doc);
    const char *name = cn_yaml_name(doc);

    if (root->kind != CN_YAML_MAP)
        return cn_fail(err, CN_E_CONFIG, "%s:%u:%u: expected a map of settings, found %s", name,
                       root->line, root->column, cn_yaml_kind_word(root->kind));
    for (uint32_t i = 0; i < root->n_items; i++) {
        const struct cn_yaml *value = root->items[i];
        const struct cn_option *option = cn_option_find(value->key);
        int rc = 0;

        if (cn_str_eq(value->key, CN_STR("models"))) {
            if (!has_models) {
                rc = cn_server_models_add_yaml(config, name, value, err);
                config->models_source = CN_FROM_FILE;
            }
        } else if (option == NULL || option->yaml_key[0] == '\0') {
            warn_yaml_key(name, value, warn, ctx);
        } else {
            rc = apply_yaml_value(config, option, name, value, err);
            config->sources[option - cn_server_options] = CN_FROM_FILE;
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
apply_file(struct cn_server_config *config, const char *path, bool has_models,
           cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc = cn_yaml_parse_file(path, &doc, err);

    if (rc != 0)
        return rc;
    rc = apply_document(config, has_models, doc, warn, ctx, err);
    cn_yaml_destroy(doc);
    return rc;
}

/* --- all together --- */

void
cn_server_config_set_defaults(struct cn_server_config *config)
{
    memset(config, 0, sizeof(*config));
    config->sources = cn_alloc(CN_N_OPTIONS * sizeof(*config->sources));
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];

        if (cn_option_is_text(option))
            cn_option_set_text(config, option, option->default_text);
        else
            cn_option_set_number(config, option, option->default_number);
    }
}

/* The limit of v2 requests follows max-request-size if that was set. */
void
cn_server_config_settle(struct cn_server_config *config)
{
    const struct cn_option *size = cn_option_find(CN_STR("max-request-size"));

    if (config->max_v2_request_bytes > 0)
        return;
    config->max_v2_request_bytes = config->sources[size - cn_server_options] == CN_FROM_DEFAULT
                                       ? V2_REQUEST_BYTES
                                       : config->max_request_bytes;
}

static int
load(struct cn_server_config *config, struct cn_command_line *line, char **environment,
     cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    const char *path;
    int rc = 0;

    for (int at = 1; at < line->n_args; at++) {
        rc = cn_command_line_take(config, line, &at, err);
        if (rc != 0 || cn_config_only_informs(config))
            return rc;
    }
    if (line->has_models)
        config->models_source = CN_FROM_FLAG;
    path = line->values[cn_option_find(CN_STR("config")) - cn_server_options];
    if (path == NULL)
        path = cn_environment_value(environment, ENV_PREFIX "CONFIG");
    if (path != NULL)
        rc = apply_file(config, path, line->has_models, warn, ctx, err);
    if (rc == 0)
        rc = apply_environment(config, line->has_models, environment, err);
    if (rc == 0)
        rc = apply_flags(config, line, err);
    if (rc == 0)
        warn_environment(environment, warn, ctx);
    return rc;
}

int
cn_server_config_load(int argc, char **argv, char **environment, struct cn_server_config *out,
                      cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    struct cn_command_line line = {.n_args = argc, .args = argv};
    int rc;

    cn_server_config_set_defaults(out);
    rc = load(out, &line, environment, warn, ctx, err);
    if (rc != 0)
        cn_server_config_fini(out);
    else
        cn_server_config_settle(out);
    return rc;
}

void
cn_server_config_fini(struct cn_server_config *config)
{
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        if (cn_option_is_text(&cn_server_options[i]))
            cn_option_set_text(config, &cn_server_options[i], NULL);
    }
    cn_server_models_clear(config);
    cn_model_settings_free(config->settings, config->n_settings);
    cn_model_settings_free(config->restored, config->n_restored);
    cn_free(config->snapshot_dir);
    cn_free(config->snapshot_text);
    cn_free(config->sources);
    config->sources = NULL;
}
