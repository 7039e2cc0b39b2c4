/* core/text/completions.c - scripts for bash, zsh and fish. Any thread.
 *
 * All three scripts do the same: behind a flag they complete its argument, behind a dash the flags,
 * and else the words that fit to those before, where flags and their arguments do not count. Names
 * of models come from the server, by `continuo-ctl models`. */
#include "core/text/completions.h"

#include <string.h>

#define MODELS                                                                                     \
    "continuo-ctl models 2>/dev/null | awk 'NR > 1 {print $1; print $1 \"/\" $2}' | sort -u"

bool
cn_completions_knows(const char *shell)
{
    return strcmp(shell, "bash") == 0 || strcmp(shell, "zsh") == 0 || strcmp(shell, "fish") == 0;
}

static bool
names_files(const char *argument)
{
    return strcmp(argument, "FILE") == 0 || strcmp(argument, "PATH") == 0;
}

/* The program's name as a part of a function's name. */
static void
put_name(const char *program, FILE *out)
{
    for (; *program; program++)
        fputc(*program == '-' ? '_' : *program, out);
}

/* Writes text within single quotes of a shell; with `zsh` also as a description of _arguments. */
static void
put_text(const char *text, bool zsh, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (zsh && strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

/* Are these the words behind which the word stands? "seq" for "seq ls"; "" for a first word. */
static bool
stands_behind(const struct cn_completed_word *word, const char *before, const char **last)
{
    const char *blank = strrchr(word->words, ' ');
    const size_t len = blank ? (size_t)(blank - word->words) : 0;

    *last = blank ? blank + 1 : word->words;
    return strlen(before) == len && strncmp(before, word->words, len) == 0;
}

/* Has the word words that may follow it? */
static bool
is_group(const struct cn_completions *from, const char *word)
{
    const char *last;

    for (size_t i = 0; i < from->n_words; i++)
        if (strchr(from->words[i].words, ' ') && stands_behind(&from->words[i], word, &last))
            return true;
    return false;
}

/* The pattern of a case that all flags with an argument match. */
static void
put_flags_with_argument(const struct cn_completions *from, FILE *out)
{
    bool any = false;

    for (size_t i = 0; i < from->n_flags; i++) {
        if (!from->flags[i].argument)
            continue;
        fprintf(out, "%s%s", any ? "|" : "", from->flags[i].flag);
        any = true;
    }
    if (!any)
        fputs("--", out);
}

/* Collects in `before` the words that are neither flags nor their arguments; bash and zsh. */
static void
put_collecting(const struct cn_completions *from, const char *list, const char *last, FILE *out)
{
    fprintf(out,
            "  local before= skip= word\n"
            "  for word in \"${%s[@]:1:%s}\"; do\n"
            "    if [ \"$word\" = = ]; then continue; fi\n"
            "    if [ -n \"$skip\" ]; then skip=; continue; fi\n"
            "    case $word in\n      ",
            list, last);
    put_flags_with_argument(from, out);
    fputs(") skip=1 ;;\n"
          "      -*) ;;\n"
          "      *) before=\"${before:+$before }$word\" ;;\n"
          "    esac\n"
          "  done\n",
          out);
}

/* --- bash */

static void
put_bash_words(const struct cn_completions *from, const char *before, FILE *out)
{
    const char *last;

    fprintf(out, "    '%s') COMPREPLY=($(compgen -W '", before);
    for (size_t i = 0; i < from->n_words; i++)
        if (stands_behind(&from->words[i], before, &last))
            fprintf(out, "%s ", last);
    fputs("' -- \"$cur\")) ;;\n", out);
}

static void
put_bash(const struct cn_completions *from, FILE *out)
{
    fprintf(out, "# bash completion for %s; written by %s --print-completions bash\n_",
            from->program, from->program);
    put_name(from->program, out);
    fputs("() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "  if [ \"$cur\" = = ]; then cur=\n"
          "  elif [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "  COMPREPLY=()\n"
          "  case $prev in\n",
          out);
    for (size_t i = 0; i < from->n_flags; i++) {
        const struct cn_completed_flag *flag = &from->flags[i];

        if (!flag->argument)
            continue;
        fprintf(out, "    %s) ", flag->flag);
        if (flag->choices)
            fprintf(out, "COMPREPLY=($(compgen -W '%s' -- \"$cur\"))", flag->choices);
        else if (names_files(flag->argument) || strcmp(flag->argument, "DIR") == 0)
            fprintf(out, "compopt -o filenames; COMPREPLY=($(compgen -%c -- \"$cur\"))",
                    names_files(flag->argument) ? 'f' : 'd');
        else
            fputs(":", out);
        fputs("; return ;;\n", out);
    }
    fputs("  esac\n"
          "  case $cur in -*)\n"
          "    COMPREPLY=($(compgen -W '",
          out);
    for (size_t i = 0; i < from->n_flags; i++)
        fprintf(out, "%s ", from->flags[i].flag);
    fputs("' -- \"$cur\")); return ;;\n  esac\n", out);
    put_collecting(from, "COMP_WORDS", "COMP_CWORD-1", out);
    fputs("  case $before in\n", out);
    put_bash_words(from, "", out);
    for (size_t i = 0; i < from->n_words; i++) {
        if (is_group(from, from->words[i].words))
            put_bash_words(from, from->words[i].words, out);
        else if (from->words[i].takes_model)
            fprintf(out, "    '%s') COMPREPLY=($(compgen -W \"$(" MODELS ")\" -- \"$cur\")) ;;\n",
                    from->words[i].words);
    }
    fputs("    *) compopt -o default ;;\n  esac\n}\ncomplete -F _", out);
    put_name(from->program, out);
    fprintf(out, " %s\n", from->program);
}

/* --- zsh */

static void
put_zsh_words(const struct cn_completions *from, const char *before, FILE *out)
{
    const char *last;

    fprintf(out, "    '%s') list=(", before);
    for (size_t i = 0; i < from->n_words; i++) {
        if (!stands_behind(&from->words[i], before, &last))
            continue;
        fprintf(out, "'%s:", last);
        put_text(from->words[i].help, false, out);
        fputs("' ", out);
    }
    fputs("); _describe command list ;;\n", out);
}

static void
put_zsh(const struct cn_completions *from, FILE *out)
{
    fprintf(out, "#compdef %s\n# written by %s --print-completions zsh\n_", from->program,
            from->program);
    put_name(from->program, out);
    fputs("_words() {\n  local -a list\n  local -a given\n  given=(\"${(@)all_words}\")\n", out);
    put_collecting(from, "given", "$((all_current-2))", out);
    fputs("  case $before in\n", out);
    put_zsh_words(from, "", out);
    for (size_t i = 0; i < from->n_words; i++) {
        if (is_group(from, from->words[i].words))
            put_zsh_words(from, from->words[i].words, out);
        else if (from->words[i].takes_model)
            fprintf(out, "    '%s') list=(${(f)\"$(" MODELS ")\"}); compadd -a list ;;\n",
                    from->words[i].words);
    }
    fputs("    *) _files ;;\n  esac\n}\n_", out);
    put_name(from->program, out);
    fputs("() {\n  local -a all_words\n  local all_current=$CURRENT\n"
          "  all_words=(\"${(@)words}\")\n  _arguments",
          out);
    for (size_t i = 0; i < from->n_flags; i++) {
        const struct cn_completed_flag *flag = &from->flags[i];

        fprintf(out, " \\\n    '%s%s[", flag->flag, flag->argument ? "=" : "");
        put_text(flag->help, true, out);
        fputs("]", out);
        if (flag->argument && flag->choices)
            fprintf(out, ":%s:(%s)", flag->argument, flag->choices);
        else if (flag->argument)
            fprintf(out, ":%s:%s", flag->argument,
                    names_files(flag->argument)          ? "_files"
                    : strcmp(flag->argument, "DIR") == 0 ? "_files -/"
                                                         : " ");
        fputs("'", out);
    }
    fputs(" \\\n    '*:word:_", out);
    put_name(from->program, out);
    fputs("_words'\n}\n_", out);
    put_name(from->program, out);
    fputs(" \"$@\"\n", out);
}

/* --- fish */

static void
put_fish(const struct cn_completions *from, FILE *out)
{
    const char *p = from->program, *blank;

    fprintf(out, "# fish completion for %s; written by %s --print-completions fish\n", p, p);
    fprintf(out, "complete -c %s -f\n", p);
    for (size_t i = 0; i < from->n_flags; i++) {
        const struct cn_completed_flag *flag = &from->flags[i];

        fprintf(out, "complete -c %s -l %s", p, flag->flag + 2);
        if (flag->choices)
            fprintf(out, " -x -a '%s'", flag->choices);
        else if (flag->argument)
            fputs(names_files(flag->argument) || strcmp(flag->argument, "DIR") == 0 ? " -r -F"
                                                                                    : " -x",
                  out);
        fputs(" -d '", out);
        put_text(flag->help, false, out);
        fputs("'\n", out);
    }
    for (size_t i = 0; i < from->n_words; i++) {
        const struct cn_completed_word *word = &from->words[i];

        blank = strchr(word->words, ' ');
        if (blank)
            fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from %.*s' -a '%s' -d '", p,
                    (int)(blank - word->words), word->words, blank + 1);
        else
            fprintf(out, "complete -c %s -n __fish_use_subcommand -a '%s' -d '", p, word->words);
        put_text(word->help, false, out);
        fputs("'\n", out);
        if (word->takes_model && !blank)
            fprintf(out,
                    "complete -c %s -n '__fish_seen_subcommand_from %s' -a '(continuo-ctl models "
                    "2>/dev/null | string match -rv ^MODEL | string replace -r \" +.*\" \"\")'\n",
                    p, word->words);
    }
}

void
cn_completions_print(const struct cn_completions *from, const char *shell, FILE *out)
{
    if (strcmp(shell, "bash") == 0)
        put_bash(from, out);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(from, out);
    else
        put_fish(from, out);
}
