/* management/api/json/key_use_json.h - what the named keys use, as JSON. Loop 0. */
#ifndef CN_MANAGEMENT_API_JSON_KEY_USE_JSON_H
#define CN_MANAGEMENT_API_JSON_KEY_USE_JSON_H

#include <jansson.h>

struct cn_accounts;

/* {"keys": [{"name": ..., "requests": ..., "limits": {...}}, ...]}, sorted by name. `accounts` may
 * be NULL. */
json_t *cn_key_use_json(struct cn_accounts *accounts);

#endif
