/* management/api/model_requests.h - requests about models. Loop 0. */
#ifndef CN_MANAGEMENT_API_MODEL_REQUESTS_H
#define CN_MANAGEMENT_API_MODEL_REQUESTS_H

#include "management/api/api_call.h"

/* Answers GET /models. */
void cn_api_list_models(struct cn_api_call *call);
/* Answers POST /models. */
void cn_api_register_model(struct cn_api_call *call);
/* Answers PUT /models/{m}[/{v}]. `version` NULL: the path has none. */
void cn_api_scale_model(struct cn_api_call *call, const char *version);
/* Answers PUT /models/{m}/{v}/set-default. */
void cn_api_set_default(struct cn_api_call *call, const char *name, const char *version);
/* Answers DELETE /models/{m}[/{v}]. `version` NULL: the path has none. */
void cn_api_unregister_model(struct cn_api_call *call, const char *name, const char *version);

#endif
