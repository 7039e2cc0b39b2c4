/* access/account.h - the account of a named key: what it uses at the moment, and what it may use.
 *
 * The requests of all loops count on one account, with atomic numbers and without a lock. So a
 * limit holds for the whole server and not for each loop, and it costs a step a few additions in a
 * cache line of the key. An account stays in place until cn_accounts_destroy(), also when its key
 * leaves the file. Its name is the key's, so a key that is replaced under the same name keeps the
 * account, as it keeps its sequences.
 *
 * Sequences and stored bytes are counted by the model queues (scheduler/sequence/owned.c).
 */
#ifndef CN_ACCESS_ACCOUNT_H
#define CN_ACCESS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

/* When to try again if all places for sequences, or all bytes, are in use: some of them may have
 * ended or expired by then. */
#define CN_ACCOUNT_RETRY_S 10
#define CN_KEY_RATE_MAX 1000000              /* requests a second; also the largest burst */
#define CN_KEY_COUNT_MAX 1000000000          /* of concurrency and sequences */
#define CN_KEY_BYTES_MAX (UINT64_C(1) << 50) /* of state */

/* The limits of a key; 0: none. */
struct cn_key_limits {
    uint64_t rate;         /* requests a second */
    uint64_t burst;        /* requests that may come at once; 0: as many as the rate */
    uint64_t concurrency;  /* requests that are not answered yet */
    uint64_t sequences;    /* open sequences */
    uint64_t stored_bytes; /* bytes of state of these sequences */
};

enum cn_account_limit {
    CN_ACCOUNT_RATE,
    CN_ACCOUNT_CONCURRENCY,
    CN_ACCOUNT_SEQUENCES,
    CN_ACCOUNT_STORED_BYTES,
    CN_N_ACCOUNT_LIMITS
};
/* The member of the key file: "rate", "concurrency", "maxNumSequence", "storedBytes". */
const char *cn_account_limit_word(enum cn_account_limit limit);

struct cn_account;
struct cn_accounts;

struct cn_accounts *cn_accounts_create(void);
/* NULL is allowed. */
void cn_accounts_destroy(struct cn_accounts *accounts);
/* Any thread: the account of that name, which is made if there is none yet. */
struct cn_account *cn_accounts_open(struct cn_accounts *accounts, struct cn_str name);
/* Any thread: the account of the owner of a sequence, whose id begins with the owner's name and a
 * slash. NULL: there is none. */
struct cn_account *cn_accounts_of_sequence(struct cn_accounts *accounts, struct cn_str id);
/* Any thread: sets the limits. */
void cn_account_set_limits(struct cn_account *account, const struct cn_key_limits *limits);

/* Any thread, for each request: takes a place among the requests under way. CN_E_KEY_LIMIT: it is
 * one too many, and nothing is taken. `*retry_after_s`: when to try again. `now_us`: the time of
 * cn_now_us(). */
int cn_account_begin(struct cn_account *account, uint64_t now_us, uint32_t *retry_after_s,
                     struct cn_error *err);
/* The request has its answer: gives the place back. */
void cn_account_end(struct cn_account *account);

/* Takes a place for a sequence that a step may open. False: the key has no more of them, and
 * nothing is taken. */
bool cn_account_reserve(struct cn_account *account);
/* The step was answered: gives that place back. If the sequence is open, add it before. */
void cn_account_unreserve(struct cn_account *account);
/* Refuses a step that needs a place for its sequence: CN_E_KEY_LIMIT. */
int cn_account_refuse_sequence(struct cn_account *account, uint64_t now_us, struct cn_error *err);
/* May the key do a step, which may make the state of its sequence larger? CN_E_KEY_LIMIT. */
int cn_account_check_stored(struct cn_account *account, uint64_t now_us, struct cn_error *err);
/* Open sequences and bytes of state came, or went if the numbers are negative. */
void cn_account_add(struct cn_account *account, int64_t sequences, int64_t bytes);

struct cn_account_use {
    const char *name;
    struct cn_key_limits limits;
    uint64_t requests; /* that rate and concurrency let in */
    uint64_t in_flight, sequences, stored_bytes;
    uint64_t refused[CN_N_ACCOUNT_LIMITS];
};
/* Any thread: calls `visit` for each account, in no particular order. It must not open any. */
void cn_accounts_each(struct cn_accounts *accounts,
                      void (*visit)(void *ctx, const struct cn_account_use *use), void *ctx);

#endif
