/* access/account.c - the accounts of named keys. Any thread.
 *
 * The rate is a token bucket in one atomic number, the time at which the bucket is full again (the
 * generic cell rate algorithm): a request moves it on by the time that one token takes, and is
 * refused if it would then be further away than a whole bucket. So there is no timer that fills
 * buckets, and no lock around two numbers.
 *
 * The other limits are counters. A thread that takes a place adds first and looks then, so that of
 * two loops that want the last place one gets it at most. Numbers that belong together, such as
 * sequences and reservations, are not read as one: a key may then be refused a place that becomes
 * free at that moment, but never gets one too many. */
#include "access/account.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/containers/table.h"
#include "core/log/log.h"
#include "core/memory/mem.h"

#define SECOND_NS UINT64_C(1000000000)
#define TOLD_EVERY_US 10000000 /* a key's refusals make one line of the log in this time */

struct cn_account {
    char *name;
    _Atomic uint64_t interval_ns, bucket_ns; /* time of one token and of all of them; 0: no rate */
    _Atomic uint64_t rate, burst, concurrency, max_sequences, max_bytes;

    _Atomic uint64_t full_ns; /* when the bucket is full again */
    _Atomic uint64_t requests, in_flight;
    _Atomic int64_t sequences, reserved, bytes; /* for a moment one may be below 0 */
    _Atomic uint64_t refused[CN_N_ACCOUNT_LIMITS];
    _Atomic uint64_t told_us, refused_now; /* refusals since the log's last line */
};

struct cn_accounts {
    pthread_rwlock_t lock; /* for the table; a step does not need it */
    struct cn_table *by_name;
};

#define GET(field) atomic_load_explicit(&account->field, memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&account->field, value, memory_order_relaxed)
#define ADD(field, value) atomic_fetch_add_explicit(&account->field, value, memory_order_relaxed)

const char *
cn_account_limit_word(enum cn_account_limit limit)
{
    static const char *const words[] = {"rate", "concurrency", "maxNumSequence", "storedBytes"};

    return words[limit];
}

/* --- all accounts */

static struct cn_str
name_of(const void *item)
{
    return cn_str_from(((const struct cn_account *)item)->name);
}

struct cn_accounts *
cn_accounts_create(void)
{
    struct cn_accounts *accounts = cn_alloc(sizeof *accounts);

    pthread_rwlock_init(&accounts->lock, NULL);
    accounts->by_name = cn_table_create(name_of);
    return accounts;
}

void
cn_accounts_destroy(struct cn_accounts *accounts)
{
    struct cn_account *account;
    size_t cursor = 0;

    if (!accounts)
        return;
    while ((account = cn_table_next(accounts->by_name, &cursor))) {
        cn_free(account->name);
        cn_free(account);
    }
    cn_table_destroy(accounts->by_name);
    pthread_rwlock_destroy(&accounts->lock);
    cn_free(accounts);
}

struct cn_account *
cn_accounts_open(struct cn_accounts *accounts, struct cn_str name)
{
    struct cn_account *account;

    pthread_rwlock_wrlock(&accounts->lock);
    account = cn_table_find(accounts->by_name, name);
    if (!account) {
        account = cn_alloc(sizeof *account);
        memset(account, 0, sizeof *account);
        account->name = cn_strndup(name.ptr, name.len);
        cn_table_insert(accounts->by_name, account);
    }
    pthread_rwlock_unlock(&accounts->lock);
    return account;
}

struct cn_account *
cn_accounts_of_sequence(struct cn_accounts *accounts, struct cn_str id)
{
    const char *slash = id.len ? memchr(id.ptr, '/', id.len) : NULL;
    struct cn_account *account;

    if (!slash)
        return NULL;
    pthread_rwlock_rdlock(&accounts->lock);
    account = cn_table_find(accounts->by_name, (struct cn_str){id.ptr, (size_t)(slash - id.ptr)});
    pthread_rwlock_unlock(&accounts->lock);
    return account;
}

void
cn_account_set_limits(struct cn_account *account, const struct cn_key_limits *limits)
{
    const uint64_t burst = limits->rate && !limits->burst ? limits->rate : limits->burst;

    if (GET(rate) != limits->rate || GET(burst) != burst) {
        SET(rate, limits->rate);
        SET(burst, burst);
        SET(interval_ns, limits->rate ? SECOND_NS / limits->rate : 0);
        SET(bucket_ns, limits->rate ? SECOND_NS / limits->rate * burst : 0);
        SET(full_ns, 0); /* a time that the old rate has set says nothing about the new one */
    }
    SET(concurrency, limits->concurrency);
    SET(max_sequences, limits->sequences);
    SET(max_bytes, limits->stored_bytes);
}

/* --- refusals */

static uint64_t
shown(int64_t count)
{
    return count > 0 ? (uint64_t)count : 0;
}

/* Counts a refusal. A client can cause as many as it likes, so the log has a line for the first one
 * and then one for all of the next ten seconds. */
static void
note_refusal(struct cn_account *account, enum cn_account_limit limit, uint64_t now_us)
{
    uint64_t told_us = GET(told_us);

    ADD(refused[limit], 1);
    ADD(refused_now, 1);
    if (told_us && now_us < told_us + TOLD_EVERY_US)
        return;
    if (!atomic_compare_exchange_strong(&account->told_us, &told_us, now_us ? now_us : 1))
        return; /* another thread tells it */
    cn_log(CN_LOG_WARN, "event=audit key=%s refused=%" PRIu64 " limit=%s", account->name,
           atomic_exchange(&account->refused_now, 0), cn_account_limit_word(limit));
}

/* --- requests */

/* Takes a token. False: there is none, and `*wait_ns` is the time until there is one. */
static bool
take_token(struct cn_account *account, uint64_t now_ns, uint64_t *wait_ns)
{
    const uint64_t interval = GET(interval_ns), bucket = GET(bucket_ns);
    uint64_t full = GET(full_ns), next;

    if (!interval)
        return true;
    do {
        next = (full > now_ns ? full : now_ns) + interval;
        if (next > now_ns + bucket) {
            *wait_ns = next - bucket - now_ns;
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&account->full_ns, &full, next,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

int
cn_account_begin(struct cn_account *account, uint64_t now_us, uint32_t *retry_after_s,
                 struct cn_error *err)
{
    const uint64_t most = GET(concurrency), before = ADD(in_flight, 1);
    uint64_t wait_ns;

    if (most && before >= most) {
        cn_account_end(account);
        note_refusal(account, CN_ACCOUNT_CONCURRENCY, now_us);
        *retry_after_s = 1;
        return cn_fail(err, CN_E_KEY_LIMIT,
                       "the key %s has %" PRIu64 " requests under way, which is its limit "
                       "(concurrency); send the next one after an answer",
                       account->name, most);
    }
    if (!take_token(account, now_us * 1000, &wait_ns)) {
        cn_account_end(account);
        note_refusal(account, CN_ACCOUNT_RATE, now_us);
        *retry_after_s = (uint32_t)((wait_ns + SECOND_NS - 1) / SECOND_NS);
        return cn_fail(err, CN_E_KEY_LIMIT,
                       "the key %s may send %" PRIu64 " requests a second, and %" PRIu64
                       " at once (rate, burst); the next one in %" PRIu64 " ms",
                       account->name, GET(rate), GET(burst), wait_ns / 1000000 + 1);
    }
    ADD(requests, 1);
    return 0;
}

void
cn_account_end(struct cn_account *account)
{
    atomic_fetch_sub_explicit(&account->in_flight, 1, memory_order_relaxed);
}

/* --- sequences and their state */

int
cn_account_refuse_sequence(struct cn_account *account, uint64_t now_us, struct cn_error *err)
{
    note_refusal(account, CN_ACCOUNT_SEQUENCES, now_us);
    return cn_fail(err, CN_E_KEY_LIMIT,
                   "the key %s has %" PRIu64
                   " sequences open or about to open, and its limit is %" PRIu64
                   " (maxNumSequence); end one before you begin another",
                   account->name, shown(GET(sequences) + GET(reserved)), GET(max_sequences));
}

bool
cn_account_reserve(struct cn_account *account)
{
    const uint64_t most = GET(max_sequences);
    const int64_t before = ADD(reserved, 1) + GET(sequences);

    if (!most || before < (int64_t)most)
        return true;
    cn_account_unreserve(account);
    return false;
}

void
cn_account_unreserve(struct cn_account *account)
{
    atomic_fetch_sub_explicit(&account->reserved, 1, memory_order_relaxed);
}

int
cn_account_check_stored(struct cn_account *account, uint64_t now_us, struct cn_error *err)
{
    const uint64_t most = GET(max_bytes), now = shown(GET(bytes));

    if (!most || now < most)
        return 0;
    note_refusal(account, CN_ACCOUNT_STORED_BYTES, now_us);
    return cn_fail(err, CN_E_KEY_LIMIT,
                   "the sequences of the key %s hold %" PRIu64 " bytes of state, and its limit is "
                   "%" PRIu64 " (storedBytes); end some of them",
                   account->name, now, most);
}

void
cn_account_add(struct cn_account *account, int64_t sequences, int64_t bytes)
{
    ADD(sequences, sequences);
    ADD(bytes, bytes);
}

/* --- what is shown */

static struct cn_account_use
use_of(struct cn_account *account)
{
    struct cn_account_use use = {
        .name = account->name,
        .limits = {.rate = GET(rate),
                   .burst = GET(burst),
                   .concurrency = GET(concurrency),
                   .sequences = GET(max_sequences),
                   .stored_bytes = GET(max_bytes)},
        .requests = GET(requests),
        .in_flight = GET(in_flight),
        .sequences = shown(GET(sequences)),
        .stored_bytes = shown(GET(bytes)),
    };

    for (int i = 0; i < CN_N_ACCOUNT_LIMITS; i++)
        use.refused[i] = GET(refused[i]);
    return use;
}

void
cn_accounts_each(struct cn_accounts *accounts,
                 void (*visit)(void *ctx, const struct cn_account_use *use), void *ctx)
{
    struct cn_account *account;
    size_t cursor = 0;

    pthread_rwlock_rdlock(&accounts->lock);
    while ((account = cn_table_next(accounts->by_name, &cursor))) {
        const struct cn_account_use use = use_of(account);

        visit(ctx, &use);
    }
    pthread_rwlock_unlock(&accounts->lock);
}
