/* frontend/endpoints/kserve/kserve_repository.h - the v2 protocol's model repository over HTTP:
 * index, load, unload. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_REPOSITORY_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_REPOSITORY_H

struct cn_http_request;

/* POST /v2/repository/index */
void cn_v2_http_index(struct cn_http_request *request);
/* POST /v2/repository/models/NAME/load, .../unload */
void cn_v2_http_load(struct cn_http_request *request);
void cn_v2_http_unload(struct cn_http_request *request);
/* These requests with the name of a repository: refused, because there is only one. */
void cn_v2_http_named_repository(struct cn_http_request *request);

#endif
