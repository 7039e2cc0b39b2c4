/* config/server/server_config.c - reads the options from defaults, file, environment and flags.
 * Main thread, at the start.
 *
 * One table (server_options.def) says everything about an option; the struct, the flags, the
 * environment names, the YAML keys, --help and the manual page are made from it. The four sources
 * are applied from the weakest to the strongest, each overwriting the one before, and `sources`
 * remembers which one decided, for --print-config. The command line is read first all the same,
 * because it may name the file or ask for --help; its values are applied last.
 *
 * All sources give text, which set_from_text checks, so a value has the same rules and the same
 * message wherever it comes from; only the place in the message differs. A YAML value must also
 * have the right type. The list of models is the exception: it has several values, and each
 * stronger source replaces it as a whole. */
#include "config/server/server_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "config/server/server_options.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"
#include "core/tuning/tuning.h"

#define ENV_PREFIX "CONTINUO_"
#define V2_REQUEST_BYTES 67108864 /* Triton's limit for JSON; its binary tensors have no limit */

/* A row's default is stored as text or as a number, depending on its kind. */
#define STRING_TEXT(d) (d)
#define STRING_NUMBER(d) 0
#define ADDRESS_TEXT(d) (d)
#define ADDRESS_NUMBER(d) 0
#define OPTIONAL_ADDRESS_TEXT(d) (d)
#define OPTIONAL_ADDRESS_NUMBER(d) 0
#define TUNING_TEXT(d) (d)
#define TUNING_NUMBER(d) 0
#define STORE_TEXT(d) (d)
#define STORE_NUMBER(d) 0
#define UINT_TEXT(d) NULL
#define UINT_NUMBER(d) (d)
#define DURABILITY_TEXT(d) NULL
#define DURABILITY_NUMBER(d) (d)
#define LOGLEVEL_TEXT(d) NULL
#define LOGLEVEL_NUMBER(d) (d)
#define BOOL_TEXT(d) NULL
#define BOOL_NUMBER(d) (d)
#define RATE_TEXT(d) NULL
#define RATE_NUMBER(d) (d)
#define WORD_TEXT(d) NULL
#define WORD_NUMBER(d) (d)

const struct cn_option cn_server_options[CN_N_OPTIONS] = {
#define CN_OPTION(field, c_type, kind, flag, yaml_key, default_, min, max, arg, help)              \
    {flag,                                                                                         \
     yaml_key,                                                                                     \
     CN_KIND_##kind,                                                                               \
     offsetof(struct cn_server_config, field),                                                     \
     sizeof(c_type),                                                                               \
     kind##_TEXT(default_),                                                                        \
     kind##_NUMBER(default_),                                                                      \
     min,                                                                                          \
     max,                                                                                          \
     arg,                                                                                          \
     help},
#include "config/server/server_options.def"
#undef CN_OPTION
};

static void *
member(struct cn_server_config *config, const struct cn_option *option)
{
    return (char *)config + option->offset;
}

static void
set_text(struct cn_server_config *config, const struct cn_option *option, const char *text)
{
    char **at = member(config, option);

    cn_free(*at);
    *at = text ? cn_strdup(text) : NULL;
}

static void
set_number(struct cn_server_config *config, const struct cn_option *option, uint64_t value)
{
    void *at = member(config, option);

    if (option->kind == CN_KIND_BOOL)
        *(bool *)at = value != 0;
    else if (option->kind == CN_KIND_DURABILITY)
        *(enum cn_durability *)at = (enum cn_durability)value;
    else if (option->bytes == sizeof(uint64_t))
        *(uint64_t *)at = value;
    else
        *(uint32_t *)at = (uint32_t)value;
}

bool
cn_option_is_text(const struct cn_option *option)
{
    return option->kind == CN_KIND_STRING || option->kind == CN_KIND_ADDRESS ||
           option->kind == CN_KIND_OPTIONAL_ADDRESS || option->kind == CN_KIND_TUNING ||
           option->kind == CN_KIND_STORE;
}

/* The word of a number, among the words of `arg`, "text|json". */
static const char *
word_of(const struct cn_option *option, uint64_t number, char out[32])
{
    const char *at = option->arg;

    for (; number > 0 && strchr(at, '|'); number--)
        at = strchr(at, '|') + 1;
    snprintf(out, 32, "%.*s", (int)strcspn(at, "|"), at);
    return out;
}

/* The number of a word; -1: it is not among them. */
static int
word_number(const struct cn_option *option, const char *text)
{
    char word[32];

    for (uint64_t i = 0; i <= option->max; i++)
        if (strcmp(text, word_of(option, i, word)) == 0)
            return (int)i;
    return -1;
}

#define RATE_DIGITS 6
#define RATE_ONE 1000000

/* Writes a number of millionths as "0.01". */
static const char *
rate_text(uint64_t millionths, char out[32])
{
    size_t len = (size_t)snprintf(out, 32, "%" PRIu64 ".%06" PRIu64, millionths / RATE_ONE,
                                  millionths % RATE_ONE);

    while (out[len - 1] == '0')
        len--;
    out[out[len - 1] == '.' ? len - 1 : len] = '\0';
    return out;
}

/* Reads "0.01" as a number of millionths; -1: it is not a number from 0 to 1, or has more digits.
 */
static int64_t
rate_number(const char *text)
{
    int64_t value = (text[0] - '0') * (int64_t)RATE_ONE, unit = RATE_ONE;

    if ((text[0] != '0' && text[0] != '1') || (text[1] != '\0' && text[1] != '.'))
        return -1;
    text += text[1] == '.' ? 2 : 1;
    for (; *text >= '0' && *text <= '9' && unit > 1; text++) {
        unit /= 10;
        value += (*text - '0') * unit;
    }
    return *text == '\0' && value <= RATE_ONE ? value : -1;
}

static const char *
number_text(const struct cn_option *option, uint64_t value, char out[32])
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    if (option->kind == CN_KIND_BOOL)
        return value ? "true" : "false";
    if (option->kind == CN_KIND_DURABILITY)
        return cn_durability_word((enum cn_durability)value);
    if (option->kind == CN_KIND_LOGLEVEL)
        return levels[value < 4 ? value : 3];
    if (option->kind == CN_KIND_WORD)
        return word_of(option, value, out);
    if (option->kind == CN_KIND_RATE)
        return rate_text(value, out);
    snprintf(out, 32, "%" PRIu64, value);
    return out;
}

const char *
cn_option_text(const struct cn_option *option, const struct cn_server_config *config, char out[32])
{
    const void *at = (const char *)config + option->offset;

    if (cn_option_is_text(option))
        return *(char *const *)at;
    if (option->kind == CN_KIND_BOOL)
        return number_text(option, *(const bool *)at, out);
    if (option->kind == CN_KIND_DURABILITY)
        return number_text(option, (uint64_t) * (const enum cn_durability *)at, out);
    if (option->bytes == sizeof(uint64_t))
        return number_text(option, *(const uint64_t *)at, out);
    return number_text(option, *(const uint32_t *)at, out);
}

const char *
cn_option_default_text(const struct cn_option *option, char out[32])
{
    return cn_option_is_text(option) ? option->default_text
                                     : number_text(option, option->default_number, out);
}

const char *
cn_option_env_name(const char *flag, char out[64])
{
    size_t at = strlen(ENV_PREFIX);

    strcpy(out, ENV_PREFIX);
    for (; *flag != '\0' && at < 63; flag++)
        out[at++] = (char)(*flag == '-' ? '_' : *flag >= 'a' && *flag <= 'z' ? *flag - 32 : *flag);
    out[at] = '\0';
    return out;
}

static const char *
expected_text(const struct cn_option *option, char out[96])
{
    switch (option->kind) {
    case CN_KIND_DURABILITY:
        return "none, process or power";
    case CN_KIND_LOGLEVEL:
        return "error, warn, info or debug";
    case CN_KIND_BOOL:
        return "true or false";
    case CN_KIND_WORD:
        snprintf(out, 96, "one of %s", option->arg);
        return out;
    case CN_KIND_RATE:
        snprintf(out, 96, "a number from 0 to 1 with at most %d decimals", RATE_DIGITS);
        return out;
    case CN_KIND_STRING:
    case CN_KIND_ADDRESS:
    case CN_KIND_OPTIONAL_ADDRESS:
    case CN_KIND_TUNING:
    case CN_KIND_STORE:
        return "a string";
    case CN_KIND_UINT:
        snprintf(out, 96, "an integer from %" PRIu64 " to %" PRIu64, option->min, option->max);
        return out;
    }
    cn_unreachable();
}

static int
set_tuning(struct cn_server_config *config, const struct cn_option *option, const char *where,
           const char *text, struct cn_error *err)
{
    struct cn_error inner;
    uint64_t bits;

    if (cn_tuning_parse(text, &bits, &inner) != 0)
        return cn_fail(err, CN_E_CONFIG, "%s: %s", where, inner.message);
    set_text(config, option, text);
    return 0;
}

static int
set_store(struct cn_server_config *config, const struct cn_option *option, const char *where,
          const char *text, struct cn_error *err)
{
    struct cn_state_store_url url;
    struct cn_error inner;

    if (cn_state_store_url_parse(cn_str_from(text), &url, &inner) != 0)
        return cn_fail(err, CN_E_CONFIG, "%s: %s", where, inner.message);
    set_text(config, option, text);
    return 0;
}

/* Sets an option from text, whichever source it comes from. `where` is "--loops", "CONTINUO_LOOPS"
 * or "continuo.yaml:3:8: loops". */
static int
set_from_text(struct cn_server_config *config, const struct cn_option *option, const char *where,
              const char *text, struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX], expected[96], *end;
    struct cn_error inner = {0};
    struct cn_address address;
    unsigned long long number = 0;
    int word = -1;

    switch (option->kind) {
    case CN_KIND_ADDRESS:
    case CN_KIND_OPTIONAL_ADDRESS:
        if ((option->kind == CN_KIND_ADDRESS || strcmp(text, "none") != 0) &&
            cn_address_parse(text, 0, &address, &inner) != 0)
            return cn_fail(err, CN_E_CONFIG, "%s: %s%s", where, inner.message,
                           option->kind == CN_KIND_ADDRESS ? "" : ", or none");
        set_text(config, option, text);
        return 0;
    case CN_KIND_TUNING:
        return set_tuning(config, option, where, text, err);
    case CN_KIND_STORE:
        return set_store(config, option, where, text, err);
    case CN_KIND_STRING:
        if (text[0] == '\0')
            return cn_fail(err, CN_E_CONFIG, "%s is empty; give a %s", where, option->arg);
        set_text(config, option, text);
        return 0;
    case CN_KIND_DURABILITY:
        word = cn_durability_parse(cn_str_from(text));
        break;
    case CN_KIND_LOGLEVEL:
        word = cn_log_level_parse(text);
        break;
    case CN_KIND_BOOL:
        word = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : -1;
        break;
    case CN_KIND_WORD:
        word = word_number(option, text);
        break;
    case CN_KIND_RATE:
        word = (int)rate_number(text);
        break;
    case CN_KIND_UINT:
        errno = 0;
        number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
        if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 &&
            number >= option->min && number <= option->max)
            word = 0;
        break;
    }
    if (word < 0)
        return cn_fail(err, CN_E_CONFIG, "%s: expected %s, found \"%s\"", where,
                       expected_text(option, expected), cn_yaml_shown(cn_str_from(text), shown));
    set_number(config, option, option->kind == CN_KIND_UINT ? number : (uint64_t)word);
    return 0;
}

int
cn_option_set(struct cn_server_config *config, const struct cn_option *option,
              enum cn_config_source source, const char *where, const char *text,
              struct cn_error *err)
{
    int rc = set_from_text(config, option, where, text, err);

    if (rc == 0)
        config->sources[option - cn_server_options] = source;
    return rc;
}

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
        rc = set_from_text(config, &cn_server_options[i], where, line->values[i], err);
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
        rc = set_from_text(config, &cn_server_options[i], name, value, err);
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
                       expected_text(option, expected), cn_yaml_kind_word(value->kind),
                       scalar ? " (" : "", scalar ? cn_yaml_shown(value->text, shown) : "",
                       scalar ? ")" : "");
    }
    if (memchr(value->text.ptr, '\0', value->text.len) != NULL)
        return cn_fail(err, CN_E_CONFIG, "%s: a value cannot hold a zero byte", where);
    if (option->kind == CN_KIND_BOOL) { /* YAML allows "True", too */
        set_number(config, option, value->boolean);
        return 0;
    }
    if (option->kind == CN_KIND_UINT) { /* YAML allows 0x10, too */
        char text[32];
        snprintf(text, sizeof(text), "%" PRId64, value->integer);
        return set_from_text(config, option, where, text, err);
    }
    return set_from_text(config, option, where, value->text.ptr, err);
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
            set_text(config, option, option->default_text);
        else
            set_number(config, option, option->default_number);
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
            set_text(config, &cn_server_options[i], NULL);
    }
    cn_server_models_clear(config);
    cn_model_settings_free(config->settings, config->n_settings);
    cn_model_settings_free(config->restored, config->n_restored);
    cn_free(config->snapshot_dir);
    cn_free(config->snapshot_text);
    cn_free(config->sources);
    config->sources = NULL;
}
