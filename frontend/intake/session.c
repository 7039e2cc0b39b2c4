/* frontend/intake/session.c - SageMaker's stateful sessions as headers. On the loop of the request.
 *
 * Ids of sessions come from the server only, so an id that the store does not know is an error and
 * opens nothing: the client learns that its session is gone.
 */
#include "frontend/intake/session.h"

#include "core/time/clock.h"
#include "scheduler/sequence/generated_id.h"

int
cn_session_read(const struct cn_header *headers, uint32_t n, struct cn_sequence_headers *sequence,
                struct cn_session *out, struct cn_error *err)
{
    uint32_t i;
    int rc;

    *out = (struct cn_session){0};
    for (i = 0; i < n; i++) {
        if (headers[i].value.len == 0 ||
            !cn_str_eq_header(headers[i].name, CN_STR("x-amzn-sagemaker-session-id")))
            continue;
        out->used = true;
        if (cn_str_eq(headers[i].value, CN_STR("NEW_SESSION")))
            out->is_new = true;
        else if ((rc = cn_intake_read_id(&headers[i], sequence, err)))
            return rc;
    }
    if (!out->used)
        return 0;
    if (out->is_new && sequence->id.len > 0)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "NEW_SESSION gets its id from the server, but the request also names "
                       "sequence %.*s; send only one of the two",
                       CN_STR_ARG(sequence->id));
    sequence->id_name = (struct cn_str){NULL, 0}; /* the answer has headers of its own for the id */
    if (!out->is_new)
        return 0;
    sequence->id = cn_generated_id_make(out->id);
    sequence->start = true;
    return 0;
}

int
cn_session_check(struct cn_session *session, const struct cn_model_config *config,
                 const char *model, struct cn_error *err)
{
    uint64_t idle_ms = config->sequence_max_idle_ms, total_ms = config->sequence_timeout_ms;

    if (session->is_new && !config->sequence_batching)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s has no sessions (sequenceBatching is false); send the request "
                       "without NEW_SESSION",
                       model);
    if (idle_ms)
        idle_ms += config->state_ttl_ms; /* the state stays for that time */
    session->lives_ms = total_ms && (!idle_ms || total_ms < idle_ms) ? total_ms : idle_ms;
    return 0;
}

const char *
cn_session_value(struct cn_arena *arena, const struct cn_session *session, uint64_t now_wall_ms)
{
    char when[25];

    if (!session->lives_ms)
        return cn_arena_printf(arena, "%s", session->id);
    cn_wall_format(now_wall_ms + session->lives_ms, when);
    /* SageMaker's pattern has whole seconds. */
    return cn_arena_printf(arena, "%s; Expires=%.19sZ", session->id, when);
}

bool
cn_session_is_closed(const struct cn_answer *answer)
{
    return answer->error_code == CN_E_SEQUENCE_UNKNOWN ||
           answer->error_code == CN_E_SEQUENCE_EXPIRED ||
           answer->error_code == CN_E_SEQUENCE_ENDED ||
           (answer->error_code == 0 && (answer->flags & CN_ANSWER_ENDED));
}
