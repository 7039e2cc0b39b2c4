/* frontend/page/feed_parts.h - the parts of the feed's events as JSON. Loop 0; no state. */
#ifndef CN_FRONTEND_PAGE_FEED_PARTS_H
#define CN_FRONTEND_PAGE_FEED_PARTS_H

#include <jansson.h>

#include "config/server/server_config.h"
#include "core/log/log_tail.h"
#include "management/api/watch.h"

/* What stays the same while the server runs. */
json_t *cn_feed_server(const struct cn_server_config *config);
/* The description of a version with at most 64 workers, whether it is the default, and its errors.
 */
json_t *cn_feed_version(const struct cn_watched *watched);
/* What continuo-ctl doctor would say of these versions and of the server. `metrics` are summed over
 * all loops; `address` is named in the commands that are advised. */
json_t *cn_feed_findings(struct cn_management *management, const struct cn_watched *versions,
                         unsigned n, const uint64_t metrics[CN_METRIC_COUNT], const char *address);
/* Appends to `lines` an array [number, level, text] for each log line after `after`. Returns the
 * number of the newest one. */
uint64_t cn_feed_lines(enum cn_log_tail_kind kind, uint64_t after, unsigned most, json_t *lines);

#endif
