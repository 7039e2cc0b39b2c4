/* frontend/endpoints/service_envelope.h - service envelopes: requests of the form {"instances":
 * [...]}, and answers of the form {"predictions": [...]}. On the loop of the request.
 *
 * With --service-envelope json or kserve a request's JSON body is opened here. Each instance
 * becomes a row of its own, so that instances of one request and of several share batches, and the
 * answers go back in one body.
 */
#ifndef CN_FRONTEND_ENDPOINTS_SERVICE_ENVELOPE_H
#define CN_FRONTEND_ENDPOINTS_SERVICE_ENVELOPE_H

#include "core/errors/error.h"
#include "scheduler/queue/job.h"

struct cn_http_request;
struct cn_model_queue;

enum cn_service_envelope {
    CN_ENVELOPE_NONE, /* also "body" and "kservev2": handlers get the body anyway */
    CN_ENVELOPE_JSON,
    CN_ENVELOPE_KSERVE, /* like json, with "explanations" for explanations */
};

/* Reads "none", "body", "json", "kserve" or "kservev2"; NULL means "none". Returns CN_E_CONFIG, and
 * the message has the allowed words, for anything else. */
int cn_service_envelope_parse(const char *word, enum cn_service_envelope *out,
                              struct cn_error *err);

/* Opens the envelope in `model`'s parts and submits a job like `model` for each instance. If it
 * returns 0, the request is answered, or held until all instances have answered. Returns
 * CN_E_BAD_REQUEST if the body is not JSON, has no instances or too many of them
 * (max-request-parts), or has several steps of one sequence. */
int cn_service_envelope_submit(struct cn_http_request *request, struct cn_model_queue *queue,
                               const struct cn_job *model, struct cn_error *err);

#endif
