/* frontend/intake/session.h - SageMaker's stateful sessions, as headers of a sequence's requests
 * and answers.
 *
 * X-Amzn-SageMaker-Session-Id says NEW_SESSION or an id. Answers say
 * X-Amzn-SageMaker-New-Session-Id: <id>; Expires=2026-01-31T12:00:00Z, and
 * X-Amzn-SageMaker-Closed-Session-Id: <id> (InvokeEndpoint of SageMaker's runtime API).
 */
#ifndef CN_FRONTEND_INTAKE_SESSION_H
#define CN_FRONTEND_INTAKE_SESSION_H

#include "config/model/model_config.h"
#include "frontend/intake/step_headers.h"
#include "scheduler/queue/job.h"

struct cn_session {
    bool used; /* the request has the header */
    bool is_new;
    char id[CN_GENERATED_ID_BYTES]; /* of a new one */
    uint64_t lives_ms;              /* without a further step; 0: for ever */
};

/* After cn_intake_read_sequence, whose findings it completes: a new session's id, which points
 * into `out`, and its start. CN_E_BAD_REQUEST: an id that can't be one, NEW_SESSION together with
 * an id, or two different ids. */
int cn_session_read(const struct cn_header *headers, uint32_t n,
                    struct cn_sequence_headers *sequence, struct cn_session *out,
                    struct cn_error *err);
/* NEW_SESSION for a model without sequences: CN_E_BAD_REQUEST. */
int cn_session_check(struct cn_session *session, const struct cn_model_config *config,
                     const char *model, struct cn_error *err);

/* `id; Expires=...`, the id alone when it does not expire. */
const char *cn_session_value(struct cn_arena *arena, const struct cn_session *session,
                             uint64_t now_wall_ms);
/* Does the answer say that the session is over, or was over before? */
bool cn_session_is_closed(const struct cn_answer *answer);

#endif
