/* frontend/endpoints/service_envelope.h - service envelopes: {"instances": [...]} in,
 * {"predictions": [...]} out.
 *
 * With --service-envelope json or kserve a request's JSON body is opened here: each instance
 * becomes a row of its own, so that instances of one request and of many are batched alike, and the
 * answers go back in one body. On the loop of the request.
 */
#ifndef CN_FRONTEND_ENDPOINTS_SERVICE_ENVELOPE_H
#define CN_FRONTEND_ENDPOINTS_SERVICE_ENVELOPE_H

#include "core/errors/error.h"
#include "scheduler/queue/job.h"

struct cn_http_request;
struct cn_model_queue;

enum cn_service_envelope {
    CN_ENVELOPE_NONE, /* also "body" and "kservev2": handlers get the body without asking */
    CN_ENVELOPE_JSON,
    CN_ENVELOPE_KSERVE, /* as json, but explanations are called so */
};

/* "none", "body", "json", "kserve", "kservev2"; NULL means "none". CN_E_CONFIG names the allowed
 * words. */
int cn_service_envelope_parse(const char *word, enum cn_service_envelope *out,
                              struct cn_error *err);

/* Opens the envelope in `model`'s parts and submits a job like `model` for each instance. On 0 the
 * request is answered, or held until all have answered. CN_E_BAD_REQUEST: no JSON, no instances,
 * too many of them (max-request-parts), or several steps of a sequence at once. */
int cn_service_envelope_submit(struct cn_http_request *request, struct cn_model_queue *queue,
                               const struct cn_job *model, struct cn_error *err);

#endif
