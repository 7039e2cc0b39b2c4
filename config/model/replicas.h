/* config/model/replicas.h - the key state.replicas: a number, or the word `all`. Any thread. */
#ifndef CN_CONFIG_MODEL_REPLICAS_H
#define CN_CONFIG_MODEL_REPLICAS_H

#include "config/model/model_config.h"

#define CN_REPLICAS_ALL_WORD "all"

/* Takes the value of the key: a number from 0 to `max`, or CN_REPLICAS_ALL for the word. Returns
 * whether it is one of these. */
bool cn_replicas_take(const struct cn_yaml *value, uint64_t max, uint32_t *out);
/* Does the store of a stateful model fit to `state.replicas: all`? `whole`: all sources of settings
 * have been applied; otherwise a server may still name the store. CN_E_CONFIG: it does not fit. */
int cn_replicas_check(const struct cn_model_config *config, bool whole, struct cn_error *err);

#endif
