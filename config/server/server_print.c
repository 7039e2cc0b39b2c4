/* config/server/server_print.c - the server's options for people: --help and --print-config. Main
 * thread. */
#include "config/server/server_options.h"
#include "core/tuning/tuning.h"

#include <ctype.h>
#include <string.h>

#define WIDTH 100      /* columns of --help */
#define HELP_COLUMN 31 /* the help texts begin behind this one */

/* The sections of --help SECTION. Each row begins a section at the option `from` of the option
 * table; the section ends where the next row begins. A section may have several rows; the first
 * has its text. */
static const struct {
    const char *from, *section, *what;
} parts[] = {
    {"config", "server", "model store, addresses, loops and processes"},
    {"max-request-size", "limits", "sizes of requests, connections and client timeouts"},
    {"grpc-max-calls", "grpc", "gRPC calls, streams and keepalive"},
    {"drain-timeout", "server", ""},
    {"model-control-mode", "v2", "the v2 protocol: model repository and shared memory"},
    {"model-api", "models", "registration, downloads, workers and queues"},
    {"trusted-keys", "security", "signed archives, access to management, TLS and keys"},
    {"service-envelope", "http", "envelopes, header names, compression and CORS"},
    {"log-level", "logs", "log files, their format and rotation"},
    {"default-workers", "models", ""},
    {"log-dir", "logs", ""},
    {"metrics-mode", "metrics", "TorchServe's metrics and those of the machine"},
    {"tuning", "tuning", "performance mechanisms, traces, and the list of slow steps"},
};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

/* The options that plain --help shows, because most users need them. */
static const char *const common[] = {
    "config",
    "model-store",
    "model-repository",
    "state-dir",
    "inference-address",
    "metrics-address",
    "management-address",
    "grpc-inference-address",
    "grpc-management-address",
    "loops",
    "durability",
    "max-request-size",
    "drain-timeout",
    "model-api",
    "certificate-file",
    "private-key-file",
    "token-auth",
    "default-workers",
    "response-timeout",
    "log-level",
    "log-dir",
};

static bool
is_common(const char *flag)
{
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        if (strcmp(common[i], flag) == 0)
            return true;
    }
    return false;
}

bool
cn_server_help_has(const char *section)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        if (strcmp(parts[i].section, section) == 0)
            return true;
    }
    return strcmp(section, "all") == 0;
}

void
cn_print_flag(FILE *out, const char *flag, const char *help)
{
    int column = fprintf(out, "  %-29s", flag);

    while (*help != '\0') {
        const int len = (int)strcspn(help, " ");

        if (column + 1 + len > WIDTH && column > HELP_COLUMN)
            column = fprintf(out, "\n%*s", HELP_COLUMN, "") - 1;
        column += fprintf(out, " %.*s", len, help);
        help += len + strspn(help + len, " ");
    }
    fputc('\n', out);
}

static void
put_option(FILE *out, const struct cn_option *option)
{
    char flag[64], number[32], help[512];
    const char *text = cn_option_default_text(option, number);

    snprintf(flag, sizeof(flag), "--%s %s", option->flag, option->arg);
    if (text != NULL)
        snprintf(help, sizeof(help), "%s [%s]", option->help, text);
    cn_print_flag(out, flag, text != NULL ? help : option->help);
}

/* Prints the options of a section in the order of the table. */
static void
put_section(FILE *out, const char *section)
{
    size_t part = 0;

    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];

        if (part + 1 < N_PARTS && strcmp(option->flag, parts[part + 1].from) == 0)
            part++;
        if (strcmp(parts[part].section, section) == 0)
            put_option(out, option);
    }
}

/* Prints the mechanisms that --tuning knows. */
static void
put_tunings(FILE *out)
{
    fputs("These are the mechanisms. Answers are the same with any of them off. A list that begins "
          "with a\ndash needs an equals sign: --tuning=-busy-wait.\n",
          out);
    for (int i = 0; i < CN_N_TUNINGS; i++)
        cn_print_flag(out, cn_tuning_rows[i].name, cn_tuning_rows[i].what);
}

/* What --help prints without a section: a screen with the options that most users need. */
static void
put_common(FILE *out)
{
    fputs("usage: continuo --model-store DIR [--models NAME=FILE ...] [options]\n"
          "       continuo demo, to see in a second what it does\n"
          "       continuo new|dev|test ..., to write a model; see continuo new --help\n\n"
          "Serves stateful models until SIGTERM. These are the most used options and their "
          "defaults:\n\n",
          out);
    cn_print_flag(out, "--models [NAME=]FILE ...",
                  "models of the store to load at start; all loads every archive");
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        if (is_common(cn_server_options[i].flag))
            put_option(out, &cn_server_options[i]);
    }
    cn_print_flag(out, "--print-config",
                  "show the value of each option and where it was set, and exit");
    cn_print_flag(out, "-h, --help [SECTION]",
                  "show this text, the options of one section, or all of them:");
    for (size_t i = 0; i < N_PARTS; i++) {
        if (parts[i].what[0] != '\0')
            fprintf(out, "    %-8s %s\n", parts[i].section, parts[i].what);
    }
    cn_print_flag(out, "-v, --version", "show the version and exit");
    fputs(
        "\nAn option can be set by flag, by environment variable (CONTINUO_MODEL_STORE=DIR) and in "
        "the\nYAML file (model-store: DIR). A flag overrides a variable, a variable overrides the "
        "file.\n",
        out);
}

void
cn_server_config_help(const char *section, FILE *out)
{
    if (section == NULL) {
        put_common(out);
        return;
    }
    for (size_t i = 0; i < N_PARTS; i++) {
        bool all = strcmp(section, "all") == 0;

        if (parts[i].what[0] == '\0' || (!all && strcmp(parts[i].section, section) != 0))
            continue;
        fprintf(out, "%s%s: %s\n", all && i ? "\n" : "", parts[i].section, parts[i].what);
        put_section(out, parts[i].section);
        if (strcmp(parts[i].section, "tuning") == 0)
            put_tunings(out);
    }
}

/* Prints `text` as a double-quoted YAML string. */
static void
print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (iscntrl(c))
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static const char *
source_text(enum cn_config_source source, const char *flag, char out[80])
{
    char name[64];

    switch (source) {
    case CN_FROM_DEFAULT:
        return "default";
    case CN_FROM_FILE:
        return "file";
    case CN_FROM_ENV:
        snprintf(out, 80, "env %s", cn_option_env_name(flag, name));
        return out;
    case CN_FROM_FLAG:
        snprintf(out, 80, "flag --%s", flag);
        return out;
    }
    return "?";
}

/* Passwords are not printed, because this output ends up in tickets and mails. */
static bool
is_secret(const struct cn_option *option, const char *text)
{
    return strcmp(option->flag, "keystore-password") == 0 ||
           strcmp(option->flag, "otlp-headers") == 0 ||
           (option->kind == CN_KIND_STORE && strchr(text, '@'));
}

/* One line of --print-config: the name, the value, and a comment with its source. */
static void
print_option(const struct cn_option *option, const struct cn_server_config *config,
             enum cn_config_source source, FILE *out)
{
    char number[32], from[80];
    const char *text = cn_option_text(option, config, number);
    const bool hidden = is_secret(option, text) && source != CN_FROM_DEFAULT;

    /* Options that are not set, passwords and the name of the file itself are printed as
     * comments, so that the output is a valid file. */
    if (text == NULL || hidden || option->yaml_key[0] == '\0')
        fputs("# ", out);
    fprintf(out, "%s: ", option->flag);
    if (text == NULL)
        fputs("not set", out);
    else if (hidden)
        fputs("set, but not shown", out);
    else if (cn_option_is_text(option))
        print_quoted(out, text);
    else
        fputs(text, out);
    fprintf(out, " # %s\n", source_text(source, option->flag, from));
}

void
cn_server_config_print(const struct cn_server_config *config, FILE *out)
{
    char from[80];

    fprintf(out, "# continuo %s\n", CN_VERSION);
    for (size_t i = 0; i < CN_N_OPTIONS; i++)
        print_option(&cn_server_options[i], config, config->sources[i], out);
    fprintf(out, "models: %s# %s\n", config->n_models ? "" : "[] ",
            source_text(config->models_source, "models", from));
    for (uint32_t i = 0; i < config->n_models; i++) {
        const struct cn_model_arg *model = &config->models[i];
        char text[4096];

        snprintf(text, sizeof(text), "%s%s%s", model->name ? model->name : "",
                 model->name ? "=" : "", model->file);
        fputs("  - ", out);
        print_quoted(out, text);
        fputc('\n', out);
    }
}
