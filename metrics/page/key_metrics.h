/* metrics/page/key_metrics.h - what the named keys use, on the metrics page. On loop 0. */
#ifndef CN_METRICS_PAGE_KEY_METRICS_H
#define CN_METRICS_PAGE_KEY_METRICS_H

#include "core/memory/buf.h"
#include "metrics/counters/metrics.h"

struct cn_accounts;

/* Appends the families continuo_key_... of the keys that have been used since the start; nothing
 * if `accounts` is NULL. */
void cn_key_metrics_print(struct cn_accounts *accounts, const struct cn_metric_filter *filter,
                          struct cn_buf *out);

#endif
