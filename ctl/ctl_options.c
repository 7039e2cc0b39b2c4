/* ctl/ctl_options.c - flags, help and manual page of continuo-ctl, from one table of commands.
 *
 * Options may stand before or after the command. A value may follow its flag or an equals sign. The
 * commands of `seq` and `store` have tables of their own (seq_options.c, store_commands.c), and
 * their words are checked there, before any request is made. */
#include <stdlib.h>
#include <string.h>

#include "core/text/suggest.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"
#include "ctl/seq.h"
#include "ctl/store_commands.h"
#include "ctl/verbs/shells.h"
#include "ctl/verbs/verbs.h"

static const struct {
    const char *name;
    enum cn_ctl_command command;
    const char *help;
} commands[] = {
    {"status", CN_CTL_STATUS, "show the server's health, workers, live sequences and steps"},
    {"models", CN_CTL_MODELS, "list each version of each model with its workers and queue"},
    {"workers", CN_CTL_WORKERS,
     "list the worker processes: pid, state, sequences, memory, restarts"},
    {"top", CN_CTL_TOP, "show models and workers, updated every second; q or Ctrl-C quits"},
    {"doctor", CN_CTL_DOCTOR, "show what is wrong, why, and what to do about it"},
    {"slowlog", CN_CTL_SLOWLOG,
     "show the steps that took long, and where their time went (--limit N)"},
    {"register", CN_CTL_REGISTER, "register the archive URL (or a name in the store) and load it"},
    {"scale", CN_CTL_SCALE, "set the number of workers of a model"},
    {"set-default", CN_CTL_SET_DEFAULT, "make a version the one that serves by default"},
    {"swap", CN_CTL_SWAP, "make a version the default, and move the live sequences to it"},
    {"unregister", CN_CTL_UNREGISTER, "unregister a version of a model"},
    {"predict", CN_CTL_PREDICT, "run a prediction, or a step of a sequence"},
    {"seq", CN_CTL_SEQ, "list, show, export, import, fork or delete sequences (see seq --help)"},
    {"backup", CN_CTL_BACKUP, "save all sequences in a file, while the server works"},
    {"restore", CN_CTL_RESTORE,
     "import the sequences of a backup (--replace: also those that are open)"},
    {"keys", CN_CTL_KEYS, "list, make or revoke the named keys in a file, or show their use"},
    {"explain", CN_CTL_EXPLAIN,
     "explain an error word, such as queue_full: what happened, why, what to do"},
    {"environments", CN_CTL_ENVIRONMENTS,
     "list the packages installed for Python models, with their progress and models"},
    {"store", CN_CTL_STORE, "list stores, delete them or accept their loss (see store --help)"},
};
#define FOR(command) (1u << CN_CTL_##command)

/* `commands` are the commands that take the flag; 0: all of them. */
static const struct {
    const char *flag, *help;
    unsigned commands;
} flags[] = {
    {"--server URL",
     "management address; variable CONTINUO_MANAGEMENT [" CN_CTL_DEFAULT_MANAGEMENT "]", 0},
    {"--metrics URL", "metrics address; variable CONTINUO_METRICS [" CN_CTL_DEFAULT_METRICS "]",
     FOR(STATUS) | FOR(TOP) | FOR(DOCTOR)},
    {"--all", "with status, top, doctor: all nodes that share the server's state store",
     FOR(STATUS) | FOR(TOP) | FOR(DOCTOR)},
    {"--nodes LIST",
     "with status, top, doctor, seq: the nodes at these addresses (host1:8081,host2:8081)",
     FOR(STATUS) | FOR(TOP) | FOR(DOCTOR)},
    {"--json", "print JSON for programs; top prints one object per line", 0},
    {"--once", "with top: print one frame after one second and exit", FOR(TOP)},
    {"--help", "show this text and exit; so do --version, --print-man, --print-completions SHELL",
     0},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])
#define N_FLAGS (sizeof flags / sizeof flags[0])

/* The command with the words that follow it: "scale MODEL[/VERSION] MIN [MAX]". */
static const char *
command_name(size_t i, char out[80])
{
    const char *words = cn_ctl_verb_words(commands[i].command);

    snprintf(out, 80, "%s%s%s", commands[i].name, *words ? " " : "", words);
    return out;
}

void
cn_ctl_help(FILE *out)
{
    fputs("usage: continuo-ctl [options] COMMAND, for a running Continuo server; COMMAND --help "
          "says more\n\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
    fputs("\n", out);
    for (size_t i = 0; i < N_FLAGS; i++)
        fprintf(out, "  %-14s %s\n", flags[i].flag, flags[i].help);
    fputs("\nCONTINUO_TOKEN is a key; CONTINUO_CA, CONTINUO_CLIENT_CERT and CONTINUO_CLIENT_KEY "
          "are PEM files.\n"
          "URL is http(s)://HOST:PORT or unix:/PATH. "
          "Exit status: 0 fine, 1 problem or no answer, 2 bad usage.\n",
          out);
}

static size_t
row_of(enum cn_ctl_command command)
{
    size_t i = 0;

    while (i < N_COMMANDS && commands[i].command != command)
        i++;
    return i;
}

const char *
cn_ctl_command_help(enum cn_ctl_command command)
{
    size_t i = row_of(command);

    return i < N_COMMANDS ? commands[i].help : "";
}

void
cn_ctl_plain_help(enum cn_ctl_command command, FILE *out)
{
    const size_t row = row_of(command);
    bool any = false;

    cn_ctl_help_begin(commands[row].name, "", commands[row].help, out);
    for (size_t i = 0; i < N_FLAGS; i++)
        if (flags[i].commands & 1u << command)
            cn_ctl_help_flag(flags[i].flag, flags[i].help, &any, out);
    cn_ctl_help_end(out);
}

void
cn_ctl_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out)
{
    char name[80];

    for (size_t i = 0; i < N_COMMANDS; i++)
        put(out, command_name(i, name), commands[i].help);
    for (size_t i = 0; i < N_FLAGS; i++)
        put(out, flags[i].flag, flags[i].help);
    cn_ctl_verb_flags(put, out);
}

/* Appends text for troff, which would take a bare '-' for a hyphen. */
static void
put_man(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '-')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void
put_man_entry(FILE *out, const char *name, const char *help)
{
    fputs(".TP\n.B ", out);
    put_man(out, name);
    fputs("\n", out);
    put_man(out, help);
    fputs(".\n", out);
}

void
cn_ctl_man(FILE *out)
{
    fprintf(out, ".TH CONTINUO\\-CTL 1 \"\" \"continuo %s\" \"User Commands\"\n", CN_VERSION);
    fputs(".SH NAME\ncontinuo\\-ctl \\- inspect a running Continuo server\n"
          ".SH SYNOPSIS\n.B continuo\\-ctl\n[\\fIoptions\\fR] \\fICOMMAND\\fR\n"
          ".SH COMMANDS\n",
          out);
    char name[80];

    for (size_t i = 0; i < N_COMMANDS; i++)
        put_man_entry(out, command_name(i, name), commands[i].help);
    cn_ctl_seq_entries(put_man_entry, out);
    cn_ctl_store_entries(put_man_entry, out);
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < N_FLAGS; i++)
        put_man_entry(out, flags[i].flag, flags[i].help);
    cn_ctl_verb_flags(put_man_entry, out);
    fputs(
        ".SH EXIT STATUS\n0 if all is well, 1 if something is wrong or the server does not answer, "
        "2 for a wrong command line.\n"
        ".SH SEE ALSO\n.BR continuo (1),\n.BR continuo\\-archiver (1)\n",
        out);
}

/* Returns the value of an environment variable. An empty one counts as not set, as in the server.
 */
static const char *
from_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value && *value ? value : otherwise;
}

/* Reads a number from 1 to max. If the text is not one, returns 0 and sets `err`. */
static uint32_t
number(const char *flag, const char *text, uint32_t max, struct cn_error *err)
{
    unsigned long long value;
    char *end;

    value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && value > 0 && value <= max)
        return (uint32_t)value;
    cn_fail(err, CN_E_CONFIG, "%s is \"%.40s\"; it must be a number from 1 to %u", flag, text, max);
    return 0;
}

/* Returns whether argv[*i] is this flag with a value, in either of its two spellings. */
static bool
takes_value(int argc, char **argv, int *i, const char *flag, const char **value)
{
    size_t len = strlen(flag);

    if (strncmp(argv[*i], flag, len) != 0)
        return false;
    if (argv[*i][len] == '=') {
        *value = argv[*i] + len + 1;
        return true;
    }
    if (argv[*i][len])
        return false;
    *value = *i + 1 < argc ? argv[++*i] : "";
    return true;
}

/* Reads a flag of seq that has a value. */
static bool
takes_seq_value(int argc, char **argv, int *i, struct cn_ctl_seq_options *seq, struct cn_error *err)
{
    const char *text;

    if (takes_value(argc, argv, i, "--prefix", &seq->prefix) ||
        takes_value(argc, argv, i, "--state", &seq->state))
        return true;
    if (takes_value(argc, argv, i, "--idle", &text))
        seq->idle_s = number("--idle", text, 31536000, err);
    else if (takes_value(argc, argv, i, "--limit", &text))
        seq->limit = number("--limit", text, 1000000, err);
    else
        return false;
    return true;
}

static bool
find_command(const char *word, enum cn_ctl_command *out)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, word) == 0) {
            *out = commands[i].command;
            return true;
        }
    }
    return false;
}

static int
unknown_command(const char *word, struct cn_error *err)
{
    const char *names[N_COMMANDS], *near;

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    near = cn_suggest(cn_str_from(word), names, N_COMMANDS);
    return near ? cn_fail(err, CN_E_CONFIG, "unknown command %.100s (did you mean %s?)", word, near)
                : cn_fail(err, CN_E_CONFIG, "unknown command %.100s; --help lists the commands",
                          word);
}

/* Was a flag of seq given that `command` does not take? */
static bool
has_seq_flag(const struct cn_ctl_seq_options *seq, enum cn_ctl_command command)
{
    return seq->prefix || seq->state || seq->idle_s || (seq->limit && command != CN_CTL_SLOWLOG) ||
           (seq->replace && command != CN_CTL_RESTORE) || seq->any_model;
}

static int
check_nodes(const struct cn_ctl_options *options, struct cn_error *err)
{
    const bool many = options->command == CN_CTL_STATUS || options->command == CN_CTL_TOP ||
                      options->command == CN_CTL_DOCTOR;

    if (options->all && options->nodes)
        return cn_fail(err, CN_E_CONFIG, "give either --all or --nodes, not both");
    if (options->all && !many)
        return cn_fail(err, CN_E_CONFIG, "--all works only with status, top and doctor");
    if (options->nodes && !many && options->command != CN_CTL_SEQ)
        return cn_fail(err, CN_E_CONFIG, "--nodes works only with status, top, doctor and seq");
    return 0;
}

int
cn_ctl_options_parse(int argc, char **argv, struct cn_ctl_options *out, struct cn_error *err)
{
    bool has_command = false;
    int rc;

    err->code = 0;
    *out = (struct cn_ctl_options){
        .management = from_environment("CONTINUO_MANAGEMENT", CN_CTL_DEFAULT_MANAGEMENT),
        .metrics = from_environment("CONTINUO_METRICS", CN_CTL_DEFAULT_METRICS),
        .verb.inference = from_environment("CONTINUO_INFERENCE", CN_CTL_DEFAULT_INFERENCE),
        .verb.keys = from_environment("CONTINUO_KEYS", NULL),
    };
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (has_command && out->command == CN_CTL_SEQ && out->n_words > 0 &&
            strcmp(out->words[0], "show") == 0 && strcmp(word, "--state") == 0) {
            out->seq.show_state = true; /* with ls it has a value */
            continue;
        }
        if (takes_value(argc, argv, &i, "--server", &out->management) ||
            takes_value(argc, argv, &i, "--nodes", &out->nodes) ||
            takes_value(argc, argv, &i, "--metrics", &out->metrics) ||
            takes_seq_value(argc, argv, &i, &out->seq, err) ||
            cn_ctl_verb_flag(argc, argv, &i, out))
            continue;
        if (takes_value(argc, argv, &i, "--print-completions", &out->shell)) {
            out->command = CN_CTL_COMPLETIONS;
            return cn_ctl_check_shell(out->shell, err);
        }
        if (strcmp(word, "--json") == 0) {
            out->json = true;
        } else if (strcmp(word, "--once") == 0) {
            out->once = true;
        } else if (strcmp(word, "--all") == 0) {
            out->all = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            out->about = out->command;
            out->command = !has_command                   ? CN_CTL_HELP
                           : out->command == CN_CTL_SEQ   ? CN_CTL_SEQ_HELP
                           : out->command == CN_CTL_STORE ? CN_CTL_STORE_HELP
                           : cn_ctl_is_verb(out->command) ? CN_CTL_VERB_HELP
                                                          : CN_CTL_PLAIN_HELP;
            return 0;
        } else if (strcmp(word, "--replace") == 0) {
            out->seq.replace = true;
        } else if (strcmp(word, "--any-model") == 0) {
            out->seq.any_model = true;
        } else if (strcmp(word, "--version") == 0) {
            out->command = CN_CTL_VERSION;
            return 0;
        } else if (strcmp(word, "--print-man") == 0) {
            out->command = CN_CTL_MAN;
            return 0;
        } else if (word[0] == '-' && word[1]) {
            return cn_fail(err, CN_E_CONFIG, "unknown option %.100s; --help lists the options",
                           word);
        } else if (has_command &&
                   (out->command == CN_CTL_SEQ || out->command == CN_CTL_STORE ||
                    cn_ctl_is_verb(out->command)) &&
                   out->n_words < CN_CTL_WORDS_MAX) {
            out->words[out->n_words++] = word;
        } else if (has_command) {
            return cn_fail(err, CN_E_CONFIG,
                           "unexpected argument %.100s: give one command at a time", word);
        } else if (!find_command(word, &out->command)) {
            return unknown_command(word, err);
        } else {
            has_command = true;
        }
    }
    if (err->code)
        return err->code;
    if (!has_command)
        return cn_fail(err, CN_E_CONFIG,
                       "no command given; use status, models, workers, top, doctor, seq or another "
                       "one (--help lists them)");
    if (out->once && out->command != CN_CTL_TOP)
        return cn_fail(err, CN_E_CONFIG,
                       "--once works only with top; the other commands print once anyway");
    if (check_nodes(out, err))
        return err->code;
    if (out->command != CN_CTL_SEQ && has_seq_flag(&out->seq, out->command))
        return cn_fail(err, CN_E_CONFIG,
                       "--prefix, --idle, --state, --limit, --replace and "
                       "--any-model work only with seq (see seq --help), --limit also with "
                       "slowlog, and --replace also with restore");
    if (cn_ctl_verb_check(out, err))
        return err->code;
    rc = out->command == CN_CTL_SEQ     ? cn_ctl_seq_check(out, err)
         : out->command == CN_CTL_STORE ? cn_ctl_store_check(out, err)
                                        : 0;
    if (rc)
        return rc;
    rc = cn_ctl_url_check(out->management, err);
    return rc ? rc : cn_ctl_url_check(out->metrics, err);
}
