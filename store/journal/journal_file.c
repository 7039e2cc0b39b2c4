/* store/journal/journal_file.c - the two files of a journal: read to their end, appended to.
 * Owned by the worker's thread.
 *
 * All this happens inside LMDB's write transaction, which only one process has at a time, so
 * no other process writes meanwhile.
 *
 * The life of a file: cn_journal_start writes a header with the number of its first transaction;
 * from then on it is the newer file, and cn_journal_append adds transactions. When it is large
 * enough, the other file is started and this one becomes the older one, which is drained
 * (journal_drain.c). When all of it is in LMDB it counts for nothing, until it is started again. It
 * is never truncated; the checksums separate its content from what an earlier use left behind.
 *
 * - Each process keeps the offset of the end (`tail`) and an index of the newest entries.
 *   cn_journal_catch_up brings both up to date: it looks whether the next transaction is whole
 *   behind the tail, and reads on until there is none. This look costs little if no other process
 *   has written.
 * - An append is: journal, fdatasync with `power`, ledger. If any of them fails, the transaction's
 *   head is overwritten with zeros, so that the part that was written is never taken for a
 *   transaction.
 * - `owed` and `freed` say by how much LMDB will grow and shrink when the file is drained. Each
 *   entry that becomes the newest of its key is counted in, and counted out when a newer one
 *   replaces it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "store/journal/journal_priv.h"

/* The bytes of a file that are read in one hold of the lock, which takes a few milliseconds. */
#define SCAN_BYTES (1u << 20)

/* --- what a file holds --- */

void
cn_journal_count_owed(struct cn_journal_file *file, const struct cn_journal_entry *entry, int sign)
{
    const bool removed = entry->flags & CN_JOURNAL_REMOVED;
    int64_t more = (removed ? 0 : (int64_t)cn_lmdb_cost(entry->value.len)) - (int64_t)entry->stored;

    if (more > 0)
        file->owed += sign * more;
    else
        file->freed -= sign * more;
}

/* Counts an entry that became the newest of its key, or with -1 one that no longer is. */
static void
count_entry(struct cn_journal_file *file, const struct cn_journal_entry *entry, int sign)
{
    const uint64_t bytes = cn_journal_entry_bytes(entry);

    cn_journal_count_owed(file, entry, sign);
    file->live_bytes += sign > 0 ? bytes : -bytes;
}

bool
cn_journal_is_drained(struct cn_journal_store *js, struct cn_str key)
{
    return js->drained_key_len && js->drained_below == cn_journal_old(js)->first &&
           cn_journal_key_compare(key, (struct cn_str){js->drained_key, js->drained_key_len}) <= 0;
}

/* All keys of a file share `common` bytes with the first one; a new key may make that shorter. */
static void
narrow_common(struct cn_journal_file *file, struct cn_str key, uint64_t at)
{
    struct cn_journal_entry first;
    uint64_t n = 0;

    if (file->first_key == 0) {
        file->first_key = at;
        file->common = key.len;
        return;
    }
    cn_journal_entry_at(file->map + file->first_key, &first);
    while (n < file->common && n < key.len && key.ptr[n] == first.key.ptr[n])
        n++;
    file->common = n;
}

/* The entry at `at` is now the newest of its key: updates the index and what is owed. The entry
 * that it replaces is in the same file, or in the older one, where it will not be drained any more.
 */
static void
publish(struct cn_journal_store *js, struct cn_journal_file *file, uint32_t hash,
        const struct cn_journal_entry *entry, uint64_t at)
{
    struct cn_journal_file *old = cn_journal_old(js);
    uint64_t before = cn_journal_index_set(&file->index, file->map, hash, entry->key, at);
    struct cn_journal_entry was;

    if (before) {
        cn_journal_entry_at(file->map + before, &was);
        count_entry(file, &was, -1);
        return;
    }
    narrow_common(file, entry->key, at);
    if (file == old || !old->first ||
        !(before = cn_journal_index_find(&old->index, old->map, hash, entry->key)) ||
        cn_journal_is_drained(js, entry->key))
        return;
    cn_journal_entry_at(old->map + before, &was); /* it will not be drained any more */
    cn_journal_count_owed(old, &was, -1);
}

/* Like publish(), for the newer file and with a hint about the replaced entry, so that no other
 * entry has to be read. */
static void
publish_known(struct cn_journal_store *js, const struct cn_journal_put *put,
              const struct cn_journal_entry *entry, uint64_t at)
{
    struct cn_journal_file *cur = cn_journal_cur(js);
    const enum cn_journal_place place = cn_journal_hint_place(js, entry->key, &put->was);
    const uint64_t from = place == CN_JOURNAL_IN_CUR ? (uint64_t)put->was.at * 8 : 0;
    const struct cn_journal_entry was = {
        .key = entry->key, .value.len = put->was.bytes, .stored = put->was.stored};

#ifdef CN_DEBUG
    cn_assert(cn_journal_index_find(&cur->index, cur->map, put->hash, entry->key) == from);
#endif
    cn_journal_index_move(&cur->index, put->hash, from, at);
    if (place == CN_JOURNAL_IN_CUR) {
        count_entry(cur, &was, -1);
        return;
    }
    narrow_common(cur, entry->key, at);
    if (place == CN_JOURNAL_IN_OLD)
        cn_journal_count_owed(cn_journal_old(js), &was, -1);
}

/* Publishes the entries of the next transaction, which another process wrote, or this one before it
 * was restarted. */
static void
publish_txn(struct cn_journal_store *js, struct cn_journal_file *file, uint32_t n_entries)
{
    uint64_t at = file->tail + CN_JOURNAL_TXN_BYTES, bytes;
    struct cn_journal_entry entry;

    for (; n_entries > 0; n_entries--, at += bytes) {
        uint32_t hash;

        bytes = cn_journal_entry_at(file->map + at, &entry);
        hash = cn_journal_hash(entry.key);
        count_entry(file, &entry, 1);
        publish(js, file, hash, &entry, at);
        cn_journal_hint_stale(js, hash, file->next);
    }
}

/* Reads transactions from the tail on, at most SCAN_BYTES in one hold of the lock. `end` gets what
 * was found behind the last one; CN_JOURNAL_COMPLETE means that there is more to read. Returns 1 if
 * there were transactions, 0 if not, or an error. At the end of the known size it looks once
 * whether the file has grown. */
static int
file_scan(struct cn_journal_store *js, struct cn_journal_file *file, enum cn_journal_found *end,
          struct cn_error *err)
{
    const uint64_t stop = file->tail + SCAN_BYTES;
    struct cn_journal_txn txn;
    bool looked = false;
    int rc, n = 0;

    for (;;) {
        *end = cn_journal_look(cn_journal_bytes(file), file->tail, file->next, file->seed, &txn);
        if (*end == CN_JOURNAL_COMPLETE && file->tail >= stop)
            return n;
        if (*end == CN_JOURNAL_COMPLETE) {
            publish_txn(js, file, txn.n_entries);
            file->ledger_tail += cn_ledger_entry_bytes(txn.n_entries);
            file->ledger_behind = true;
            file->last_at = file->tail;
            file->tail += txn.bytes;
            file->seed = txn.seed;
            file->next++;
            n = 1;
            continue;
        }
        if (looked || (*end == CN_JOURNAL_NONE && file->tail + CN_JOURNAL_TXN_BYTES <= file->size))
            return n;
        if ((rc = cn_journal_file_look(js, file, err)) != 0)
            return rc;
        looked = true;
    }
}

void
cn_journal_file_reset(struct cn_journal_file *file, uint64_t first, uint64_t seed)
{
    cn_journal_index_reset(&file->index);
    file->first = file->next = first;
    file->seed = seed;
    file->tail = CN_JOURNAL_HEADER_BYTES;
    file->live_bytes = file->first_key = file->common = file->last_at = 0;
    file->owed = file->freed = 0;
    file->ledger_tail = CN_LEDGER_HEADER_BYTES;
    file->ledger_seed = cn_ledger_seed(first, seed);
    file->ledger_behind = false;
}

/* The first transaction's number in the header, without a check of the header: it changes whenever
 * the file is begun anew, which is how other processes notice. */
static uint64_t
header_word(const struct cn_journal_file *file)
{
    uint64_t word = 0;

    if (file->size >= CN_JOURNAL_HEADER_BYTES)
        memcpy(&word, file->map + 8, sizeof(word));
    return word;
}

/* Reads the header: which use of the file is this, and does it still count? It does not if LMDB has
 * all transactions from its first one on. */
static int
file_identify(struct cn_journal_store *js, struct cn_journal_file *file, struct cn_error *err)
{
    static const char zeros[CN_JOURNAL_HEADER_BYTES];
    uint64_t first = 0, seed = 0;
    int rc;

    if ((rc = cn_journal_file_look(js, file, err)) != 0)
        return rc;
    file->known_first = header_word(file);
    file->bad_header = !cn_journal_get_header(cn_journal_bytes(file), &first, &seed) &&
                       file->size >= CN_JOURNAL_HEADER_BYTES &&
                       memcmp(file->map, zeros, sizeof(zeros)) != 0;
    if (file->bad_header) /* cn_journal_verify finds out what it was */
        first = 0;
    if (first < js->drained_below)
        first = 0;
    if (first != file->first || first == 0) {
        cn_journal_file_reset(file, first, seed);
        cn_journal_hints_begin(
            /* earlier transactions may have been missed, so older hints are not valid */
            js, first);
    }
    return 0;
}

int
cn_journal_identify(struct cn_journal_store *js, struct cn_error *err)
{
    int rc;

    if ((rc = cn_journal_read_note(js, err)) != 0)
        return rc;
    /* A repair has moved transactions to LMDB that this process may not have read. */
    cn_journal_hints_begin(js, js->salvaged_below);
    for (unsigned i = 0; i < 2; i++)
        if ((rc = file_identify(js, &js->files[i], err)) != 0)
            return rc;
    js->cur = js->files[1].first > js->files[0].first;
    js->version = cn_lmdb_version(js->lmdb);
    return 0;
}

/* Most calls find nothing new and read two header words and one transaction head. Headers and notes
 * are read again only if LMDB's version changed (a drain or a new key was committed) or a file was
 * begun anew. The older file comes first, since the newer one replaces its entries. */
int
cn_journal_catch_up(struct cn_journal_store *js, bool *more, struct cn_error *err)
{
    struct cn_journal_file *cur = cn_journal_cur(js), *old = cn_journal_old(js);
    enum cn_journal_found end;
    int rc = 0;

    if (js->behind || js->version != cn_lmdb_version(js->lmdb) ||
        cur->known_first != header_word(cur) || old->known_first != header_word(old) ||
        old->size < CN_JOURNAL_HEADER_BYTES) {
        if ((rc = cn_journal_identify(js, err)) != 0)
            return rc;
        if (cn_journal_old(js)->first && (rc = file_scan(js, cn_journal_old(js), &end, err)) < 0)
            return rc;
        js->unsettled = js->unsettled || rc > 0;
        *more = js->behind = rc > 0 && end == CN_JOURNAL_COMPLETE;
        if (*more)
            return 0;
    }
    cur = cn_journal_cur(js);
    if (cur->first) {
        if ((rc = file_scan(js, cur, &end, err)) < 0)
            return rc;
        js->unsettled = js->unsettled || rc > 0;
        *more = js->behind = end == CN_JOURNAL_COMPLETE;
        if (*more)
            return 0;
    }
    *more = js->behind = false;
    js->opened = true;
    return 0;
}

/* Earlier transactions were settled by the process that appended after them, or are left to the
 * drain. An entry of the last one that is still the newest of its key is compared with LMDB: a new
 * key is listed there, a removed one removed. */
int
cn_journal_settle(struct cn_journal_store *js, struct cn_error *err)
{
    struct cn_journal_file *cur = cn_journal_cur(js),
                           *file = cur->last_at ? cur : cn_journal_old(js);
    struct cn_journal_entry entry;
    struct cn_str stored;
    uint64_t at = file->last_at;
    struct cn_journal_txn txn;
    int rc = 0;

    if (!file->first || at == 0)
        return 0;
    txn.n_entries = cn_journal_txn_entries(file->map + at);
    at += CN_JOURNAL_TXN_BYTES;
    for (; rc == 0 && txn.n_entries > 0; txn.n_entries--) {
        uint64_t here = at;

        at += cn_journal_entry_at(file->map + at, &entry);
        if (!entry.flags || !cn_journal_index_has(&file->index, cn_journal_hash(entry.key), here))
            continue;
        if ((rc = js->lmdb->ops->get(js->lmdb, entry.key, &stored, err)) != 0)
            break;
        if ((entry.flags & CN_JOURNAL_REMOVED) && stored.ptr)
            rc = js->lmdb->ops->remove(js->lmdb, entry.key, err);
        else if (!(entry.flags & CN_JOURNAL_REMOVED) && !stored.ptr)
            rc = js->lmdb->ops->put(js->lmdb, entry.key, CN_STR(""), err);
        else
            continue;
        js->dirty = true;
    }
    return rc;
}

/* --- writing --- */

int
cn_journal_write_at(int fd, const char *bytes, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        bytes += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

int
cn_journal_start(struct cn_journal_store *js, unsigned i, struct cn_error *err)
{
    struct cn_journal_file *file = &js->files[i], *cur = cn_journal_cur(js);
    uint64_t first = cur->first ? cur->next : js->drained_below, seed;
    char header[CN_JOURNAL_HEADER_BYTES], ledger[CN_LEDGER_HEADER_BYTES];
    int rc;

    cn_assert(!file->first);
    if ((rc = cn_journal_file_provide(js, file, CN_JOURNAL_GROW_BYTES, err)) != 0)
        return rc;
    if ((rc = cn_journal_ledger_provide(js, file, CN_LEDGER_GROW_BYTES, err)) != 0)
        return rc;
    seed = cn_journal_put_header(header, first);
    cn_ledger_put_header(ledger, first, seed, js->boot);
    /* The ledger comes first. If the process dies between the two writes, the ledger says that
     * there is nothing, which is true. With `power` it also comes first to the disk: after a power
     * cut a journal without its ledger would look damaged. */
    rc = cn_journal_write_at(file->ledger_fd, ledger, sizeof(ledger), 0);
    if (rc == 0 && js->sync && fdatasync(file->ledger_fd) != 0)
        rc = errno;
    if (rc == 0)
        rc = cn_journal_write_at(file->fd, header, sizeof(header), 0);
    if (rc != 0)
        return cn_lmdb_fail_errno(js->lmdb, rc, "write the journal", err);
    cn_journal_file_reset(file, first, seed);
    file->known_first = header_word(file);
    js->cur = i;
    cn_journal_pass(js, CN_STORE_SWITCHED);
    return 0;
}

/* Publishes an entry of the transaction that was just appended. It is read from the transaction's
 * buffer, which is in the processor's cache; the bytes in the file may not be mapped yet. */
static void
publish_put(struct cn_journal_store *js, const struct cn_journal_put *put)
{
    struct cn_journal_file *cur = cn_journal_cur(js);
    struct cn_journal_entry entry;

    if (js->pending.n < js->n_puts && !cn_journal_index_has(&js->pending, put->hash, put->at))
        return; /* a later entry of the same transaction has the key */
    cn_journal_entry_at(js->txn.data + put->at, &entry);
    count_entry(cur, &entry, 1);
    if (put->was.txn)
        publish_known(js, put, &entry, cur->tail + put->at);
    else
        publish(js, cur, put->hash, &entry, cur->tail + put->at);
}

/* Writes a ledger entry for the transaction at `txn`. `at` is the transaction's offset in the
 * journal, `number` its number, and `to` the offset in the ledger. 0 or an errno. */
static int
ledger_write(struct cn_journal_store *js, struct cn_journal_file *file, const char *txn,
             uint64_t at, uint64_t number, uint64_t to)
{
    const uint32_t n = cn_journal_txn_entries(txn);
    struct cn_ledger_entry about = {
        .number = number,
        .at = at,
        .bytes = cn_journal_txn_bytes(txn),
        .sum = cn_journal_txn_sum(txn),
        .version = cn_lmdb_version(js->lmdb),
        .n_keys = n,
    };
    const char *from = txn + CN_JOURNAL_TXN_BYTES;
    struct cn_journal_entry entry;

    cn_ledger_begin(&js->ledger, &about);
    for (uint32_t i = 0; i < n; i++) {
        from += cn_journal_entry_at(from, &entry);
        cn_ledger_add_key(&js->ledger, entry.key);
    }
    cn_ledger_end(&js->ledger, file->ledger_seed);
    if (js->ledger.failed)
        return ENOMEM;
    return cn_journal_write_at(file->ledger_fd, js->ledger.data, js->ledger.len, to);
}

/* Does the ledger have a whole entry for the last transaction that another process wrote, which
 * must be the last one of the file? `at` gets the offset of that entry. */
static bool
ledger_has_last(struct cn_journal_store *js, const struct cn_journal_file *file, uint64_t *at)
{
    const uint32_t n_keys = cn_journal_txn_entries(file->map + file->last_at);
    const size_t bytes = cn_ledger_entry_bytes(n_keys);
    struct cn_ledger_entry found;
    char *entry;

    *at = file->ledger_tail - bytes;
    cn_buf_reset(&js->ledger);
    entry = cn_buf_reserve(&js->ledger, bytes);
    return entry && pread(file->ledger_fd, entry, bytes, (off_t)*at) == (ssize_t)bytes &&
           cn_ledger_look((struct cn_str){entry, bytes}, 0, file->next - 1, file->ledger_seed,
                          &found);
}

/* The process that appended last may have died between the journal and the ledger, or in the middle
 * of the ledger's entry. Then this one writes the entry. */
static int
ledger_catch_up(struct cn_journal_store *js, struct cn_journal_file *file)
{
    uint64_t at;

    file->ledger_behind = false;
    if (ledger_has_last(js, file, &at))
        return 0;
    return ledger_write(js, file, file->map + file->last_at, file->last_at, file->next - 1, at);
}

/* The ledger's entry is written after the sync. Without it, the process that appended last may have
 * died before its fdatasync, and what it wrote must not be answered yet. */
int
cn_journal_sync_last(struct cn_journal_store *js, struct cn_error *err)
{
    struct cn_journal_file *cur = cn_journal_cur(js),
                           *file = cur->last_at ? cur : cn_journal_old(js);
    uint64_t at;

    if (!js->sync || !file->first || file->last_at == 0 || ledger_has_last(js, file, &at) ||
        fdatasync(file->fd) == 0)
        return 0;
    return cn_lmdb_fail_errno(js->lmdb, errno, "write the journal", err);
}

int
cn_journal_append(struct cn_journal_store *js, struct cn_error *err)
{
    static const char zeros[CN_JOURNAL_TXN_BYTES];
    struct cn_journal_file *cur = cn_journal_cur(js);
    const uint64_t entry = cn_ledger_entry_bytes(js->n_puts);
    uint64_t seed;
    int rc;

    seed = cn_journal_seal(&js->txn, js->n_puts, cur->next, cur->seed);
    if ((rc = cn_journal_file_provide(js, cur, cur->tail + js->txn.len, err)) != 0) {
        js->crowded = true;
        return rc;
    }
    if ((rc = cn_journal_ledger_provide(js, cur, cur->ledger_tail + entry, err)) != 0) {
        js->crowded = true;
        return rc;
    }
    rc = cur->ledger_behind ? ledger_catch_up(js, cur) : 0;
    if (rc == 0)
        rc = cn_journal_write_at(cur->fd, js->txn.data, js->txn.len, cur->tail);
    if (rc == 0 && js->sync && fdatasync(cur->fd) != 0)
        rc = errno;
    if (rc == 0)
        rc = ledger_write(js, cur, js->txn.data, cur->tail, cur->next, cur->ledger_tail);
    if (rc != 0) { /* the part that was written must not become whole by later bytes */
        cn_journal_write_at(cur->fd, zeros, sizeof(zeros), cur->tail);
        js->crowded = rc == ENOSPC || rc == EDQUOT;
        return cn_lmdb_fail_errno(js->lmdb, rc, "write the journal", err);
    }
    for (uint32_t i = 0; i < js->n_puts; i++)
        publish_put(js, &js->puts[i]);
    cur->tail += js->txn.len;
    cur->ledger_tail += entry;
    cur->seed = seed;
    cur->next++;
    return 0;
}
