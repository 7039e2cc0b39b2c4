/* management/api/watch.h - the model versions that somebody who watches the server wants to see
 * now, for the page's feed. Loop 0.
 *
 * A server may have 10,000 models, so only some are described: those with trouble first, then those
 * with the most steps since the last look. The list of all models has pages of its own
 * (GET /models). */
#ifndef CN_MANAGEMENT_API_WATCH_H
#define CN_MANAGEMENT_API_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "metrics/counters/metrics.h"

struct cn_management;

#define CN_WATCH_VERSIONS_MAX 200

/* One version, borrowed until on_done returns. */
struct cn_watched {
    const char *name, *version;
    bool is_default;
    json_t *about; /* as GET /models/{name}/{version} shows it */
    const struct cn_metrics *metrics;
};

struct cn_watch_totals {
    uint32_t models, versions, unready; /* unready: versions with too few workers */
    uint64_t jobs;                      /* of all versions, ever */
};

struct cn_watch_pick;

/* Zeroed by the caller before the first look, and kept between looks: it remembers the choice. */
struct cn_watch_order {
    unsigned most;            /* how many versions to choose, at most CN_WATCH_VERSIONS_MAX */
    const char *const *names; /* models whose versions come first, in any case; or NULL */
    unsigned n_names;
    /* Called once for each look, perhaps from inside the call. */
    void (*on_done)(struct cn_watch_order *order, const struct cn_watched *versions, unsigned n);
    struct cn_watch_totals totals; /* as of the last ranking */

    /* The function's own. */
    struct cn_watch_pick *picks;
    unsigned n_picks, looks_left; /* looks until the versions are ranked again */
};

/* Describes the versions. The order stays in place until on_done. */
void cn_management_watch(struct cn_management *management, struct cn_watch_order *order);
/* Frees what the order remembers. */
void cn_watch_order_fini(struct cn_watch_order *order);

/* Loop 0: the reasons why the server is unhealthy, besides missing workers. Calls `fn` for each. */
void cn_management_each_reason(struct cn_management *management,
                               void (*fn)(void *ctx, const char *kind, const char *subject,
                                          const char *text),
                               void *ctx);

#endif
