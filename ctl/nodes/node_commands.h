/* ctl/nodes/node_commands.h - runs a command for several nodes (--all, --nodes). */
#ifndef CN_CTL_NODES_NODE_COMMANDS_H
#define CN_CTL_NODES_NODE_COMMANDS_H

#include "core/memory/buf.h"
#include "ctl/cli.h"
#include "ctl/read_models.h"
#include "doctor/doctor.h"

/* Runs status or doctor, and appends what is to be printed to `out`. `wrong` tells whether
 * something is not as it should be. top runs by itself (cn_ctl_top_run). */
int cn_ctl_nodes_command(const struct cn_ctl_options *options, struct cn_buf *out, bool *wrong,
                         struct cn_error *err);
/* Shows all nodes once a second, like cn_ctl_top. */
int cn_ctl_nodes_top_run(const struct cn_ctl_options *options, struct cn_error *err);
/* Adds what is wrong with this server as a node of a shared store; nothing if it has none. */
void cn_ctl_nodes_diagnose_self(const struct cn_ctl_server *server,
                                struct cn_ctl_diagnosis *diagnosis);
/* Finds the first node that answers; a sequence in a shared store can be asked for at any node.
 * Its address lies in `address`. */
int cn_ctl_nodes_any(struct cn_ctl_http *http, const struct cn_ctl_options *options,
                     struct cn_buf *address, struct cn_error *err);

#endif
