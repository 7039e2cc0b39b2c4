/* ctl/verbs/verb_options.c - words and flags of the commands that change a server, and of predict,
 * slowlog, backup and restore. Everything that can be checked without the server is checked here.
 *
 * verb_flags.def has a row for each flag: where its value goes, which commands take it, and its
 * help. The parser, the help, the manual page and the completions for shells all go through that
 * table, so they cannot contradict each other. A flag is accepted in front of any command at first,
 * since the command may stand behind it; cn_ctl_verb_check() then refuses those that the command
 * does not take. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "ctl/verbs/verbs.h"

#define FOR(command) (1u << CN_CTL_##command)

static const struct {
    const char *flag, *argument;
    unsigned commands;
    size_t offset;
    const char *help;
} flags[] = {
#define CN_CTL_VERB_FLAG(field, flag, argument, commands, help)                                    \
    {flag, argument, commands, offsetof(struct cn_ctl_verb_options, field), help},
#include "ctl/verbs/verb_flags.def"
#undef CN_CTL_VERB_FLAG
};
#define N_FLAGS (sizeof flags / sizeof flags[0])

static const struct {
    enum cn_ctl_command command;
    const char *name, *words;
    unsigned min, max; /* how many words may follow the command */
    int (*run)(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err);
} verbs[] = {
    {CN_CTL_REGISTER, "register", "URL", 1, 1, cn_ctl_change},
    {CN_CTL_SCALE, "scale", "MODEL[/VERSION] MIN [MAX]", 2, 3, cn_ctl_change},
    {CN_CTL_SET_DEFAULT, "set-default", "MODEL/VERSION", 1, 1, cn_ctl_change},
    {CN_CTL_SWAP, "swap", "MODEL/VERSION", 1, 1, cn_ctl_change},
    {CN_CTL_UNREGISTER, "unregister", "MODEL[/VERSION]", 1, 1, cn_ctl_change},
    {CN_CTL_PREDICT, "predict", "MODEL[/VERSION] [BODY|@FILE|-]", 1, 2, cn_ctl_predict},
    {CN_CTL_SLOWLOG, "slowlog", "[clear]", 0, 1, cn_ctl_slowlog},
    {CN_CTL_BACKUP, "backup", "FILE|-", 1, 1, cn_ctl_backup},
    {CN_CTL_RESTORE, "restore", "FILE|-", 1, 1, cn_ctl_restore},
    {CN_CTL_KEYS, "keys", "ls|add|revoke|use [NAME]", 1, 2, cn_ctl_keys},
    {CN_CTL_EXPLAIN, "explain", "[WORD]", 0, 1, cn_ctl_explain},
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])

bool
cn_ctl_verb_flag(int argc, char **argv, int *i, struct cn_ctl_options *options)
{
    for (size_t k = 0; k < N_FLAGS; k++) {
        void *at = (char *)&options->verb + flags[k].offset;
        const size_t len = strlen(flags[k].flag);

        if (strncmp(argv[*i], flags[k].flag, len) != 0 ||
            (argv[*i][len] && !(flags[k].argument && argv[*i][len] == '=')))
            continue;
        options->verb_flags |= 1u << k;
        if (!flags[k].argument)
            *(bool *)at = true;
        else if (argv[*i][len] == '=')
            *(const char **)at = argv[*i] + len + 1;
        else
            *(const char **)at = *i + 1 < argc ? argv[++*i] : "";
        return true;
    }
    return false;
}

static size_t
find(enum cn_ctl_command command)
{
    size_t i = 0;

    while (i < N_VERBS && verbs[i].command != command)
        i++;
    return i;
}

bool
cn_ctl_is_verb(enum cn_ctl_command command)
{
    return find(command) < N_VERBS;
}

const char *
cn_ctl_verb_words(enum cn_ctl_command command)
{
    return cn_ctl_is_verb(command) ? verbs[find(command)].words : "";
}

/* The flag with its argument: "--name NAME". */
static const char *
full_name(size_t k, char out[64])
{
    snprintf(out, 64, "%s%s%s", flags[k].flag, flags[k].argument ? " " : "",
             flags[k].argument ? flags[k].argument : "");
    return out;
}

void
cn_ctl_verb_flags(void (*put)(FILE *out, const char *name, const char *help), FILE *out)
{
    char name[64];

    for (size_t i = 0; i < N_FLAGS; i++)
        put(out, full_name(i, name), flags[i].help);
}

/* Cuts off "with register, swap: ", which the help of a single command does not need. */
static const char *
without_commands(const char *help)
{
    const char *colon = strncmp(help, "with ", 5) == 0 ? strstr(help, ": ") : NULL;

    return colon ? colon + 2 : help;
}

void
cn_ctl_help_begin(const char *name, const char *words, const char *what, FILE *out)
{
    fprintf(out, "usage: continuo-ctl %s%s%s\n\n%c%s.\n", name, *words ? " " : "", words,
            toupper((unsigned char)what[0]), what + 1);
}

void
cn_ctl_help_flag(const char *flag, const char *help, bool *any, FILE *out)
{
    fprintf(out, "%s  %s\n      %s\n", *any ? "" : "\n", flag, without_commands(help));
    *any = true;
}

void
cn_ctl_help_end(FILE *out)
{
    fputs("\ncontinuo-ctl --help explains --server and --json.\n", out);
}

void
cn_ctl_verb_help(enum cn_ctl_command command, FILE *out)
{
    const size_t i = find(command);
    bool any = false;
    char name[64];

    cn_ctl_help_begin(verbs[i].name, verbs[i].words, cn_ctl_command_help(command), out);
    for (size_t k = 0; k < N_FLAGS; k++)
        if (flags[k].commands & 1u << command)
            cn_ctl_help_flag(full_name(k, name), flags[k].help, &any, out);
    if (command == CN_CTL_RESTORE) /* the flag of seq import */
        cn_ctl_help_flag("--replace", "close the sequences that are open on the server first", &any,
                         out);
    if (command == CN_CTL_SLOWLOG) /* the flag of seq ls */
        cn_ctl_help_flag("--limit N", "maximum number of steps [all that the server keeps]", &any,
                         out);
    cn_ctl_help_end(out);
}

int
cn_ctl_check_number(const char *what, const char *text, unsigned long long max,
                    struct cn_error *err)
{
    unsigned long long value;
    char *end;

    if (!text)
        return 0;
    value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && strlen(text) < 12 && value <= max)
        return 0;
    return cn_fail(err, CN_E_CONFIG, "%s is \"%.40s\"; it must be a number from 0 to %llu", what,
                   text, max);
}

/* Checks a word of the form MODEL or MODEL/VERSION. */
int
cn_ctl_check_model(const char *text, bool needs_version, struct cn_error *err)
{
    const char *slash = strchr(text, '/');

    if (text[0] && text[0] != '/' && (slash || !needs_version) &&
        (!slash || (slash[1] && !strchr(slash + 1, '/'))))
        return 0;
    return cn_fail(err, CN_E_CONFIG,
                   "\"%.100s\" does not name a %s; write %s (continuo-ctl models "
                   "lists them)",
                   text, needs_version ? "version of a model" : "model",
                   needs_version ? "MODEL/VERSION" : "MODEL or MODEL/VERSION");
}

/* `words` is a list such as "pin migrate reset reject". A part of a word must not pass, so what is
 * found has to begin and end where a word of the list does. */
static int
check_word(const char *what, const char *text, const char *words, struct cn_error *err)
{
    const size_t len = text ? strlen(text) : 0;
    const char *at = words;

    if (!text)
        return 0;
    while ((at = strstr(at, text))) {
        if (len && (at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
            return 0;
        at++;
    }
    return cn_fail(err, CN_E_CONFIG, "%s is \"%.40s\"; it must be one of: %s", what, text, words);
}

static int
check_values(const struct cn_ctl_options *options, struct cn_error *err)
{
    const struct cn_ctl_verb_options *verb = &options->verb;
    int rc = cn_ctl_check_number("--workers", verb->workers, 1024, err);

    if (!rc)
        rc = cn_ctl_check_number("--batch-size", verb->batch_size, 1000000, err);
    if (!rc)
        rc = cn_ctl_check_number("--deadline", verb->deadline, 31536000, err);
    if (!rc)
        rc = check_word("--policy", verb->policy, "pin migrate reset reject", err);
    if (!rc)
        rc = check_word("--sort", verb->sort,
                        options->command == CN_CTL_SLOWLOG ? "duration time"
                                                           : "id idle step size backlog",
                        err);
    if (!rc && verb->inference)
        rc = cn_ctl_url_check(verb->inference, err);
    return rc;
}

static int
check_keys_words(const struct cn_ctl_options *options, struct cn_error *err)
{
    const struct cn_ctl_verb_options *verb = &options->verb;
    const bool uses = strcmp(options->words[0], "use") == 0;
    const bool lists = uses || strcmp(options->words[0], "ls") == 0;

    if (check_word("the word behind keys", options->words[0], "ls add revoke use", err))
        return err->code;
    if (!uses && (!verb->keys || !*verb->keys))
        return cn_fail(err, CN_E_CONFIG,
                       "name the file of the keys: --keys FILE, or the variable CONTINUO_KEYS");
    if (lists != (options->n_words == 1))
        return cn_fail(err, CN_E_CONFIG, "keys %s takes %s", options->words[0],
                       lists ? "no further word" : "the name of one key");
    if ((verb->scopes || verb->models || verb->certificates || verb->expires || verb->rate ||
         verb->burst || verb->concurrency || verb->max_num_sequence || verb->stored_bytes) &&
        strcmp(options->words[0], "add") != 0)
        return cn_fail(
            err, CN_E_CONFIG,
            "--scopes, --models, --certificates, --expires and the limits work only with "
            "keys add");
    return 0;
}

static int
check_words(const struct cn_ctl_options *options, struct cn_error *err)
{
    const size_t i = find(options->command);
    const unsigned n = options->n_words;
    int rc = 0;

    if (n < verbs[i].min || n > verbs[i].max)
        return cn_fail(err, CN_E_CONFIG, "wrong number of arguments; usage: continuo-ctl %s %s",
                       verbs[i].name, verbs[i].words);
    if (options->command == CN_CTL_SLOWLOG)
        return n ? check_word("the word behind slowlog", options->words[0], "clear", err) : 0;
    if (options->command == CN_CTL_KEYS)
        return check_keys_words(options, err);
    if (options->command == CN_CTL_REGISTER || options->command == CN_CTL_BACKUP ||
        options->command == CN_CTL_RESTORE || options->command == CN_CTL_EXPLAIN)
        return 0;
    rc = cn_ctl_check_model(
        options->words[0],
        options->command == CN_CTL_SET_DEFAULT || options->command == CN_CTL_SWAP, err);
    if (!rc && options->command == CN_CTL_SCALE)
        rc = cn_ctl_check_number("MIN", options->words[1], 1024, err);
    if (!rc && options->command == CN_CTL_SCALE && n > 2)
        rc = cn_ctl_check_number("MAX", options->words[2], 1024, err);
    return rc;
}

int
cn_ctl_verb_check(const struct cn_ctl_options *options, struct cn_error *err)
{
    for (size_t k = 0; k < N_FLAGS; k++)
        if ((options->verb_flags & 1u << k) && !(flags[k].commands & 1u << options->command))
            return cn_fail(err, CN_E_CONFIG, "this command does not take %s (see --help)",
                           flags[k].flag);
    if (cn_ctl_is_verb(options->command) && check_words(options, err))
        return err->code;
    return check_values(options, err);
}

int
cn_ctl_verb(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
            struct cn_buf *hint, struct cn_error *err)
{
    cn_assert(cn_ctl_is_verb(options->command));
    return verbs[find(options->command)].run(http, options, out, hint, err);
}
