/* store/valkey/valkey_priv.h - what the files of the shared store's implementation share. Worker's
 * thread.
 *
 * Keys in the server. BB is a number from 00 to 3f that the id's hash gives, the bucket:
 *   {PREFIX/MODEL/VERSION/BB}:ID     the entry of the sequence ID: a stamp and the record
 *   {PREFIX/MODEL/VERSION/BB}        the index: a sorted set of the bucket's ids, all with score 0
 *   {PREFIX/MODEL/VERSION/BB}times   a sorted set of the bucket's ids. The score is the time at
 *                                    which the sweeper looks at the entry, in ms since 1970
 *   {PREFIX/MODEL/VERSION/BB}fence   the highest fencing number with which it was swept
 *   {PREFIX/MODEL/VERSION/00}layout  in which layout the states are, see valkey_layout.c
 *   {PREFIX/MODEL/VERSION/00}lease   a hash: which worker sweeps the version, and until when
 * The text in braces decides on which server of a cluster a key lies. So all keys of a bucket are
 * on one server, as a script needs, while a model's sequences are spread over the servers. The
 * number of a bucket is also that of its place in the link (link.h).
 *
 * Stamp, numbers little-endian:
 *   offset  0  u8   version of the layout, 2
 *           1  u8   bit 0: the record is a tombstone
 *           2  u64  generation
 *          10  u64  step
 *          18  u64  last_job
 *          26  u64  number of the write, which tells a write that is sent twice from another one
 * The first 26 bytes are what a conditional write compares. */
#ifndef CN_STORE_VALKEY_VALKEY_PRIV_H
#define CN_STORE_VALKEY_VALKEY_PRIV_H

#include "core/memory/arena.h"
#include "core/time/clock.h"
#include "store/link/link.h"

#define CN_VALKEY_BUCKETS 64
#define CN_VALKEY_STAMP_BYTES 34
#define CN_VALKEY_SEEN_BYTES 26
#define CN_VALKEY_LAYOUT 2
#define CN_VALKEY_TOMBSTONE 1
#define CN_VALKEY_LOOK_MS 86400000 /* the sweeper looks at each entry at least this often */

/* The ends of keys that are not of an entry. */
#define CN_VALKEY_INDEX CN_STR("")
#define CN_VALKEY_TIMES CN_STR("times")
#define CN_VALKEY_FENCE CN_STR("fence")
#define CN_VALKEY_LEASE CN_STR("lease")
#define CN_VALKEY_LAYOUT_KEY CN_STR("layout")

/* What was read under a key. All of it lies in the transaction's arena. */
struct cn_valkey_read {
    struct cn_str key, value; /* value.ptr is NULL if there is no such key */
    struct cn_store_seen seen;
    bool done; /* `value` or `rc` is final */
    int rc;    /* not 0: it could not be read */
    char why[256];
};

/* A key that the transaction writes. */
struct cn_valkey_write {
    struct cn_str key;
    unsigned bucket; /* of the key */
    struct cn_store_seen seen;
    size_t at, len;      /* stamp and record in `values`; len is 0: the key is removed */
    bool tombstone;      /* what is written is one */
    bool may_remove;     /* if the server is full, the key is removed instead */
    bool done;           /* `outcome` is final */
    bool unsure;         /* an attempt got no reply: the entry may have been written and replaced */
    uint64_t number;     /* the number of the write, which its stamp has */
    uint64_t look_at_ms; /* when the sweeper is to look at it */
    enum cn_store_outcome outcome, *tell;
};

/* An id that the sweeper has looked at, and when somebody is to look again. */
struct cn_valkey_later {
    unsigned bucket;
    uint64_t at_ms;
    size_t len;
    char id[CN_STORE_KEY_MAX];
};

/* An id of the listing, in the order of ids. */
struct cn_valkey_listed {
    struct cn_str id, prefix;
};

/* One round trip of a commit. */
struct cn_valkey_sending {
    struct cn_valkey_store *vs;
    uint32_t *sent;  /* in the arena: the writes that it carries, by their index */
    uint32_t *calls; /* in the arena: where in `sent` the writes of each call end */
    uint32_t n, n_calls;
    bool alone;           /* each step gets a call of its own */
    bool passing;         /* another server, or a later attempt, may take what this one did not */
    bool split;           /* the keys of a call are on two servers */
    struct cn_error *err; /* why a write has failed */
};

struct cn_valkey_store {
    struct cn_store base;
    struct cn_valkey_link link;
    struct cn_buf head;    /* "{PREFIX/MODEL/VERSION/" */
    struct cn_arena arena; /* memory of the transaction, freed with it */
    struct cn_valkey_read *reads;
    /* The first n_filled reads have been made. A look-up begins at next_read. */
    uint32_t n_reads, n_filled, cap_reads, next_read;
    struct cn_valkey_write *writes;
    uint32_t n_writes, cap_writes;
    struct cn_buf values; /* stamps and records of the writes */
    bool open, writing;
    bool unconditional; /* CONTINUO_TEST_UNCONDITIONAL: tests show with it that they can fail */
    struct {            /* what the next write expects to find */
        bool given;
        struct cn_store_seen seen;
        enum cn_store_outcome *tell;
    } expected;
    uint64_t next_number;            /* the next write gets this number; begins at random */
    struct cn_valkey_listed *listed; /* in the arena */
    uint32_t n_listed, next_listed;
    struct cn_str listed_from;
    bool listed_all; /* nothing follows `listed` */
    uint64_t count, counted_ms;
    struct cn_store_activity own, *activity; /* its own one, or that of the store beside it */
    struct {                                 /* a commit that was sent and not waited for */
        bool sent;                           /* it was begun with cn_valkey_send */
        bool begun;                          /* its commands have left */
        uint64_t begun_us, deadline_us;
        struct cn_valkey_sending trip;
        struct cn_error err;
    } away;
    struct {
        uint64_t owner, fence; /* fence 0: this worker does not hold the lease */
        uint64_t met;          /* the highest fencing number by which this worker was refused */
        uint64_t ask_ms;       /* cn_now_ms(): when it asks for the lease again */
        struct cn_valkey_later *later; /* for the next call */
        uint32_t n_later;
    } sweep;
};

struct cn_valkey_store *cn_valkey_of(struct cn_store *store);

/* valkey_trip.c */
/* Turns an error reply into an error: CN_E_STORE_UNREACHABLE if another server or a later attempt
 * may succeed; then the connection must be dropped. */
int cn_valkey_fail_reply(const struct cn_valkey_store *vs, const redisReply *reply,
                         struct cn_error *err);

/* Notes whether there is a connection and, if `rc` is not 0, why a call has failed. */
const struct cn_store_activity *cn_valkey_note(struct cn_valkey_store *vs, int rc,
                                               const struct cn_error *err);
/* Ends a trip that was begun with cn_valkey_talk_begin and the same arguments at `begun_us`. */
int cn_valkey_end_trip(struct cn_valkey_store *vs, bool confirm, cn_valkey_reply_fn on_reply,
                       void *ctx, uint64_t begun_us, uint64_t deadline_us, struct cn_error *err);

/* These call cn_valkey_link_ready and cn_valkey_talk, and note for metrics how that went. */
static inline int
cn_valkey_ready(struct cn_valkey_store *vs, uint64_t deadline_us, struct cn_error *err)
{
    const int rc = cn_valkey_link_ready(&vs->link, deadline_us, err);

    cn_valkey_note(vs, rc, err);
    return rc;
}

static inline int
cn_valkey_trip(struct cn_valkey_store *vs, bool confirm, cn_valkey_reply_fn on_reply, void *ctx,
               uint64_t deadline_us, struct cn_error *err)
{
    return cn_valkey_end_trip(vs, confirm, on_reply, ctx, cn_now_us(), deadline_us, err);
}

/* valkey_layout.c */
/* Takes the stamp off an entry. CN_E_STATE_DAMAGED: Continuo has not written it. CN_E_STATE_STORE:
 * another version of Continuo has, and this one must not touch it. */
int cn_valkey_take_stamp(struct cn_str entry, struct cn_store_seen *seen, struct cn_str *value,
                         struct cn_error *err);
/* Connects, and checks that the model version's states are in the layout that this Continuo reads
 * and writes. CN_E_STATE_STORE: they are not. */
int cn_valkey_check_layout(struct cn_valkey_store *vs, struct cn_error *err);

/* valkey_script.c */
extern const char cn_valkey_script[];
/* Begins a call of the script, all keys of which are of one bucket; its keys and then its arguments
 * follow as words. */
void cn_valkey_call(struct cn_valkey_store *vs, unsigned bucket, uint32_t n_keys, uint32_t n_args);
unsigned cn_valkey_bucket(struct cn_str id);
/* Append the key of a sequence's entry, another key of a bucket, or a number as a word of a
 * command. */
void cn_valkey_entry_word(struct cn_valkey_store *vs, unsigned bucket, struct cn_str id);
void cn_valkey_key_word(struct cn_valkey_store *vs, unsigned bucket, struct cn_str kind);
void cn_valkey_number_word(struct cn_valkey_store *vs, uint64_t number);

/* valkey_commit.c */
void cn_valkey_send(struct cn_store *store);
bool cn_valkey_decided(struct cn_store *store);
uint32_t cn_valkey_watch(struct cn_store *store, struct pollfd *watched, uint32_t max);
int cn_valkey_commit(struct cn_store *store, struct cn_error *err);

/* valkey_sweep.c */
int cn_valkey_due(struct cn_store *store, uint64_t now_ms, struct cn_store_due *out, uint32_t max,
                  uint32_t *n, struct cn_error *err);
void cn_valkey_later(struct cn_store *store, struct cn_str key, uint64_t at_ms);

/* valkey_list.c */
/* Reads the beginnings of the entries whose ids are in `listed`; prefix.ptr is NULL for one that is
 * gone. */
int cn_valkey_read_fronts(struct cn_valkey_store *vs, struct cn_error *err);
int cn_valkey_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
                   struct cn_str *prefix, struct cn_error *err);
uint64_t cn_valkey_count(struct cn_store *store);

#endif
