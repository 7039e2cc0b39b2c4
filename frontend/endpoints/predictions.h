/* frontend/endpoints/predictions.h - an HTTP request becomes a job, and its answer a response,
 * whichever path it came by (routes.c). */
#ifndef CN_FRONTEND_ENDPOINTS_PREDICTIONS_H
#define CN_FRONTEND_ENDPOINTS_PREDICTIONS_H

struct cn_http_request;

/* A route's function: the path's first two arguments are model and version. Without a model: the
 * one that the parameter model_name says, or the one that was loaded at start-up. */
void cn_predict_handle(struct cn_http_request *request);

/* /wfpredict/{workflow}: there are none. */
void cn_predict_handle_workflow(struct cn_http_request *request);

#endif
