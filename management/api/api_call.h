/* management/api/api_call.h - a request of the management API while it is worked on: its answers,
 * which end it, and its parameters. Loop 0.
 */
#ifndef CN_MANAGEMENT_API_API_CALL_H
#define CN_MANAGEMENT_API_API_CALL_H

#include <jansson.h>

#include "management/management_priv.h"

#define CN_API_PARTS_MAX 4

struct cn_api_call {
    struct cn_management *management;
    struct cn_api_request *request;
    json_t *body;          /* the JSON object, or NULL */
    struct cn_arena arena; /* parts and parameters */
    const char *parts[CN_API_PARTS_MAX];
    unsigned n_parts;
    const char *sequence_id; /* behind /sequences/, which is the last part then; else NULL */
    struct cn_error err;     /* of the first parameter that was wrong; code 0: none */
    struct cn_token_renewal renewal;
    struct cn_snapshot_wait wait; /* for the snapshot of what the call changed, with its answer: */
    json_t *answer;
    int answer_status;
};

/* --- answers; the call is gone afterwards */

void cn_api_end(struct cn_api_call *call);
/* `json` is taken. */
void cn_api_reply(struct cn_api_call *call, int http_status, struct cn_buf *json);
/* The error's status and body. */
void cn_api_fail(struct cn_api_call *call, int code, const char *message);
/* `value` is taken. */
void cn_api_answer(struct cn_api_call *call, int http_status, json_t *value);

/* --- parameters: from the query, or from a JSON object in the body; good as long as the call */

/* NULL when it isn't given. */
const char *cn_api_param(struct cn_api_call *call, const char *name);
/* -1 when it isn't given. A wrong one is an error: taking a default instead hides typing errors.
 * Only in TorchServe's dialect it is as if a query's word for a number were not given, as it is
 * there. */
int64_t cn_api_param_number(struct cn_api_call *call, const char *name, int64_t max);
/* The same; in TorchServe's dialect also what is below `least`. Otherwise the caller checks
 * that. */
int64_t cn_api_param_setting(struct cn_api_call *call, const char *name, int64_t least,
                             int64_t max);
bool cn_api_param_bool(struct cn_api_call *call, const char *name, bool otherwise);
/* False: one was wrong, and that is answered. */
bool cn_api_params_fine(struct cn_api_call *call);

/* Before the first parameter. 0, or what is wrong with the body; nothing is answered. */
int cn_api_read_body(struct cn_api_call *call);

#endif
