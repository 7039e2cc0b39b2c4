/* ctl/cli.h - the command line of continuo-ctl. */
#ifndef CN_CTL_CLI_H
#define CN_CTL_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/errors/error.h"

#define CN_CTL_DEFAULT_MANAGEMENT "http://127.0.0.1:8081"
#define CN_CTL_DEFAULT_METRICS "http://127.0.0.1:8082"

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
    CN_CTL_HELP,
    CN_CTL_SEQ_HELP,
    CN_CTL_STORE_HELP,
    CN_CTL_VERSION,
    CN_CTL_MAN
};

#define CN_CTL_WORDS_MAX 4

struct cn_ctl_seq_options {
    const char *prefix, *state; /* NULL if not given */
    uint32_t idle_s, limit;     /* 0 if not given */
    bool replace, any_model;
};

struct cn_ctl_options {
    enum cn_ctl_command command;
    const char *management, *metrics; /* from the command line or the environment */
    bool json, once;
    bool all;                            /* all nodes of the shared store */
    const char *nodes;                   /* a list of management addresses; NULL: none was given */
    const char *words[CN_CTL_WORDS_MAX]; /* the words that follow seq or store */
    unsigned n_words;
    struct cn_ctl_seq_options seq;
};

/* Reads the command line, CONTINUO_MANAGEMENT and CONTINUO_METRICS. Returns 0, or CN_E_CONFIG with
 * a message that says what is wrong. */
int cn_ctl_options_parse(int argc, char **argv, struct cn_ctl_options *out, struct cn_error *err);
/* Runs the whole program and returns its exit status. */
int cn_ctl_run(int argc, char **argv);

void cn_ctl_help(FILE *out);
/* Prints the manual page continuo-ctl(1) as troff. */
void cn_ctl_man(FILE *out);

#endif
