/* frontend/endpoints/kserve/kserve_stats.h - statistics of the KServe v2 protocol over HTTP. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_STATS_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_STATS_H

struct cn_http_request;

/* GET /v2/models/stats, /v2/models/NAME[/versions/VERSION]/stats */
void cn_v2_http_stats(struct cn_http_request *request);

#endif
