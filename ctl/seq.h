/* ctl/seq.h - looks into sequences and moves them. One thread. */
#ifndef CN_CTL_SEQ_H
#define CN_CTL_SEQ_H

#include <jansson.h>
#include <stdio.h>

#include "core/memory/buf.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"

/* Checks that options->words are a command of seq, with the number of words and the options that it
 * takes. Otherwise CN_E_CONFIG, and the message shows how the command is written. */
int cn_ctl_seq_check(const struct cn_ctl_options *options, struct cn_error *err);
/* Runs the command. Appends what is to be printed to `out`, and advice, also in case of an error,
 * to `hint`; both may stay empty. */
int cn_ctl_seq(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err);

void cn_ctl_seq_help(FILE *out);
/* Calls `put` for each command, for the manual page. */
void cn_ctl_seq_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out);

/* Prints one sequence or a list of them for people. `value` is the server's JSON. */
void cn_ctl_seq_show(const json_t *value, struct cn_buf *out);
void cn_ctl_seq_list(const json_t *list, struct cn_buf *out);

#endif
