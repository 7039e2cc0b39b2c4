/* frontend/endpoints/ping.h - /ping, and KServe's question whether a model is ready. */
#ifndef CN_FRONTEND_ENDPOINTS_PING_H
#define CN_FRONTEND_ENDPOINTS_PING_H

struct cn_http_request;

/* 200, or 500 while the server isn't ready: then the body says why (metrics/counters/unready.def),
 * unless answers are to be TorchServe's. */
void cn_health_ping(struct cn_http_request *request);

/* GET /v1/models/{model}: has its default version a ready worker? */
void cn_health_model(struct cn_http_request *request);

#endif
