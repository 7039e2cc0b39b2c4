/* frontend/endpoints/metrics_http.h - /metrics for Prometheus. */
#ifndef CN_FRONTEND_ENDPOINTS_METRICS_HTTP_H
#define CN_FRONTEND_ENDPOINTS_METRICS_HTTP_H

struct cn_http_request;

/* Text format 0.0.4: the sums over all loops, and each model version's own. ?name[]=FAMILY, which
 * may be repeated, asks for some of them. */
void cn_metrics_http_handle(struct cn_http_request *request);

#endif
