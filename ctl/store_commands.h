/* ctl/store_commands.h - continuo-ctl store: the stores in the state folder. One thread. */
#ifndef CN_CTL_STORE_COMMANDS_H
#define CN_CTL_STORE_COMMANDS_H

#include "core/memory/buf.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"
#include "doctor/view.h"

/* Checks that options->words are a command of store. Otherwise CN_E_CONFIG, and the message shows
 * how the command is written. */
int cn_ctl_store_check(const struct cn_ctl_options *options, struct cn_error *err);
/* Runs the command, and appends what is to be printed to `out`. */
int cn_ctl_store(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
                 struct cn_error *err);

/* Fills in the view's reasons to be unhealthy and its unused stores. A server that does not know of
 * stores has none. */
void cn_ctl_store_read(struct cn_ctl_http *http, const char *management, struct cn_ctl_view *view);

void cn_ctl_store_help(FILE *out);
/* Calls `put` for each command, for the manual page. */
void cn_ctl_store_entries(void (*put)(FILE *out, const char *name, const char *help), FILE *out);

#endif
