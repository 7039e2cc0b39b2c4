/* frontend/endpoints/predictions.h - makes a job from an HTTP request, and a response from its
 * answer, for all paths of a prediction (routes.c). */
#ifndef CN_FRONTEND_ENDPOINTS_PREDICTIONS_H
#define CN_FRONTEND_ENDPOINTS_PREDICTIONS_H

struct cn_http_request;

/* A route's function. The first two arguments of the path are model and version. If the path names
 * no model, the parameter model_name does, or else the only model that was loaded at start-up is
 * meant. */
void cn_predict_handle(struct cn_http_request *request);

/* /wfpredict/{workflow}: always an error, because there are no workflows. */
void cn_predict_handle_workflow(struct cn_http_request *request);

#endif
