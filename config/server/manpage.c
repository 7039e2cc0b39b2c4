/* config/server/manpage.c - prints continuo(1) and continuo.yaml(5) as troff, from the option
 * tables. Main thread.
 *
 * The program itself prints its manual page (--print-man, called by scripts/manpages.sh), so that
 * page cannot disagree with the options. All texts come from the tables; this file adds only the
 * frame. */
#include <inttypes.h>
#include <string.h>

#include "config/model/model_config.h"
#include "config/server/server_options.h"
#include "core/tuning/tuning.h"

/* A backslash, a dash, and a point or an apostrophe at the beginning of a text have a meaning in
 * troff.
 */
void
cn_man_text(FILE *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\\')
            fputs("\\e", out);
        else if (*c == '-')
            fputs("\\-", out);
        else if ((*c == '.' || *c == '\'') && c == text)
            fprintf(out, "\\&%c", *c);
        else
            fputc(*c, out);
    }
}

static void
put_default(FILE *out, const char *text)
{
    if (text == NULL) {
        fputs(".\n", out);
        return;
    }
    fputs(". Default: ", out);
    cn_man_text(out, text);
    fputs(".\n", out);
}

void
cn_server_config_man(FILE *out)
{
    char name[64], number[32];

    fprintf(out, ".TH CONTINUO 1 \"\" \"continuo %s\" \"User Commands\"\n", CN_VERSION);
    fputs(".SH NAME\ncontinuo \\- model server for stateful inference\n"
          ".SH SYNOPSIS\n.B continuo\n.B \\-\\-model\\-store\n.I DIR\n"
          "[\\fB\\-\\-models\\fR \\fINAME=FILE\\fR ...] [\\fIoptions\\fR]\n"
          ".br\n.B continuo\nnew|dev|test ..., to write a model; see\n.BR continuo\\-dev (1)\n"
          ".SH DESCRIPTION\nServes the models of a model store over HTTP, in the foreground, until "
          "SIGTERM. Prints one line when it is ready.\n"
          ".SH OPTIONS\nEach option is also a key of\n.BR continuo.yaml (5)\n"
          "and an environment variable. A flag overrides a variable, and a variable overrides the "
          "file.\n"
          ".TP\n\\fB\\-\\-models\\fR [\\fINAME\\fR=]\\fIFILE\\fR ...\n"
          "Models to load at start, as file names in the model store or as paths, separated by "
          "spaces or commas, or\n.B all\nfor every archive of the store. Variable: "
          "CONTINUO_MODELS.\n",
          out);
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];

        fputs(".TP\n\\fB\\-\\-", out);
        cn_man_text(out, option->flag);
        fprintf(out, "\\fR \\fI%s\\fR\n", option->arg);
        cn_man_text(out, option->help);
        put_default(out, cn_option_default_text(option, number));
        fprintf(out, "Variable: %s.\n", cn_option_env_name(option->flag, name));
    }
    fputs(".TP\n.B \\-\\-print\\-config\nShow the value of each option and where it was set, as "
          "YAML, and exit.\n"
          ".TP\n.BR \\-h \", \" \\-\\-help \" [\\fISECTION\\fR]\"\nShow the most used options, the "
          "options of one section, or (SECTION is all) every option, and exit.\n"
          ".TP\n.BR \\-v \", \" \\-\\-version\nShow the version and exit.\n"
          ".SH TUNING\nThese performance mechanisms can be switched off with\n.BR \\-\\-tuning .\n"
          "Answers are the same with any of them off.\n",
          out);
    for (int i = 0; i < CN_N_TUNINGS; i++) {
        fputs(".TP\n.B ", out);
        cn_man_text(out, cn_tuning_rows[i].name);
        fputc('\n', out);
        cn_man_text(out, cn_tuning_rows[i].what);
        fputs(".\n", out);
    }
    fputs(".SH SEE ALSO\n.BR continuo.yaml (5),\n.BR continuo\\-archiver (1)\n", out);
}

static void
put_model_key(FILE *out, const char *path, const char *kind, const char *default_text, uint64_t min,
              uint64_t max, const char *help)
{
    fprintf(out, ".TP\n.B %s\n", path);
    cn_man_text(out, help);
    if (kind[0] == 'U')
        fprintf(out, ". An integer from %" PRIu64 " to %" PRIu64 ". Default: %s.\n", min, max,
                default_text);
    else if (kind[0] == 'R')
        fprintf(out, ". An integer from %" PRIu64 " to %" PRIu64 ", or all. Default: %s.\n", min,
                max, default_text);
    else if (kind[0] == 'B')
        fprintf(out, ". Default: %s.\n", default_text[0] == '0' ? "false" : "true");
    else if (strcmp(kind, "SWITCH") == 0)
        fprintf(out, ". Default: %s.\n", default_text[0] == '0' ? "off" : "on");
    else
        fputs(".\n", out);
}

void
cn_model_config_man(FILE *out)
{
    char number[32];

    fprintf(out, ".TH CONTINUO.YAML 5 \"\" \"continuo %s\" \"File Formats\"\n", CN_VERSION);
    fputs(".SH NAME\ncontinuo.yaml, model\\-config.yaml \\- settings of a server and of a model\n"
          ".SH DESCRIPTION\nBoth files are YAML 1.2 maps. A value of the wrong type is an error "
          "that names its line and column. An unknown key causes a warning that names the nearest "
          "known key. Aliases of lists and maps, and duplicate keys, are refused.\n"
          ".SH SERVER\nThe server reads this file with\n.BR \"continuo \\-\\-config\" .\n"
          "The keys are the options of\n.BR continuo (1).\n"
          ".TP\n.B models\nModels to load at start: a list of FILE or NAME=FILE, or a map NAME: "
          "FILE.\n",
          out);
    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];

        if (option->yaml_key[0] == '\0')
            continue;
        fputs(".TP\n.B ", out);
        cn_man_text(out, option->yaml_key);
        fputc('\n', out);
        cn_man_text(out, option->help);
        put_default(out, cn_option_default_text(option, number));
    }
    fputs(".SH MODEL\nThe archive's manifest names this file as configFile. a.b means key b in map "
          "a. All other maps, and all other keys under\n.BR handler ,\nbelong to the handler.\n",
          out);
#define CN_MODEL_OPTION(field, c_type, kind, yaml_path, default_, min, max, help)                  \
    snprintf(number, sizeof(number), "%" PRIu64, (uint64_t)(default_));                            \
    put_model_key(out, yaml_path, #kind, number, min, max, help);
#include "config/model/model_options.def"
#undef CN_MODEL_OPTION
    fputs(
        ".SH TORCHSERVE'S KEYS WITHOUT EFFECT\nThese keys are accepted. The server logs a warning "
        "if the value is not TorchServe's default.\n",
        out);
#define CN_TORCHSERVE_KEY(key, harmless, note)                                                     \
    fprintf(out, ".TP\n.B %s\n", key);                                                             \
    cn_man_text(out, note);                                                                        \
    fputs(".\n", out);
#include "config/model/torchserve_keys.def"
#undef CN_TORCHSERVE_KEY
    fputs(".SH SEE ALSO\n.BR continuo (1),\n.BR continuo\\-archiver (1)\n", out);
}
