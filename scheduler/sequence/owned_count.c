/* scheduler/sequence/owned_count.c - counts the sequences of named keys in a store. On the queue's
 * loop.
 *
 * A count lists the sequences in pages between other work, and steps go on meanwhile: a change of
 * an id that the list has passed is added to the new numbers, and any other change will be found by
 * the list. What remains is what a second worker commits while a page is read; the next count has
 * it. */
#include <string.h>

#include "access/account.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/sequence/owned_priv.h"

#define PAGE_RECORDS 2000 /* as many as a worker looks at for one query; a few milliseconds */
#define PAGE_EVERY_MS 50  /* so a count takes a tenth of one worker's time at most */
#define FAILED_MS 5000
#define COUNT_EVERY_MS 60000
#define COUNT_TIMES 20

static struct cn_str
account_of(const void *item)
{
    const struct cn_owned_count *count = item;

    return (struct cn_str){(const char *)&count->account, sizeof(struct cn_account *)};
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
        now + (COUNT_TIMES * took > CN_OWNED_SOON_MS ? COUNT_TIMES * took : CN_OWNED_SOON_MS);
    cn_owned_ask_at(queue,
                    COUNT_TIMES * took > COUNT_EVERY_MS ? COUNT_TIMES * took : COUNT_EVERY_MS);
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
        struct cn_owned_count *count = account ? cn_owned_count_of(queue, account) : NULL;

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
        cn_owned_ask_at(queue, FAILED_MS);
        return;
    }
    count_page(queue, result);
    owned->at_len = result->next.len <= sizeof owned->at ? result->next.len : 0;
    memcpy(owned->at, result->next.ptr, owned->at_len);
    if (owned->at_len == 0 && order->worker == 0)
        end_count(queue);
    else
        cn_owned_ask_at(queue, PAGE_EVERY_MS);
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
cn_owned_open(struct cn_model_queue *queue, struct cn_accounts *accounts)
{
    queue->owned.accounts = accounts;
    cn_timer_init(&queue->owned.timer, on_timer);
    queue->owned.counts = cn_table_create(account_of);
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
