/* metrics/page/model_statistics.h - collects the statistics of the v2 protocol, for HTTP and gRPC.
 */
#ifndef CN_METRICS_PAGE_MODEL_STATISTICS_H
#define CN_METRICS_PAGE_MODEL_STATISTICS_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "kserve/stats.h"

struct cn_management;

/* Copies the counters of typed models; everything is in the arena. An empty `name` asks for all
 * models, an empty `version` for all versions of the model. CN_E_BAD_REQUEST: there is no such
 * model or version. On any loop. */
int cn_v2_stats_collect(struct cn_management *management, struct cn_str name, struct cn_str version,
                        struct cn_arena *arena, struct cn_v2_model_stats **out, uint32_t *n,
                        struct cn_error *err);

#endif
