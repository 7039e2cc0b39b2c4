/* management/api/json/environment_json.h - environments of Python packages as JSON. Loop 0. */
#ifndef CN_MANAGEMENT_API_JSON_ENVIRONMENT_JSON_H
#define CN_MANAGEMENT_API_JSON_ENVIRONMENT_JSON_H

#include <jansson.h>

#include "management/models/registry.h"

/* The answer to GET /environments. */
json_t *cn_environments_json(struct cn_management *management);
/* The environment of a version; NULL: it uses the packages of its interpreter. */
json_t *cn_environment_json(const struct cn_version *version);
/* What a version that is being registered waits for; NULL: not for its packages. */
json_t *cn_environment_awaited_json(struct cn_management *management, const char *model,
                                    const char *version);

#endif
