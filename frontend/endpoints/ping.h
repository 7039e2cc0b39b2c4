/* frontend/endpoints/ping.h - /ping, and KServe's v1 request for a model's readiness. On
 * the loop of the request. */
#ifndef CN_FRONTEND_ENDPOINTS_PING_H
#define CN_FRONTEND_ENDPOINTS_PING_H

struct cn_http_request;

/* GET /ping: 200, or 500 while the server is not ready. The body then gives the reasons
 * (metrics/counters/unready.def), unless answers must be TorchServe's. */
void cn_health_ping(struct cn_http_request *request);

/* GET /v1/models/{model}: says whether its default version has a ready worker. */
void cn_health_model(struct cn_http_request *request);

#endif
