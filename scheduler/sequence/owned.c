/* scheduler/sequence/owned.c - counts the sequences of named keys and their state. On the queue's
 * loop.
 *
 * Each queue has its own numbers for each owner, and adds each change to the owner's account as
 * well. A count of the store replaces the queue's numbers (owned_count.c).
 *
 * A sequence that is in the table for the first time since the server started, and that no step of
 * this server has opened, is in the numbers already. Its bytes are then taken over without adding
 * them. */
#include "scheduler/sequence/owned.h"

#include <string.h>

#include "access/account.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/sequence/owned_priv.h"

struct cn_owned_count *
cn_owned_count_of(struct cn_model_queue *queue, struct cn_account *account)
{
    struct cn_owned_count *count = cn_table_find(
        queue->owned.counts, (struct cn_str){(const char *)&account, sizeof(struct cn_account *)});

    if (!count) {
        count = cn_alloc(sizeof *count);
        *count = (struct cn_owned_count){.account = account};
        cn_table_insert(queue->owned.counts, count);
    }
    return count;
}

/* --- what lies behind the id */

static size_t
align(size_t bytes)
{
    return (bytes + _Alignof(struct cn_owned) - 1) & ~(_Alignof(struct cn_owned) - 1);
}

size_t
cn_owned_room(size_t bytes)
{
    return align(bytes) + sizeof(struct cn_owned);
}

static struct cn_owned *
owned_of(const struct cn_sequence *sequence)
{
    const size_t at = align(offsetof(struct cn_sequence, id) + sequence->id_len);

    return sequence->owned ? (struct cn_owned *)((char *)sequence + at) : NULL;
}

void
cn_owned_begin(struct cn_sequence *sequence, struct cn_account *account)
{
    sequence->owned = true;
    *owned_of(sequence) = (struct cn_owned){.count = cn_owned_count_of(sequence->queue, account)};
}

/* --- changes */

/* Has the running count passed this id? Ids are listed in the order of their bytes, except by a
 * store in memory, where the answer is a guess. */
static bool
is_passed(const struct cn_owned_queue *owned, struct cn_str id)
{
    const size_t least = id.len < owned->at_len ? id.len : owned->at_len;
    const int order = memcmp(id.ptr, owned->at, least);

    return owned->counting && (order < 0 || (order == 0 && id.len <= owned->at_len));
}

static void
change(struct cn_sequence *sequence, struct cn_owned *owned, int64_t sequences, int64_t bytes)
{
    struct cn_owned_count *count = owned->count;

    if (!sequences && !bytes)
        return;
    count->sequences += sequences;
    count->bytes += bytes;
    if (is_passed(&sequence->queue->owned, (struct cn_str){sequence->id, sequence->id_len})) {
        count->seen += sequences;
        count->seen_bytes += bytes;
    }
    cn_account_add(count->account, sequences, bytes);
}

static void
unreserve(struct cn_owned *owned)
{
    if (owned->reserved)
        cn_account_unreserve(owned->count->account);
    owned->reserved = false;
}

static void
uncount(struct cn_sequence *sequence, struct cn_owned *owned)
{
    if (owned->counted)
        change(sequence, owned, -1, -(int64_t)owned->bytes);
    owned->counted = false;
    owned->bytes = 0;
}

static void
set_bytes(struct cn_sequence *sequence, struct cn_owned *owned, uint64_t bytes)
{
    if (bytes > INT64_MAX) /* unknown */
        return;
    change(sequence, owned, 0, (int64_t)bytes - (int64_t)owned->bytes);
    owned->bytes = bytes;
}

void
cn_owned_forget(struct cn_sequence *sequence)
{
    struct cn_owned *owned = owned_of(sequence);

    if (owned)
        unreserve(owned);
}

void
cn_owned_learn(struct cn_sequence *sequence, const struct cn_answer *answer, bool gone, bool ended)
{
    struct cn_owned *owned = owned_of(sequence);
    const bool opened = (answer->flags & CN_ANSWER_OPENED) && answer->error_code == 0 &&
                        !(answer->flags & CN_ANSWER_REPLAYED);
    /* Then the one that it replaces is in the numbers, but its bytes are not known. */
    const bool adds = opened && !(answer->flags & CN_ANSWER_REPLACED);

    if (!owned) { /* it came before its owner had a key, so only the store knows it */
        if (opened || gone)
            cn_owned_recount(sequence->queue);
        return;
    }
    if (gone) {
        if (!owned->counted && ended && !adds)
            cn_owned_recount(sequence->queue); /* it was in the store: nobody knows its bytes */
        uncount(sequence, owned);
        return;
    }
    if (answer->error_code != 0 && answer->generation == 0)
        return;
    if (adds && !owned->counted) {
        change(sequence, owned, 1, 0);
        owned->counted = true;
    } else if (!owned->counted) {
        owned->counted = true;
        owned->bytes = answer->state_bytes > INT64_MAX ? 0 : answer->state_bytes;
        if (opened || answer->state_bytes > INT64_MAX)
            cn_owned_recount(sequence->queue);
    }
    set_bytes(sequence, owned, answer->state_bytes);
    unreserve(owned);
}

void
cn_owned_written(struct cn_sequence *sequence, uint64_t bytes)
{
    struct cn_owned *owned = owned_of(sequence);

    if (!owned)
        return;
    if (!owned->counted)
        change(sequence, owned, 1, 0);
    owned->counted = true;
    set_bytes(sequence, owned, bytes);
    cn_owned_recount(sequence->queue); /* it may have replaced one that is only in the store */
}

void
cn_owned_gone(struct cn_sequence *sequence)
{
    struct cn_owned *owned = owned_of(sequence);

    if (!owned)
        return;
    if (!owned->counted)
        cn_owned_recount(sequence->queue);
    uncount(sequence, owned);
}

/* --- limits */

int
cn_owned_admit(const struct cn_sequence *sequence, struct cn_job *job, bool *reserved,
               struct cn_error *err)
{
    const struct cn_owned *owned = sequence ? owned_of(sequence) : NULL;
    struct cn_account *account = job->account;
    const uint32_t flags = job->row.flags;
    int rc;

    *reserved = false;
    if (!account || !job->owner.len || !job->queue->owned.accounts || (flags & CN_ROW_RECALL))
        return 0;
    rc = flags & CN_ROW_END ? 0 : cn_account_check_stored(account, job->arrived_us, err);
    /* A sequence without these numbers came from an operator, before its owner had a key. */
    if (rc || (sequence && (!owned || (sequence->known && !sequence->closing))) ||
        (owned && owned->reserved) ||
        (flags & (CN_ROW_MUST_EXIST | CN_ROW_START)) == CN_ROW_MUST_EXIST)
        return rc;
    *reserved = cn_account_reserve(account);
    if (*reserved)
        return 0;
    if (flags & CN_ROW_START)
        return cn_account_refuse_sequence(account, job->arrived_us, err);
    job->row.flags |= CN_ROW_MUST_EXIST;
    job->at_limit = true;
    return 0;
}

void
cn_owned_set_reserved(struct cn_sequence *sequence)
{
    struct cn_owned *owned = owned_of(sequence);

    cn_assert(owned && !owned->reserved);
    owned->reserved = true;
}

/* --- when the store is counted */

void
cn_owned_ask_at(struct cn_model_queue *queue, uint64_t in_ms)
{
    if (!queue->closed)
        cn_timer_set(cn_loop_wheel(queue->loop), &queue->owned.timer,
                     cn_loop_now_ms(queue->loop) + in_ms);
}

void
cn_owned_recount(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;
    const uint64_t now = cn_loop_now_ms(queue->loop);
    const uint64_t in_ms =
        owned->rest_ms > now + CN_OWNED_SOON_MS ? owned->rest_ms - now : CN_OWNED_SOON_MS;

    if (!owned->accounts)
        return;
    if (owned->counting)
        owned->doubted = true;
    else if (!cn_timer_armed(&owned->timer) || owned->timer.deadline_ms > now + in_ms)
        cn_owned_ask_at(queue, in_ms);
}

void
cn_owned_worker_came(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;

    if (owned->accounts && !owned->asked && !cn_timer_armed(&owned->timer))
        cn_owned_ask_at(queue, 0);
}
