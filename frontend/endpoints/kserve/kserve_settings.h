/* frontend/endpoints/kserve/kserve_settings.h - log and trace settings of the v2 protocol over HTTP
 * (kserve/settings.h). */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_SETTINGS_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_SETTINGS_H

struct cn_http_request;

/* GET and POST /v2/logging */
void cn_v2_http_logging(struct cn_http_request *request);
/* GET and POST /v2/trace/setting, /v2/models/NAME/trace/setting */
void cn_v2_http_trace(struct cn_http_request *request);

#endif
