/* management/api/json/version_json.h - one model version as JSON, for GET /models/... Loop 0. */
#ifndef CN_MANAGEMENT_API_JSON_VERSION_JSON_H
#define CN_MANAGEMENT_API_JSON_VERSION_JSON_H

#include <jansson.h>

#include "management/models/registry.h"

struct cn_worker_pool_facts; /* management/pool/worker_pool.h */

/* Adds the version's settings, and the facts that its pool has reported, to the object `out`. */
void cn_version_show(json_t *out, const struct cn_version *version,
                     const struct cn_worker_pool_facts *facts);

#endif
