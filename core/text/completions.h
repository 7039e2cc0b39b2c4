/* core/text/completions.h - writes the scripts by which shells complete a program's command line,
 * from the tables of its flags and commands. Any thread. */
#ifndef CN_CORE_TEXT_COMPLETIONS_H
#define CN_CORE_TEXT_COMPLETIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cn_completed_flag {
    const char *flag;     /* "--policy" */
    const char *argument; /* NULL: a switch; FILE, DIR or PATH: names of files; else shown */
    const char *choices;  /* words with blanks between them, or NULL */
    const char *help;
};
struct cn_completed_word {
    const char *words; /* "status", or "seq ls" for the second word behind "seq" */
    const char *help;
    bool takes_model; /* the word behind it is MODEL or MODEL/VERSION */
};
struct cn_completions {
    const char *program; /* "continuo-ctl" */
    const struct cn_completed_flag *flags;
    size_t n_flags;
    const struct cn_completed_word *words;
    size_t n_words;
};

/* Is it "bash", "zsh" or "fish"? */
bool cn_completions_knows(const char *shell);
void cn_completions_print(const struct cn_completions *from, const char *shell, FILE *out);

#endif
