/* ctl/cli.h - the command line of continuo-ctl. */
#ifndef CN_CTL_CLI_H
#define CN_CTL_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/errors/error.h"

#define CN_CTL_DEFAULT_MANAGEMENT "http://127.0.0.1:8081"
#define CN_CTL_DEFAULT_METRICS "http://127.0.0.1:8082"
#define CN_CTL_DEFAULT_INFERENCE "http://127.0.0.1:8080"

/* The exit statuses of the program. */
#define CN_CTL_FINE 0
#define CN_CTL_WRONG 1
#define CN_CTL_USAGE 2

enum cn_ctl_command {
    CN_CTL_STATUS,
    CN_CTL_MODELS,
    CN_CTL_WORKERS,
    CN_CTL_TOP,
    CN_CTL_DOCTOR,
    CN_CTL_SEQ,
    CN_CTL_STORE,
    CN_CTL_ENVIRONMENTS,
    CN_CTL_REGISTER,
    CN_CTL_SCALE,
    CN_CTL_SET_DEFAULT,
    CN_CTL_SWAP,
    CN_CTL_UNREGISTER,
    CN_CTL_PREDICT,
    CN_CTL_SLOWLOG,
    CN_CTL_BACKUP,
    CN_CTL_RESTORE,
    CN_CTL_KEYS,
    CN_CTL_EXPLAIN,
    CN_CTL_HELP,
    CN_CTL_SEQ_HELP,
    CN_CTL_STORE_HELP,
    CN_CTL_VERB_HELP,
    CN_CTL_PLAIN_HELP,
    CN_CTL_VERSION,
    CN_CTL_MAN,
    CN_CTL_COMPLETIONS
};

#define CN_CTL_WORDS_MAX 4

struct cn_ctl_seq_options {
    const char *prefix, *state; /* NULL if not given */
    uint32_t idle_s, limit;     /* 0 if not given */
    bool replace, any_model, show_state;
};

/* The flags of verbs/verb_flags.def; NULL or false if not given. */
struct cn_ctl_verb_options {
    const char *name, *workers, *batch_size, *policy, *deadline, *inference, *sequence, *key, *type;
    const char *model, *sort;
    const char *keys, *scopes, *models, *certificates, *expires;
    const char *rate, *burst, *concurrency, *max_num_sequence, *stored_bytes;
    bool yes, no_wait, start, end;
};

struct cn_ctl_options {
    enum cn_ctl_command command;
    const char *management, *metrics; /* from the command line or the environment */
    bool json, once;
    bool all;                            /* all nodes of the shared store */
    const char *nodes;                   /* a list of management addresses; NULL: none was given */
    const char *words[CN_CTL_WORDS_MAX]; /* the words that follow the command */
    unsigned n_words;
    struct cn_ctl_seq_options seq;
    struct cn_ctl_verb_options verb;
    unsigned verb_flags;       /* which of them were given, a bit for each row */
    enum cn_ctl_command about; /* which command help is wanted for */
    const char *shell;         /* for whom completions are printed */
};

/* Reads the command line, CONTINUO_MANAGEMENT and CONTINUO_METRICS. Returns 0, or CN_E_CONFIG with
 * a message that says what is wrong. */
int cn_ctl_options_parse(int argc, char **argv, struct cn_ctl_options *out, struct cn_error *err);
/* Runs the whole program and returns its exit status. */
int cn_ctl_run(int argc, char **argv);

void cn_ctl_help(FILE *out);
/* The help of a command that has neither words nor a table of its own, such as status. */
void cn_ctl_plain_help(enum cn_ctl_command command, FILE *out);
/* What the command does, as the help says it. */
const char *cn_ctl_command_help(enum cn_ctl_command command);
/* Calls `put` for each command with its words, and for each flag with its argument. */
void cn_ctl_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out);
/* Prints the manual page continuo-ctl(1) as troff. */
void cn_ctl_man(FILE *out);

#endif
