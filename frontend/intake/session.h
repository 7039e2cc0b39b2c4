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
    char id[CN_GENERATED_ID_BYTES]; /* the id of a new session */
    uint64_t lives_ms;              /* time without a further step; 0: for ever */
};

/* Completes what cn_intake_read_sequence has found: sets a new session's id, which points into
 * `out`, and its start flag. Returns CN_E_BAD_REQUEST for an impossible id, NEW_SESSION together
 * with an id, or two different ids. */
int cn_session_read(const struct cn_header *headers, uint32_t n,
                    struct cn_sequence_headers *sequence, struct cn_session *out,
                    struct cn_error *err);
/* Returns CN_E_BAD_REQUEST for NEW_SESSION if the model has no sequences. */
int cn_session_check(struct cn_session *session, const struct cn_model_config *config,
                     const char *model, struct cn_error *err);

/* Returns `id; Expires=...`, or the id alone if the session does not expire. */
const char *cn_session_value(struct cn_arena *arena, const struct cn_session *session,
                             uint64_t now_wall_ms);
/* Returns true if the answer says that the session is over, or was over before. */
bool cn_session_is_closed(const struct cn_answer *answer);

#endif
