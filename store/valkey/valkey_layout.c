/* store/valkey/valkey_layout.c - keeps versions of Continuo apart that write states differently.
 * Worker's thread.
 *
 * Nodes of two versions may share a store. What must be the same on all of them is the layout: the
 * keys, the stamp, the record and what the script means. One key of each model version says in
 * which layout its states are, and the first worker that opens the store writes it. A worker that
 * does not know that layout does not open the store. So an old node that comes back late cannot
 * take new states for damaged ones, and a new one cannot overlook old states because it looks under
 * other keys. The name of this key must therefore never change.
 *
 * Each entry says the same again, because a store may be emptied and filled while workers run. An
 * entry in another layout is refused, and nothing replaces or removes it, not even a start flag or
 * a deletion, as they would with a damaged one. */
#include <stdio.h>
#include <string.h>

#include "store/record/little_endian.h"
#include "store/record/record.h"
#include "store/valkey/valkey_priv.h"

#define NAME_MAX_LEN 40 /* longer names of layouts are not read to their end */

/* Ours: the layout of keys and stamps, and the format of records. */
static void
write_name(char out[NAME_MAX_LEN])
{
    snprintf(out, NAME_MAX_LEN, "%d/%d", CN_VALKEY_LAYOUT, CN_RECORD_FORMAT);
}

int
cn_valkey_take_stamp(struct cn_str entry, struct cn_store_seen *seen, struct cn_str *value,
                     struct cn_error *err)
{
    const unsigned char *at = (const unsigned char *)entry.ptr;
    unsigned format;

    if (entry.len < CN_VALKEY_STAMP_BYTES || at[0] == 0)
        return cn_fail(err, CN_E_STATE_DAMAGED,
                       "the shared store holds %zu bytes that Continuo has not written; perhaps "
                       "another program uses the prefix of the store's URL",
                       entry.len);
    if (at[0] != CN_VALKEY_LAYOUT)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the shared store holds a state in layout %u, which another version of "
                       "Continuo has written; this one knows layout %u",
                       at[0], CN_VALKEY_LAYOUT);
    *value = (struct cn_str){entry.ptr + CN_VALKEY_STAMP_BYTES, entry.len - CN_VALKEY_STAMP_BYTES};
    format = cn_record_format(*value);
    if (format != 0 && format != CN_RECORD_FORMAT)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the shared store holds a state in format %u, which another version of "
                       "Continuo has written; this one knows format %d",
                       format, CN_RECORD_FORMAT);
    *seen = (struct cn_store_seen){.what = CN_SEEN_RECORD,
                                   .tombstone = at[1] & CN_VALKEY_TOMBSTONE,
                                   .generation = get64(at + 2),
                                   .step = get64(at + 10),
                                   .last_job = get64(at + 18)};
    return 0;
}

struct asking {
    struct cn_valkey_store *vs;
    char found[NAME_MAX_LEN]; /* "": the store has no name */
    int rc;
    struct cn_error *err;
};

/* The replies to SET and GET. A store that is full refuses the SET; the model's steps will say
 * so. */
static void
on_reply(void *ctx, uint32_t i, const redisReply *reply)
{
    struct asking *asking = ctx;
    const struct cn_str text = cn_valkey_text(reply);

    if (reply->type == REDIS_REPLY_ERROR && !cn_valkey_is_error(reply, "OOM"))
        asking->rc = cn_valkey_fail_reply(asking->vs, reply, asking->err);
    else if (i == 1 && reply->type == REDIS_REPLY_STRING)
        snprintf(asking->found, sizeof(asking->found), "%.*s",
                 (int)(text.len < NAME_MAX_LEN ? text.len : NAME_MAX_LEN), text.ptr);
}

int
cn_valkey_check_layout(struct cn_valkey_store *vs, struct cn_error *err)
{
    const uint64_t deadline_us = cn_valkey_deadline_us(&vs->link);
    struct asking asking = {.vs = vs, .err = err};
    char ours[NAME_MAX_LEN];
    int rc = cn_valkey_ready(vs, deadline_us, err);

    if (rc == 0)
        rc = cn_valkey_link_check_all(&vs->link, deadline_us, err);
    if (rc != 0)
        return rc;
    write_name(ours);
    cn_valkey_command(&vs->link, 0, 4);
    cn_valkey_word(&vs->link, CN_STR("SET"));
    cn_valkey_key_word(vs, 0, CN_VALKEY_LAYOUT_KEY);
    cn_valkey_word(&vs->link, cn_str_from(ours));
    cn_valkey_word(&vs->link, CN_STR("NX"));
    cn_valkey_command(&vs->link, 0, 2);
    cn_valkey_word(&vs->link, CN_STR("GET"));
    cn_valkey_key_word(vs, 0, CN_VALKEY_LAYOUT_KEY);
    rc = cn_valkey_trip(vs, false, on_reply, &asking, deadline_us, err);
    if (rc != 0 || asking.rc != 0)
        return rc ? rc : asking.rc;
    if (asking.found[0] == '\0' || strcmp(asking.found, ours) == 0)
        return 0;
    return cn_fail(err, CN_E_STATE_STORE,
                   "the shared store has the states of model %s %s in layout %s, and this version "
                   "of Continuo knows layout %s; start a version that knows both, or write another "
                   "prefix into the URL of the store",
                   vs->link.options.model, vs->link.options.version, asking.found, ours);
}
