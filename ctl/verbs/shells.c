/* ctl/verbs/shells.c - collects the tables of commands and flags for core/text/completions.h.
 *
 * The tables give their rows to a function (`put`), as they do for help and the manual page. Here
 * that function notes them. */
#include "ctl/verbs/shells.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/arena.h"
#include "core/text/completions.h"
#include "ctl/seq.h"
#include "ctl/store_commands.h"
#include "ctl/verbs/verbs.h"

#define ROWS_MAX 128

/* What is being collected; the functions that get rows have no context of their own. */
static struct {
    struct cn_arena arena;
    struct cn_completed_flag flags[ROWS_MAX];
    struct cn_completed_word words[ROWS_MAX];
    size_t n_flags, n_words;
} all;

static const struct {
    const char *flag, *choices;
} choices[] = {
    {"--policy", "pin migrate reset reject"}, {"--sort", "duration time id idle step size backlog"},
    {"--state", "live open closed all"},      {"--scopes", "infer manage observe"},
    {"--print-completions", "bash zsh fish"},
};

int
cn_ctl_check_shell(const char *shell, struct cn_error *err)
{
    if (cn_completions_knows(shell))
        return 0;
    return cn_fail(err, CN_E_CONFIG,
                   "--print-completions is \"%.40s\"; it must be bash, zsh or fish", shell);
}

static const char *
choices_of(const char *flag)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (strcmp(flag, choices[i].flag) == 0)
            return choices[i].choices;
    return NULL;
}

/* Notes "--policy WORD". */
static void
note_flag(const char *name, const char *help)
{
    const char *blank = strchr(name, ' ');
    const char *flag = cn_arena_printf(&all.arena, "%.*s", (int)strcspn(name, " "), name);

    cn_assert(all.n_flags < ROWS_MAX);
    for (size_t i = 0; i < all.n_flags; i++)
        if (strcmp(all.flags[i].flag, flag) == 0) /* two commands have it */
            return;
    all.flags[all.n_flags++] = (struct cn_completed_flag){
        .flag = flag,
        .argument = blank ? cn_arena_printf(&all.arena, "%s", blank + 1) : NULL,
        .choices = choices_of(flag),
        .help = help,
    };
}

/* Notes "status", "scale MODEL[/VERSION] MIN" or "seq ls MODEL": words in small letters are what
 * one types. */
static void
note_word(const char *name, const char *help)
{
    size_t len = strcspn(name, " ");

    cn_assert(all.n_words < ROWS_MAX);
    if (name[len] == ' ' && name[len + 1] >= 'a' && name[len + 1] <= 'z')
        len += 1 + strcspn(name + len + 1, " ");
    all.words[all.n_words++] = (struct cn_completed_word){
        .words = cn_arena_printf(&all.arena, "%.*s", (int)len, name),
        .help = help,
        .takes_model = strncmp(name + len, " MODEL", strlen(" MODEL")) == 0,
    };
}

static void
note(FILE *out, const char *name, const char *help)
{
    (void)out;
    (name[0] == '-' ? note_flag : note_word)(name, help);
}

void
cn_ctl_completions(const char *shell, FILE *out)
{
    cn_arena_init(&all.arena);
    all.n_flags = all.n_words = 0;
    cn_ctl_entries(note, NULL);
    cn_ctl_seq_entries(note, NULL);
    cn_ctl_store_entries(note, NULL);
    note(NULL, "--version", "show the version and exit");
    note(NULL, "--print-man", "print the manual page and exit");
    note(NULL, "--print-completions SHELL", "print the completions for a shell and exit");
    cn_completions_print(&(struct cn_completions){.program = "continuo-ctl",
                                                  .flags = all.flags,
                                                  .n_flags = all.n_flags,
                                                  .words = all.words,
                                                  .n_words = all.n_words},
                         shell, out);
    cn_arena_fini(&all.arena);
}
