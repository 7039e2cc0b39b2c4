/* ctl/verbs/verbs.h - the commands that change a server, run a prediction or show slow steps. One
 * thread. */
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

/* Prints how the command is written, and its flags. */
void cn_ctl_verb_help(enum cn_ctl_command command, FILE *out);
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

/* slow_steps.c, change.c, predict.c: the commands themselves. */
int cn_ctl_slowlog(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                   struct cn_buf *out, struct cn_buf *hint, struct cn_error *err);
int cn_ctl_change(struct cn_ctl_http *http, const struct cn_ctl_options *options,
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
