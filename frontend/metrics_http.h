/* frontend/metrics_http.h - /metrics for Prometheus. */
#ifndef CN_FRONTEND_METRICS_HTTP_H
#define CN_FRONTEND_METRICS_HTTP_H

struct cn_http_request;

/* The sums over all loops, text format 0.0.4. */
void cn_metrics_http_handle(struct cn_http_request *request);

#endif
