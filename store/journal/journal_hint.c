/* store/journal/journal_hint.c - what is known of a key's value without looking for it
 * (cn_store_hint).
 *
 * Owned by the worker's thread. A trace says in which transaction its owner put the value, and what
 * that replaced. It holds as long as nobody else wrote the key since: another process, whose
 * transactions are read at each begin, or this one through cn_store_put and cn_store_remove. Of
 * those the number of the last one is noted by the key's hash, in so few places that a key may now
 * and then be taken for another one, which costs a look-up.
 */
#include "store/journal/journal_priv.h"

static uint64_t *
changed_at(struct cn_journal_store *js, uint32_t hash)
{
    return &js->changed[hash % CN_HINT_PLACES];
}

void
cn_journal_hint_stale(struct cn_journal_store *js, uint32_t hash, uint64_t txn)
{
    uint64_t *at = changed_at(js, hash);

    if (*at < txn)
        *at = txn;
}

void
cn_journal_hints_begin(struct cn_journal_store *js, uint64_t txn)
{
    if (js->hints_from < txn)
        js->hints_from = txn;
}

bool
cn_journal_hint_holds(struct cn_journal_store *js, const struct cn_store_hint *hint)
{
    return hint->txn >= js->hints_from && hint->txn > *changed_at(js, hint->hash);
}

enum cn_journal_place
cn_journal_hint_place(struct cn_journal_store *js, struct cn_str key,
                      const struct cn_store_hint *hint)
{
    const struct cn_journal_file *cur = cn_journal_cur(js), *old = cn_journal_old(js);

    if (hint->txn >= cur->first)
        return CN_JOURNAL_IN_CUR;
    if (old->first && hint->txn >= old->first && !cn_journal_is_drained(js, key))
        return CN_JOURNAL_IN_OLD;
    return CN_JOURNAL_IN_LMDB;
}
