/* frontend/endpoints/kserve_http_priv.h - what the files of the v2 protocol over HTTP share. */
#ifndef CN_FRONTEND_ENDPOINTS_KSERVE_HTTP_PRIV_H
#define CN_FRONTEND_ENDPOINTS_KSERVE_HTTP_PRIV_H

#include "core/memory/buf.h"
#include "frontend/intake/kserve_job.h"

struct cn_http_request;

/* How responses go out. */
enum cn_v2_http_form {
    CN_V2_FORM_ONE,      /* one, as infer and generate answer */
    CN_V2_FORM_EVENTS,   /* any number, as server-sent events */
    CN_V2_FORM_LINES,    /* ... as lines of JSON */
    CN_V2_FORM_GENERATED /* ... as events, in the words of the generate extension */
};

/* One inference request; in the arena of its HTTP request. */
struct cn_v2_http_call {
    struct cn_v2_job v2;
    struct cn_http_request *request;
    enum cn_v2_http_form form;
    bool begun;          /* the stream: its head is out */
    bool answered;       /* all of it: what still comes counts for nothing */
    struct cn_buf first; /* generate: the response, until it is known that there is no other */
};

/* Of a request to `queue`, which it need not outlive. */
struct cn_v2_http_call *cn_v2_http_call_create(struct cn_http_request *request,
                                               const struct cn_model_queue *queue);
/* Its request is read: it becomes a job, or is refused. */
void cn_v2_http_call_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue,
                            const struct cn_job_ops *ops);
/* The same for forms of any number of responses. */
void cn_v2_http_stream_submit(struct cn_v2_http_call *call, struct cn_model_queue *queue);
/* The last piece has come: the call is over. `request` may be freed. */
void cn_v2_http_call_end(struct cn_v2_http_call *call);
/* The request is answered, but its job goes on: it is cancelled. */
void cn_v2_http_call_give_up(struct cn_v2_http_call *call);

/* {"error": ...} with the status that errors.def has for `code`. */
void cn_v2_http_error(struct cn_http_request *request, int code, const char *message);

#endif
