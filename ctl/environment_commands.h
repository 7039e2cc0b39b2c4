/* ctl/environment_commands.h - continuo-ctl environments: the packages that the server has
 * installed for Python models. One thread. */
#ifndef CN_CTL_ENVIRONMENT_COMMANDS_H
#define CN_CTL_ENVIRONMENT_COMMANDS_H

#include "core/memory/buf.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"

/* Asks the server and appends what is to be printed to `out`. */
int cn_ctl_environments(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                        struct cn_buf *out, struct cn_error *err);
/* Appends the table for an answer of GET /environments. CN_E_PROTOCOL: it is not one. */
int cn_ctl_environments_show(struct cn_str json, bool as_json, const char *server,
                             struct cn_buf *out, struct cn_error *err);

#endif
