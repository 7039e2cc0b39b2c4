/* ctl/seq_options.c - the commands of continuo-ctl seq: their words, options and help. */
#include <string.h>

#include "ctl/seq.h"
#include "ctl/verbs/verbs.h"

/* The options that a command of seq can have. */
enum { FOR_LIST = 1, FOR_IMPORT = 2 };

static const struct {
    const char *name, *words, *help;
    unsigned min, max, options; /* `min` and `max`: how many words may follow the name */
} verbs[] = {
    {"ls", "MODEL", "list sequences; --prefix, --idle, --state, --limit select them; --sort", 1, 1,
     FOR_LIST},
    {"show", "MODEL ID", "show a sequence's step, size, clocks, worker; --state: its state, too", 2,
     2, 0},
    {"export", "MODEL ID [FILE]", "save a sequence to FILE [ID.cnseq]; - is the standard output", 2,
     3, 0},
    {"import", "MODEL ID FILE", "open ID with the sequence in FILE; see --replace, --any-model", 3,
     3, FOR_IMPORT},
    {"fork", "MODEL ID NEW", "copy a sequence to the id NEW", 3, 3, 0},
    {"rm", "MODEL ID", "delete a sequence", 2, 2, 0},
};
static const struct {
    const char *flag, *help;
} flags[] = {
    {"--prefix TEXT", "with ls: only ids that begin with TEXT"},
    {"--idle SECONDS", "with ls: only sequences without a step for at least this time"},
    {"--state WORD", "with ls: live, open (live or only on disk), closed or all [live]"},
    {"--sort WORD", "with ls: id, idle, step, size or backlog; all but id begin with the largest"},
    {"--limit N", "with ls: maximum number of sequences [1000]"},
    {"--replace", "with import: close the sequence that is open under ID, if there is one"},
    {"--any-model", "with import: accept a file that another model exported"},
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])
#define N_FLAGS (sizeof flags / sizeof flags[0])

void
cn_ctl_seq_help(FILE *out)
{
    fputs("usage: continuo-ctl seq COMMAND MODEL[/VERSION] ...\n\n"
          "Inspects, moves and deletes the sequences of a model.\n\n",
          out);
    for (size_t i = 0; i < N_VERBS; i++)
        fprintf(out, "  seq %-6s %-16s %s\n", verbs[i].name, verbs[i].words, verbs[i].help);
    fputs("\n", out);
    for (size_t i = 0; i < N_FLAGS; i++)
        fprintf(out, "  %-15s %s\n", flags[i].flag, flags[i].help);
    fputs(
        "\nMODEL without VERSION means the default version. continuo-ctl --help explains --server\n"
        "and --json.\n",
        out);
}

void
cn_ctl_seq_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out)
{
    char name[64];

    for (size_t i = 0; i < N_VERBS; i++) {
        snprintf(name, sizeof name, "seq %s %s", verbs[i].name, verbs[i].words);
        put(out, name, verbs[i].help);
    }
    for (size_t i = 0; i < N_FLAGS; i++)
        put(out, flags[i].flag, flags[i].help);
}

static int
check_state(const char *word, struct cn_error *err)
{
    static const char *const words[] = {"live", "open", "closed", "all"};

    for (size_t i = 0; i < 4; i++)
        if (strcmp(word, words[i]) == 0)
            return 0;
    return cn_fail(err, CN_E_CONFIG, "--state is \"%.40s\"; it must be live, open, closed or all",
                   word);
}

int
cn_ctl_seq_check(const struct cn_ctl_options *options, struct cn_error *err)
{
    const struct cn_ctl_seq_options *seq = &options->seq;
    unsigned n = options->n_words, used = 0;
    size_t i = 0;

    while (n > 0 && i < N_VERBS && strcmp(verbs[i].name, options->words[0]) != 0)
        i++;
    if (n == 0 || i == N_VERBS)
        return cn_fail(err, CN_E_CONFIG,
                       "unknown command \"seq %.60s\"; seq --help lists the commands",
                       n ? options->words[0] : "");
    if (n - 1 < verbs[i].min || n - 1 > verbs[i].max)
        return cn_fail(err, CN_E_CONFIG, "wrong number of arguments; usage: continuo-ctl seq %s %s",
                       verbs[i].name, verbs[i].words);
    used |=
        options->verb.sort || seq->prefix || seq->state || seq->idle_s || seq->limit ? FOR_LIST : 0;
    used |= seq->replace || seq->any_model ? FOR_IMPORT : 0;
    if (used & ~verbs[i].options)
        return cn_fail(err, CN_E_CONFIG, "seq %s does not take %s (see seq --help)", verbs[i].name,
                       used & FOR_LIST & ~verbs[i].options
                           ? "--prefix, --idle, --state, --sort and --limit"
                           : "--replace and --any-model");
    if (seq->state && check_state(seq->state, err))
        return CN_E_CONFIG;
    return cn_ctl_check_model(options->words[1], false, err);
}
