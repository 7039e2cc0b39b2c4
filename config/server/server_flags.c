/* config/server/server_flags.c - reads the command line; its values are applied later, after the
 * file and the environment. Main thread.
 *
 * A flag has its value in the next argument or behind `=`. A boolean flag needs none: its presence
 * means true. An argument that begins with a dash is never taken for a value, so that a forgotten
 * value is reported; a value that begins with a dash is written behind `=`. */
#include "config/server/server_options.h"
#include "core/text/completions.h"
#include "core/text/suggest.h"

/* Flags that are not settings; all but the last three are shown by --help. */
static const char *const plain_flags[] = {"print-config", "help",           "version",
                                          "print-man",    "print-yaml-man", "print-model-page"};
#define TORCHSERVE_TAKES_IT                                                                        \
    "the program torchserve takes it, which is this server with TorchServe's flags"
#define N_PLAIN (sizeof(plain_flags) / sizeof(plain_flags[0]))

const struct cn_option *
cn_option_find(struct cn_str name)
{
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        if (cn_str_eq(name, cn_str_from(cn_server_options[i].flag)))
            return &cn_server_options[i];
    }
    return NULL;
}

const char *
cn_option_nearest(struct cn_str name, bool flags)
{
    const char *names[CN_N_OPTIONS + N_PLAIN + 1];
    size_t n = 0;

    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        if (flags || cn_server_options[i].yaml_key[0] != '\0')
            names[n++] = cn_server_options[i].flag;
    }
    names[n++] = "models";
    for (size_t i = 0; flags && i < 3; i++)
        names[n++] = plain_flags[i];
    return cn_suggest(name, names, n);
}

/* Flags of other servers that newcomers try, and what to write instead. */
static const struct {
    const char *flag, *advice;
} foreign_flags[] = {
    {"start", TORCHSERVE_TAKES_IT},
    {"stop", TORCHSERVE_TAKES_IT},
    {"foreground", TORCHSERVE_TAKES_IT},
    {"ts-config", TORCHSERVE_TAKES_IT},
    {"ncs", TORCHSERVE_TAKES_IT},
    {"no-config-snapshots", TORCHSERVE_TAKES_IT},
    {"disable-token-auth", TORCHSERVE_TAKES_IT},
    {"enable-model-api", TORCHSERVE_TAKES_IT},
    {"load-model", "name the model with --models NAME"},
    {"host", "write --inference-address http://HOST:PORT"},
    {"port", "write --inference-address http://HOST:PORT"},
    {"http-port", "write --inference-address http://HOST:PORT"},
    {"grpc-port", "write --grpc-inference-address http://HOST:PORT"},
    {"metrics-port", "write --metrics-address http://HOST:PORT"},
};

static int
unknown_flag(const char *arg, struct cn_str name, struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX];
    const char *near = cn_option_nearest(name, true);

    cn_yaml_shown(cn_str_from(arg), shown);
    for (size_t i = 0; i < sizeof(foreign_flags) / sizeof(foreign_flags[0]); i++)
        if (cn_str_eq(name, cn_str_from(foreign_flags[i].flag)))
            return cn_fail(err, CN_E_CONFIG, "unknown flag %s; %s", shown, foreign_flags[i].advice);
    if (near != NULL)
        return cn_fail(err, CN_E_CONFIG, "unknown flag %s (did you mean --%s?)", shown, near);
    return cn_fail(err, CN_E_CONFIG, "unknown flag %s; --help all lists the flags", shown);
}

/* Stores a flag without a value. True if `name` is one. */
static bool
take_plain_flag(struct cn_server_config *config, struct cn_str name)
{
    bool *const flags[N_PLAIN] = {&config->print_config,   &config->help,
                                  &config->version,        &config->print_man,
                                  &config->print_yaml_man, &config->print_model_page};

    for (size_t i = 0; i < N_PLAIN; i++) {
        if (cn_str_eq(name, cn_str_from(plain_flags[i]))) {
            *flags[i] = true;
            return true;
        }
    }
    return false;
}

bool
cn_config_only_informs(const struct cn_server_config *config)
{
    return config->completions || config->help || config->version || config->print_man ||
           config->print_yaml_man || config->print_model_page;
}

static bool
is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

/* Reads `--help` or `--help SECTION`. */
static int
take_help(struct cn_server_config *config, struct cn_command_line *line, int *at,
          struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX];

    config->help = true;
    if (*at + 1 >= line->n_args || is_flag(line->args[*at + 1]))
        return 0;
    config->help_section = line->args[++*at];
    if (cn_server_help_has(config->help_section))
        return 0;
    return cn_fail(err, CN_E_CONFIG,
                   "--help has no section \"%s\"; --help without a section lists them",
                   cn_yaml_shown(cn_str_from(config->help_section), shown));
}

/* Reads `--print-completions SHELL`. */
static int
take_completions(struct cn_server_config *config, struct cn_command_line *line, int *at,
                 struct cn_error *err)
{
    config->completions = *at + 1 < line->n_args ? line->args[++*at] : "";
    if (cn_completions_knows(config->completions))
        return 0;
    return cn_fail(err, CN_E_CONFIG, "--print-completions needs bash, zsh or fish");
}

/* Reads --models and its values, up to the next flag. They are added at once: flags are the
 * strongest source, so nothing replaces them. */
static int
take_models(struct cn_server_config *config, struct cn_command_line *line, const char *attached,
            int *at, struct cn_error *err)
{
    int rc = 0;

    line->has_models = true;
    if (attached != NULL)
        return cn_server_models_add(config, "--models", cn_str_from(attached), err);
    if (*at + 1 >= line->n_args || is_flag(line->args[*at + 1]))
        return cn_fail(err, CN_E_CONFIG, "--models needs NAME=FILE, FILE or all");
    while (rc == 0 && *at + 1 < line->n_args && !is_flag(line->args[*at + 1]))
        rc = cn_server_models_add(config, "--models", cn_str_from(line->args[++*at]), err);
    return rc;
}

/* Refuses an argument that belongs to no flag, with what was probably meant. */
static int
unexpected(const struct cn_command_line *line, int at, struct cn_error *err)
{
    static const char *const commands[] = {"demo", "new", "dev", "test"};
    const char *arg = line->args[at], *before = at > 0 ? line->args[at - 1] : "", *near;
    const struct cn_option *option =
        strncmp(before, "--", 2) == 0 ? cn_option_find(cn_str_from(before + 2)) : NULL;
    char shown[CN_YAML_SHOWN_MAX];

    cn_yaml_shown(cn_str_from(arg), shown);
    if (option && option->kind == CN_KIND_BOOL)
        return cn_fail(err, CN_E_CONFIG,
                       "unexpected argument \"%s\"; the value of %s stands behind an equals sign, "
                       "as in %s=false",
                       shown, before, before);
    if (strstr(arg, ".mar"))
        return cn_fail(err, CN_E_CONFIG,
                       "unexpected argument \"%s\"; name models of the store with --models", shown);
    near = cn_suggest(cn_str_from(arg), commands, sizeof(commands) / sizeof(commands[0]));
    if (near)
        return cn_fail(err, CN_E_CONFIG, "unexpected argument \"%s\" (did you mean continuo %s?)",
                       shown, near);
    return cn_fail(err, CN_E_CONFIG, "unexpected argument \"%s\"; options begin with --", shown);
}

int
cn_command_line_take(struct cn_server_config *config, struct cn_command_line *line, int *at,
                     struct cn_error *err)
{
    const char *arg = line->args[*at], *equals = strchr(arg, '='), *value;
    const struct cn_option *option;
    struct cn_str name;

    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0)
        return take_help(config, line, at, err);
    if (strcmp(arg, "--print-completions") == 0)
        return take_completions(config, line, at, err);
    if (strcmp(arg, "-v") == 0) {
        config->version = true;
        return 0;
    }
    if (strncmp(arg, "--", 2) != 0)
        return unexpected(line, *at, err);
    name = (struct cn_str){arg + 2, equals ? (size_t)(equals - arg - 2) : strlen(arg + 2)};
    if (cn_str_eq(name, CN_STR("models")))
        return take_models(config, line, equals ? equals + 1 : NULL, at, err);
    if (equals == NULL && take_plain_flag(config, name))
        return 0;
    option = cn_option_find(name);
    if (option == NULL)
        return unknown_flag(arg, name, err);
    if (equals != NULL)
        value = equals + 1;
    else if (option->kind == CN_KIND_BOOL)
        value = "true";
    else if (*at + 1 < line->n_args && !is_flag(line->args[*at + 1]))
        value = line->args[++*at];
    else
        return cn_fail(err, CN_E_CONFIG, "--%s needs %s", option->flag, option->arg);
    line->values[option - cn_server_options] = value;
    return 0;
}
