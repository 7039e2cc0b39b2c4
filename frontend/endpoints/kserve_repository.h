/* frontend/endpoints/kserve_repository.h - the v2 protocol's model repository over HTTP. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_REPOSITORY_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_REPOSITORY_H

struct cn_buf;
struct cn_http_request;
struct cn_repository_order;

/* A done order for the index as the protocol's array. */
void cn_v2_write_repository_index(const struct cn_repository_order *order, struct cn_buf *out);

/* POST /v2/repository/index */
void cn_v2_http_index(struct cn_http_request *request);
/* POST /v2/repository/models/NAME/load, .../unload */
void cn_v2_http_load(struct cn_http_request *request);
void cn_v2_http_unload(struct cn_http_request *request);
/* The same of a named repository: there is but one. */
void cn_v2_http_named_repository(struct cn_http_request *request);

#endif
