/* store/journal/journal_hint.c - decides whether a store location hint (cn_store_hint) is still
 * valid. Owned by the worker's thread.
 *
 * To replace a value, the store must know how large the old one is and whether LMDB has it, because
 * the limit counts the growth. Finding that out costs several cache misses among a million
 * sequences. But a worker that has a sequence's state in memory put the value itself a moment ago,
 * so it keeps what the store knew then: the number of the transaction, and the offset, size and
 * cost of the value.
 *
 * Such a hint is valid as long as nobody else wrote the key. That can be another process, whose
 * transactions are read at each begin, or this process through cn_store_put and cn_store_remove,
 * which have no hint. Each of those writes notes its transaction's number in `changed`, at a place
 * chosen by the key's hash. A hint is valid if its transaction is newer than the number at its
 * key's place. Several keys share a place, so a valid hint is sometimes refused; that costs a
 * look-up and nothing else.
 *
 * Example: transaction 7 puts key A, and the hint says 7. Another worker writes A in transaction 9.
 * At the next begin this process reads transaction 9 and notes 9 at A's place. 7 is not above 9, so
 * the hint is refused.
 *
 * When another process has begun a file anew, some transactions may have been missed. `hints_from`
 * is then raised to that file's first transaction, and all older hints are refused. The same holds
 * after a repair (journal_salvage.c), which leaves no file that is in use. */
#include "core/tuning/tuning.h"
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
    return cn_tuned(CN_TUNING_STORE_HINTS) && hint->txn >= js->hints_from &&
           hint->txn > *changed_at(js, hint->hash);
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
