/* ctl/top.h - shows a table of the server that changes once a second. */
#ifndef CN_CTL_TOP_H
#define CN_CTL_TOP_H

#include <stdbool.h>

#include "ctl/read_models.h"

/* Shows a frame once a second until q or Ctrl-C. With `once` it shows a single frame, after one
 * interval. Returns 0, or the error of reading the first view. With `once`, an error of reading the
 * second view counts, too. */
int cn_ctl_top(const struct cn_ctl_server *server, bool once, bool json, struct cn_error *err);

#endif
