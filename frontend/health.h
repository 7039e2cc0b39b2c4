/* frontend/health.h - /ping. */
#ifndef CN_FRONTEND_HEALTH_H
#define CN_FRONTEND_HEALTH_H

struct cn_http_request;

/* 200, or 500 while a model's default version has fewer workers than its minWorkers. */
void cn_health_ping(struct cn_http_request *request);

#endif
