/* management/api/json/slow_steps_json.h - the list of slow steps as JSON. Loop 0. */
#ifndef CN_MANAGEMENT_API_JSON_SLOW_STEPS_JSON_H
#define CN_MANAGEMENT_API_JSON_SLOW_STEPS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct cn_server_config;

struct cn_slow_steps_wish {
    const char *model; /* NULL: all models */
    uint32_t limit;
    bool by_time; /* the newest first; else the slowest first */
};

json_t *cn_slow_steps_json(const struct cn_server_config *config,
                           const struct cn_slow_steps_wish *wish);

#endif
