/* scheduler/sequence/owned.c - counts the sequences of named keys and their state. On the queue's
 * loop.
 *
 * Each queue has its own numbers for each owner, and adds each change to the owner's account as
 * well. A count of the store replaces the queue's numbers. It lists the sequences in pages between
 * other work, and steps go on meanwhile: a change of an id that the list has passed is added to
 * the new numbers, and any other change will be found by the list. What remains is what a second
 * worker commits while a page is read; the next count has it.
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

#define PAGE_RECORDS 2000 /* as many as a worker looks at for one query; a few milliseconds */
#define PAGE_EVERY_MS 50  /* so a count takes a tenth of one worker's time at most */
#define FAILED_MS 5000
/* A count is repeated after a minute, or 20 times of what the last one took. If the numbers may be
 * wrong, it is repeated earlier, but never at once, since clients can cause that. */
#define COUNT_EVERY_MS 60000
#define COUNT_SOON_MS 2000
#define COUNT_TIMES 20

/* The numbers of one owner in one queue. */
struct cn_owned_count {
    struct cn_account *account; /* the key in the table */
    int64_t sequences, bytes;
    int64_t seen, seen_bytes; /* what the running count has found */
};

static struct cn_str
account_of(const void *item)
{
    const struct cn_owned_count *count = item;

    return (struct cn_str){(const char *)&count->account, sizeof(struct cn_account *)};
}

static struct cn_owned_count *
count_of(struct cn_model_queue *queue, struct cn_account *account)
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
    *owned_of(sequence) = (struct cn_owned){.count = count_of(sequence->queue, account)};
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
    if (is_passed(&sequence->queue->owned, cn_sequence_id(sequence))) {
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

    if (!owned)
        return;
    if (gone) {
        if (!owned->counted && ended && !opened)
            cn_owned_recount(sequence->queue); /* it was in the store: nobody knows its bytes */
        uncount(sequence, owned);
        return;
    }
    if (answer->error_code != 0 && answer->generation == 0)
        return;
    if (opened && !owned->counted) {
        change(sequence, owned, 1, 0);
        owned->counted = true;
    } else if (!owned->counted) {
        owned->counted = true;
        owned->bytes = answer->state_bytes > INT64_MAX ? 0 : answer->state_bytes;
        if (answer->state_bytes > INT64_MAX)
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
    if (rc || (sequence && sequence->known && !sequence->closing) || (owned && owned->reserved) ||
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

/* --- counting the store */

static void
ask_at(struct cn_model_queue *queue, uint64_t in_ms)
{
    if (!queue->closed)
        cn_timer_set(cn_loop_wheel(queue->loop), &queue->owned.timer,
                     cn_loop_now_ms(queue->loop) + in_ms);
}

/* Puts what the count has found in the place of the numbers so far. */
static void
end_count(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;
    const uint64_t now = cn_loop_now_ms(queue->loop), took = now - owned->begun_ms;
    struct cn_owned_count *count;
    size_t cursor = 0;

    while ((count = cn_table_next(owned->counts, &cursor))) {
        cn_account_add(count->account, count->seen - count->sequences,
                       count->seen_bytes - count->bytes);
        count->sequences = count->seen;
        count->bytes = count->seen_bytes;
    }
    owned->counting = false;
    owned->rest_ms =
        now + (COUNT_TIMES * took > COUNT_SOON_MS ? COUNT_TIMES * took : COUNT_SOON_MS);
    ask_at(queue, COUNT_TIMES * took > COUNT_EVERY_MS ? COUNT_TIMES * took : COUNT_EVERY_MS);
    if (owned->doubted)
        cn_owned_recount(queue);
}

static void
count_page(struct cn_model_queue *queue, const struct cn_query_result *result)
{
    for (uint32_t i = 0; i < result->n_sequences; i++) {
        const struct cn_sequence_info *info = &result->sequences[i];
        struct cn_account *account =
            cn_accounts_of_sequence(queue->owned.accounts, cn_sequence_id_shown(info->id));
        struct cn_owned_count *count = account ? count_of(queue, account) : NULL;

        if (!count || (info->flags & (CN_INFO_CLOSED | CN_INFO_EXPIRED)))
            continue;
        count->seen++;
        count->seen_bytes += (int64_t)info->state_bytes;
    }
}

static void
on_page(struct cn_sequence_query *order, const struct cn_query_result *result)
{
    struct cn_owned_queue *owned = cn_container_of(order, struct cn_owned_queue, order);
    struct cn_model_queue *queue = cn_container_of(owned, struct cn_model_queue, owned);

    owned->asked = false;
    if (!result) {
        owned->counting = false;
        ask_at(queue, FAILED_MS);
        return;
    }
    count_page(queue, result);
    owned->at_len = result->next.len <= sizeof owned->at ? result->next.len : 0;
    memcpy(owned->at, result->next.ptr, owned->at_len);
    if (owned->at_len == 0 && order->worker == 0)
        end_count(queue);
    else
        ask_at(queue, PAGE_EVERY_MS);
}

static void
begin_count(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;
    struct cn_owned_count *count;
    size_t cursor = 0;

    while ((count = cn_table_next(owned->counts, &cursor)))
        count->seen = count->seen_bytes = 0;
    owned->counting = true;
    owned->doubted = false;
    owned->at_len = 0;
    owned->order.worker = 0;
    owned->begun_ms = cn_loop_now_ms(queue->loop);
}

/* Asks for the first page or the next one. A model without workers is not woken for it. */
static void
on_timer(struct cn_timer *timer)
{
    struct cn_owned_queue *owned = cn_container_of(timer, struct cn_owned_queue, timer);
    struct cn_model_queue *queue = cn_container_of(owned, struct cn_model_queue, owned);

    if (queue->closed || owned->asked || !cn_queue_choose_worker(queue, NULL))
        return;
    if (!owned->counting)
        begin_count(queue);
    owned->order.query = (struct cn_query){
        .op = CN_QUERY_LIST,
        .flags = CN_QUERY_OPEN,
        .limit = PAGE_RECORDS,
        .sequence_id = {owned->at, owned->at_len},
    };
    owned->order.on_done = on_page;
    owned->asked = true;
    cn_model_queue_query(queue, &owned->order);
}

void
cn_owned_recount(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;
    const uint64_t now = cn_loop_now_ms(queue->loop);
    const uint64_t in_ms =
        owned->rest_ms > now + COUNT_SOON_MS ? owned->rest_ms - now : COUNT_SOON_MS;

    if (!owned->accounts)
        return;
    if (owned->counting)
        owned->doubted = true;
    else if (!cn_timer_armed(&owned->timer) || owned->timer.deadline_ms > now + in_ms)
        ask_at(queue, in_ms);
}

void
cn_owned_open(struct cn_model_queue *queue, struct cn_accounts *accounts)
{
    queue->owned.accounts = accounts;
    cn_timer_init(&queue->owned.timer, on_timer);
    queue->owned.counts = cn_table_create(account_of);
}

void
cn_owned_worker_came(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;

    if (owned->accounts && !owned->asked && !cn_timer_armed(&owned->timer))
        ask_at(queue, 0);
}

void
cn_owned_close(struct cn_model_queue *queue)
{
    struct cn_owned_queue *owned = &queue->owned;
    struct cn_owned_count *count;
    size_t cursor = 0;

    if (!owned->accounts)
        return;
    cn_timer_cancel(&owned->timer);
    while ((count = cn_table_next(owned->counts, &cursor))) {
        cn_account_add(count->account, -count->sequences, -count->bytes);
        cn_free(count);
    }
    cn_table_destroy(owned->counts);
}
