/* frontend/endpoints/kserve/kserve_http_priv.h - what the files of the v2 protocol over HTTP
 * share. A call belongs to the loop of its request. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_HTTP_PRIV_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_KSERVE_HTTP_PRIV_H

#include "core/memory/buf.h"
#include "frontend/intake/kserve_job.h"

struct cn_http_request;

/* The form in which responses go out. */
enum cn_v2_http_form {
    CN_V2_FORM_ONE,      /* one response, as from infer and generate */
    CN_V2_FORM_EVENTS,   /* any number of responses, as server-sent events */
    CN_V2_FORM_LINES,    /* any number, as lines of JSON */
    CN_V2_FORM_GENERATED /* any number, as events of the generate extension */
};

/* One inference request. It lies in the arena of its HTTP request. */
struct cn_v2_http_call {
    struct cn_v2_job v2;
    struct cn_http_request *request;
    enum cn_v2_http_form form;
    bool begun;          /* the head of the stream has been sent */
    bool answered;       /* the answer is complete; later pieces are dropped */
    struct cn_buf first; /* generate: holds the response until it is known to be the only one */
};

/* Makes the call for a request to the model of `queue`. The queue may go away before the call
 * ends. */
struct cn_v2_http_call *cn_v2_http_call_create(struct cn_http_request *request,
                                               const struct cn_model_queue *queue);
/* Makes a job from the request, which has been read, and submits it, or refuses the request. */
void cn_v2_http_call_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue,
                            const struct cn_job_ops *ops);
/* Submits a call whose form allows any number of responses. */
void cn_v2_http_stream_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue);
/* Ends the call, because the last piece has come. This may free `request`. */
void cn_v2_http_call_end(struct cn_v2_http_call *call);
/* Cancels the job, because the request has its answer and the job still runs. */
void cn_v2_http_call_give_up(struct cn_v2_http_call *call);

/* Answers {"error": message} with the status that errors.def has for `code`. */
void cn_v2_http_error(struct cn_http_request *request, int code, const char *message);

#endif
