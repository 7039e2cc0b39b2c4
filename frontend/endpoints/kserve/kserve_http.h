/* frontend/endpoints/kserve/kserve_http.h - the KServe v2 protocol over HTTP: health, metadata,
 * inference. These are functions of routes (routes.c); each runs on the request's loop. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_HTTP_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_HTTP_H

struct cn_http_request;

/* GET /v2/health/live and /v2/health/ready. Only the status matters; there is no body. */
void cn_v2_http_live(struct cn_http_request *request);
void cn_v2_http_ready(struct cn_http_request *request);
/* GET /v2 */
void cn_v2_http_server(struct cn_http_request *request);
/* GET /v2/models/NAME[/versions/VERSION] and .../ready; the model must be typed. */
void cn_v2_http_model(struct cn_http_request *request);
void cn_v2_http_model_ready(struct cn_http_request *request);
/* POST /v2/models/NAME[/versions/VERSION]/infer */
void cn_v2_http_infer(struct cn_http_request *request);
/* Infers for a model that declares its tensors, as above. For any other model it does a plain
 * prediction, as TorchServe does on this path. */
void cn_v2_http_torchserve(struct cn_http_request *request);
/* POST .../generate and .../generate_stream */
void cn_v2_http_generate(struct cn_http_request *request);
void cn_v2_http_generate_stream(struct cn_http_request *request);
/* GET /v2/models/NAME[/versions/VERSION]/config */
void cn_v2_http_config(struct cn_http_request *request);
/* Any other path or method under /v2. */
void cn_v2_http_unknown(struct cn_http_request *request);

#endif
