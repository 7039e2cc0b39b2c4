/* ctl/top.h - the live table. */
#ifndef CN_CTL_TOP_H
#define CN_CTL_TOP_H

#include <stdbool.h>

#include "ctl/read_models.h"

/* A frame each second until q or Ctrl-C; with `once` a single one after one interval. Returns 0, or
 * what fetching the first view (with `once`: either) failed with. */
int cn_ctl_top(const struct cn_ctl_server *server, bool once, bool json, struct cn_error *err);

#endif
