/* ctl/verbs/verbs.h - the commands that change a server, run a prediction, show slow steps, or save
 * and restore all sequences. One thread. */
#ifndef CN_CTL_VERBS_VERBS_H
#define CN_CTL_VERBS_VERBS_H

#include <jansson.h>
#include <stdio.h>

#include "core/memory/buf.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"

/* Is argv[*i] a flag of these commands? Then it is read, with its value. */
bool cn_ctl_verb_flag(int argc, char **argv, int *i, struct cn_ctl_options *options);
/* Is it one of the commands that this header is about? */
bool cn_ctl_is_verb(enum cn_ctl_command command);
/* Checks the number of words, the flags and the values. CN_E_CONFIG: something is wrong. */
int cn_ctl_verb_check(const struct cn_ctl_options *options, struct cn_error *err);
/* Runs the command. Appends what is to be printed to `out`, and advice to `hint`. */
int cn_ctl_verb(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
                struct cn_buf *hint, struct cn_error *err);

/* Prints how the command is written, what it does, and its flags. */
void cn_ctl_verb_help(enum cn_ctl_command command, FILE *out);
/* The parts of that text, for commands that are not verbs. A flag's help loses "with top: "; `any`
 * begins as false. */
void cn_ctl_help_begin(const char *name, const char *words, const char *what, FILE *out);
void cn_ctl_help_flag(const char *flag, const char *help, bool *any, FILE *out);
void cn_ctl_help_end(FILE *out);
/* Calls `put` for each flag, with its argument, for help and the manual page. */
void cn_ctl_verb_flags(void (*put)(FILE *out, const char *name, const char *help), FILE *out);
/* The words that follow a command, as help shows them: "MODEL[/VERSION] MIN [MAX]"; "" for others.
 */
const char *cn_ctl_verb_words(enum cn_ctl_command command);

/* Is it MODEL or MODEL/VERSION? needs_version: is it MODEL/VERSION? Otherwise CN_E_CONFIG. */
int cn_ctl_check_model(const char *text, bool needs_version, struct cn_error *err);
/* Is it a number from 0 to `max`? Otherwise CN_E_CONFIG. */
int cn_ctl_check_number(const char *what, const char *text, unsigned long long max,
                        struct cn_error *err);

/* An exported sequence in a backup has at most this size, which is the largest value that the
 * server's --max-envelope-size can have, and a name with this end. */
#define CN_CTL_SEQUENCE_MAX_BYTES (1ull << 30)
#define CN_CTL_SEQUENCE_SUFFIX ".cnseq"

/* What backup and restore have moved so far. */
struct cn_ctl_moved {
    uint64_t sequences, bytes;
    uint64_t left_out; /* backup: ended meanwhile; restore: open already */
    uint64_t shown_us; /* when progress was shown last; 0: not yet */
};
/* Shows progress on standard error if that is a terminal, at most twice a second. `done` is "saved"
 * or "restored". `last` ends the line. */
void cn_ctl_moved_show(struct cn_ctl_moved *moved, const char *done, bool last);
/* Appends the result, as JSON with --json. */
void cn_ctl_moved_put(const struct cn_ctl_moved *moved, const struct cn_ctl_options *options,
                      const char *done, const char *file, struct cn_buf *out);

/* slowlog.c, change.c, predict.c, backup.c, restore.c, key_commands.c, explain.c: the commands
 * themselves. */
int cn_ctl_explain(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                   struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_keys(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
                struct cn_buf *hint, struct cn_error *err);
int cn_ctl_slowlog(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                   struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_change(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                  struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_backup(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                  struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_restore(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                   struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_predict(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                   struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);

/* Makes a request to the management address whose answer is a JSON object, which the caller
 * releases. `patient`: the answer may take as long as a model takes to load. */
int cn_ctl_verb_call(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                     const char *method, const char *path, bool patient, json_t **out,
                     struct cn_error *err);
/* Appends "?name=value", or "&name=value" behind another one. Nothing for a value of NULL. */
void cn_ctl_verb_query(struct cn_buf *path, const char *name, const char *value);
/* Appends "/models/MODEL" or "/models/MODEL/VERSION"; `base` is "/models/" or another path. */
void cn_ctl_verb_path(struct cn_buf *path, const char *base, const char *model);

/* Asks on the terminal whether to go on, unless --yes was given. CN_E_CONFIG: no; also if there is
 * no terminal. `what` is what will happen: "model m is unregistered". */
int cn_ctl_confirm(const struct cn_ctl_options *options, const char *what, struct cn_error *err);

#endif
