/* frontend/endpoints/metrics_http.h - /metrics for Prometheus. On the loop of the
 * request. */
#ifndef CN_FRONTEND_ENDPOINTS_METRICS_HTTP_H
#define CN_FRONTEND_ENDPOINTS_METRICS_HTTP_H

struct cn_http_request;

/* Answers in Prometheus' text format 0.0.4: sums over all loops, and the numbers of each model
 * version. ?name[]=FAMILY, which may be repeated, selects families. */
void cn_metrics_http_handle(struct cn_http_request *request);

#endif
