/* worker/resolve/resolve_refuse.c - tells a client why its row cannot go on with a sequence: what
 * has closed it, or that the store does not know it. Owned by the worker's one thread. */
#include <inttypes.h>
#include <string.h>

#include "core/time/clock.h"
#include "worker/resolve/resolve_priv.h"

#define START_HINT                                                                                 \
    "start a new one with the start flag (ts-request-sequence-start, sequence_start) or choose "   \
    "another id"

int
cn_fail_gone(const struct cn_states *states, struct cn_str id, const struct cn_record *record,
             struct cn_error *err)
{
    char shown[128], when[25], free_from[80] = "";
    uint64_t since;

    cn_id_shown(id, shown);
    cn_wall_format(record->closed_wall_ms, when);
    if (states->load->tombstone_ms && !cn_resolve_left_by_swap(record->close_reason)) {
        strcpy(free_from, ", or wait: from ");
        cn_wall_format(record->closed_wall_ms + states->load->tombstone_ms,
                       free_from + strlen(free_from));
        strcat(free_from, " on the id is as good as new");
    }
    if (cn_resolve_left_by_swap(record->close_reason))
        return cn_fail(err, CN_E_SEQUENCE_ENDED,
                       "sequence %s left version %s at %s: it was %s another version; send its "
                       "steps without a version, or " START_HINT,
                       shown, states->load->model_version, when,
                       record->close_reason == CN_CLOSE_MOVED ? "moved to" : "started anew in");
    if (record->close_reason == CN_CLOSE_IDLE) {
        since = record->closed_wall_ms - record->last_wall_ms;
        return cn_fail(err, CN_E_SEQUENCE_EXPIRED,
                       "sequence %s expired at %s after %" PRIu64 " ms idle (limit %" PRIu64
                       " ms); " START_HINT "%s",
                       shown, when, since, states->load->idle_ms, free_from);
    }
    if (record->close_reason == CN_CLOSE_LIFETIME) {
        since = record->closed_wall_ms - record->opened_wall_ms;
        return cn_fail(err, CN_E_SEQUENCE_EXPIRED,
                       "sequence %s expired at %s, %" PRIu64 " ms after its start (limit %" PRIu64
                       " ms); " START_HINT "%s",
                       shown, when, since, states->load->lifetime_ms, free_from);
    }
    return cn_fail(err, CN_E_SEQUENCE_ENDED, "sequence %s was closed at %s (%s); " START_HINT "%s",
                   shown, when, cn_close_reason_word((enum cn_close_reason)record->close_reason),
                   free_from);
}

void
cn_resolve_fail_gone(struct lookup *at, struct cn_batch_entry *entry,
                     const struct cn_record *record)
{
    struct cn_error err;
    int code = cn_fail_gone(&at->worker->states, entry->row->sequence_id, record, &err);

    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE;
    cn_batch_entry_fail(entry, code, "%s", err.message);
}

void
cn_resolve_fail_unknown(struct cn_batch_entry *entry, uint64_t found)
{
    char shown[128];

    cn_id_shown(entry->row->sequence_id, shown);
    if (!entry->row->generation)
        cn_batch_entry_fail(entry, CN_E_SEQUENCE_UNKNOWN,
                            "sequence %s does not exist, and v2 requests, sessions and models with "
                            "sequence.strict open one only with a start flag; " START_HINT,
                            shown);
    else if (found)
        cn_batch_entry_fail(entry, CN_E_SEQUENCE_UNKNOWN,
                            "generation %" PRIu64
                            " of sequence %s no longer exists; the store holds generation %" PRIu64
                            "; " START_HINT,
                            entry->row->generation, shown, found);
    else
        cn_batch_entry_fail(entry, CN_E_SEQUENCE_UNKNOWN,
                            "the state of sequence %s is no longer in the store; " START_HINT,
                            shown);
}
