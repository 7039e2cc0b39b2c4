/* config/server/server_completions.c - what shells complete behind `continuo`, from the table of
 * options. Main thread. */
#include <string.h>

#include "config/server/server_options.h"
#include "core/text/completions.h"

/* Flags beside the options. */
static const struct cn_completed_flag more[] = {
    {"--models", "FILE", NULL, "models to load at start: NAME=FILE, FILE or all"},
    {"--help", NULL, NULL, "show the sections of the options; a section's name may follow"},
    {"--version", NULL, NULL, "show the version and exit"},
    {"--print-config", NULL, NULL, "print all options with their values and sources, and exit"},
    {"--print-man", NULL, NULL, "print the manual page and exit"},
    {"--print-completions", "SHELL", "bash zsh fish", "print the completions for a shell and exit"},
};
#define N_MORE (sizeof(more) / sizeof(more[0]))

/* The words that an option may have, with blanks between them; NULL: any text or number. */
static const char *
choices_of(const struct cn_option *option, char out[96])
{
    switch (option->kind) {
    case CN_KIND_BOOL:
        return "true false";
    case CN_KIND_DURABILITY:
        return "none process power";
    case CN_KIND_LOGLEVEL:
        return "error warn info debug";
    case CN_KIND_WORD:
        snprintf(out, 96, "%s", option->arg);
        for (char *at = out; *at; at++)
            if (*at == '|')
                *at = ' ';
        return out;
    default:
        return NULL;
    }
}

void
cn_server_config_completions(const char *shell, FILE *out)
{
    struct cn_completed_flag flags[CN_N_OPTIONS + N_MORE];
    char names[CN_N_OPTIONS][64], choices[CN_N_OPTIONS][96];

    for (size_t i = 0; i < CN_N_OPTIONS; i++) {
        const struct cn_option *option = &cn_server_options[i];

        snprintf(names[i], sizeof(names[i]), "--%s", option->flag);
        flags[i] = (struct cn_completed_flag){.flag = names[i],
                                              .argument = option->arg,
                                              .choices = choices_of(option, choices[i]),
                                              .help = option->help};
    }
    memcpy(flags + CN_N_OPTIONS, more, sizeof(more));
    cn_completions_print(&(struct cn_completions){.program = "continuo",
                                                  .flags = flags,
                                                  .n_flags = CN_N_OPTIONS + N_MORE},
                         shell, out);
}
