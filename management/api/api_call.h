/* management/api/api_call.h - a request of the management API while it is worked on: its answers,
 * which end it, and its parameters. Loop 0.
 */
#ifndef CN_MANAGEMENT_API_API_CALL_H
#define CN_MANAGEMENT_API_API_CALL_H

#include <jansson.h>

#include "management/management_priv.h"

#define CN_API_PARTS_MAX 5

#define CN_API_LIST_LIMIT 100 /* entries of a page, if the request names no limit */

struct cn_api_call {
    struct cn_management *management;
    struct cn_api_request *request;
    json_t *body;          /* the parameters in the body, a JSON object; or NULL */
    struct cn_arena arena; /* parts and parameters */
    const char *parts[CN_API_PARTS_MAX];
    unsigned n_parts;
    const char *sequence_id; /* what follows /sequences/, which is then the last part; else NULL */
    struct cn_error err;     /* error of the first wrong parameter; code 0: none was wrong */
    struct cn_token_renewal renewal;
    /* waits for the snapshot with the call's change, with this answer: */
    struct cn_snapshot_wait wait;
    json_t *answer;
    int answer_status;
};

/* --- answers; the call is gone afterwards */

void cn_api_end(struct cn_api_call *call);
/* Answers with `json`, which is taken. */
void cn_api_reply(struct cn_api_call *call, int http_status, struct cn_buf *json);
/* Answers with the status and body of an error. */
void cn_api_fail(struct cn_api_call *call, int code, const char *message);
/* Answers with `value`, which is taken. */
void cn_api_answer(struct cn_api_call *call, int http_status, json_t *value);
/* Answers with the value and status 200, or with the error if `value` is NULL. `ctx` is the call. A
 * callback of the functions that describe something. */
void cn_api_described(void *ctx, json_t *value, const struct cn_error *err);
/* Answers 405, because the path has no such method. */
void cn_api_not_allowed(struct cn_api_call *call);

/* --- parameters: from the query, or from a JSON object in the body; good as long as the call */

/* The parameter's text; NULL if it was not given. */
const char *cn_api_param(struct cn_api_call *call, const char *name);
/* The parameter as a number from 0 to `max`; -1 if it was not given. A wrong one sets call->err,
 * because a silent default would hide typing errors. Only in TorchServe's dialect, a query's text
 * that is not a number counts as not given, as it does there. */
int64_t cn_api_param_number(struct cn_api_call *call, const char *name, int64_t max);
/* Like cn_api_param_number(); in TorchServe's dialect a number below `least` also counts as not
 * given. Otherwise the caller checks `least`. */
int64_t cn_api_param_setting(struct cn_api_call *call, const char *name, int64_t least,
                             int64_t max);
bool cn_api_param_bool(struct cn_api_call *call, const char *name, bool otherwise);
/* False: a parameter was wrong, and the call is answered with that error. */
bool cn_api_params_fine(struct cn_api_call *call);

/* Reads the body; call it before the first parameter. 0, or an error in call->err; nothing is
 * answered. */
int cn_api_read_body(struct cn_api_call *call);

#endif
