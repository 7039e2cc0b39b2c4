/* config/server_print.c - the server's options for people: --help and --print-config. Main thread. */
#include "config/server_options.h"

#include <ctype.h>

void
cn_server_config_help(FILE *out)
{
    fputs("usage: continuo --model-store DIR [--models NAME=FILE ...] [options]\n\n"
          "Serves stateful models over HTTP until SIGTERM. Options, with their defaults:\n\n",
          out);
    fprintf(out, "  %-29s %s\n", "--models [NAME=]FILE ...",
            "models to load at start, from the store; or: all");
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];
        char flag[64], number[32];
        const char *text = cn_option_default_text(option, number);

        snprintf(flag, sizeof(flag), "--%s %s", option->flag, option->arg);
        fprintf(out, "  %-29s %s", flag, option->help);
        if (text != NULL)
            fprintf(out, " [%s]", text);
        fputc('\n', out);
    }
    fprintf(out, "  %-29s %s\n", "--print-config", "show each value and where it came from");
    fprintf(out, "  %-29s %s\n", "-h, --help", "this text");
    fprintf(out, "  %-29s %s\n", "-v, --version", "the version");
    fputs("\nStrongest first: flag, variable (CONTINUO_MODEL_STORE=DIR), YAML file (model-store: "
          "DIR), "
          "default.\n",
          out);
}

/* As a YAML double-quoted string. */
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

static void
print_option(const struct cn_option *option, const struct cn_server_config *config,
             enum cn_config_source source, FILE *out)
{
    char number[32], from[80];
    const char *text = cn_option_text(option, config, number);

    /* What is not set, and the file's own name, are comments: the output is a valid file. */
    if (text == NULL || option->yaml_key[0] == '\0')
        fputs("# ", out);
    fprintf(out, "%s: ", option->flag);
    if (text == NULL)
        fputs("not set", out);
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
