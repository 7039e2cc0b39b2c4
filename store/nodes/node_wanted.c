/* store/nodes/node_wanted.c - the wanted set of models, in the shared store. One thread at a
 * time.
 *
 *   {PREFIX/models}        a hash with the fields token and text
 *   {PREFIX/models}nodes   a hash: a node's name -> the store's time in ms, a space, its report
 *
 * What belongs together is done by one script, so that nothing can come between. Scripts are sent
 * as texts: they are short, and run a few times a second at most. */
#include "store/shared_wanted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/system/random.h"
#include "store/nodes/node_link_priv.h"

#define STORE_TIME                                                                                 \
    "local time = redis.call('TIME')\n"                                                            \
    "local now = time[1] * 1000 + math.floor(time[2] / 1000)\n"

/* ARGV: the token that the node has, the node or "", its report. A report that the store has no
 * room for is left out: the look is more important. */
static const char look_script[] =
    "-- continuo: look at the wanted models, layout 1\n" STORE_TIME "if ARGV[2] ~= '' then\n"
    "  redis.pcall('HSET', KEYS[2], ARGV[2], string.format('%.0f', now) .. ' ' .. ARGV[3])\n"
    "end\n"
    "local token = redis.call('HGET', KEYS[1], 'token') or '" CN_WANTED_NONE "'\n"
    "if token == ARGV[1] then return {token} end\n"
    "return {token, redis.call('HGET', KEYS[1], 'text') or ''}\n";

/* ARGV: the token that the writer has seen, the new one, the text. */
static const char write_script[] =
    "-- continuo: conditional write of the wanted models, layout 1\n"
    "local token = redis.call('HGET', KEYS[1], 'token') or '" CN_WANTED_NONE "'\n"
    "if token ~= ARGV[1] then return {0} end\n"
    "redis.call('HSET', KEYS[1], 'token', ARGV[2], 'text', ARGV[3])\n"
    "return {1}\n";

/* ARGV: the age in ms beyond which a report is forgotten. */
static const char reports_script[] =
    "-- continuo: reports of the nodes, layout 1\n" STORE_TIME
    "local all, out = redis.call('HGETALL', KEYS[2]), {}\n"
    "for i = 1, #all, 2 do\n"
    "  local at, report = string.match(all[i + 1], '^(%d+) (.*)$')\n"
    "  local age = now - (tonumber(at) or 0)\n"
    "  if age > tonumber(ARGV[1]) then\n"
    "    redis.pcall('HDEL', KEYS[2], all[i])\n"
    "  else\n"
    "    out[#out + 1] = all[i]\n"
    "    out[#out + 1] = string.format('%.0f', math.max(age, 0))\n"
    "    out[#out + 1] = report\n"
    "  end\n"
    "end\n"
    "return out\n";

uint64_t
cn_wanted_generation(const char *token)
{
    return strtoull(token, NULL, 10);
}

struct exchange {
    char refused[300];
    struct cn_wanted_look *look;
    bool done; /* what was asked for is done */
    cn_wanted_report_fn on_report;
    void *ctx;
};

static void
key_word(struct cn_valkey_link *link, const char *ending)
{
    char key[256];

    snprintf(key, sizeof(key), "{%s/models}%s", link->options.prefix, ending);
    cn_valkey_word(link, cn_str_from(key));
}

/* Begins a call of a script that gets `n` words as ARGV. */
static void
script_words(struct cn_valkey_link *link, const char *script, uint32_t n)
{
    cn_valkey_command(link, CN_PLACE_MODELS, 5 + n);
    cn_valkey_word(link, CN_STR("EVAL"));
    cn_valkey_word(link, cn_str_from(script));
    cn_valkey_word(link, CN_STR("2"));
    key_word(link, "");
    key_word(link, "nodes");
}

static void
on_reply(void *ctx, uint32_t i, const redisReply *reply)
{
    struct exchange *exchange = ctx;
    struct cn_wanted_look *look = exchange->look;
    const struct cn_str text = cn_valkey_text(reply);

    (void)i;
    if (reply->type == REDIS_REPLY_ERROR)
        snprintf(exchange->refused, sizeof(exchange->refused), "%.*s",
                 text.len < 299 ? (int)text.len : 299, text.ptr);
    if (reply->type != REDIS_REPLY_ARRAY)
        return;
    for (size_t at = 0; exchange->on_report && at + 2 < reply->elements; at += 3)
        exchange->on_report(exchange->ctx, cn_valkey_text(reply->element[at]),
                            strtoull(cn_valkey_text(reply->element[at + 1]).ptr, NULL, 10),
                            cn_valkey_text(reply->element[at + 2]));
    if (look && reply->elements >= 1) {
        const struct cn_str token = cn_valkey_text(reply->element[0]);

        snprintf(look->token, sizeof(look->token), "%.*s", CN_STR_ARG(token));
        look->is_new = reply->elements > 1;
        if (look->is_new)
            cn_buf_append_str(&look->text, cn_valkey_text(reply->element[1]));
    } else if (!exchange->on_report && reply->elements == 1) {
        exchange->done =
            reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer == 1;
    }
}

static int
talk(struct cn_shared_link *shared, struct exchange *exchange, uint64_t deadline_us,
     struct cn_error *err)
{
    int rc = cn_valkey_talk(&shared->link, false, on_reply, exchange, deadline_us, err);

    if (rc == 0 && exchange->refused[0])
        rc = cn_shared_link_fail(shared, cn_str_from(exchange->refused), err);
    return rc;
}

int
cn_shared_wanted_look(struct cn_shared_link *shared, struct cn_wanted_look *look,
                      struct cn_error *err)
{
    struct exchange exchange = {.look = look};
    uint64_t deadline_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    look->token[0] = '\0';
    look->is_new = false;
    if (rc != 0)
        return rc;
    script_words(&shared->link, look_script, 3);
    cn_valkey_word(&shared->link, cn_str_from(look->known));
    cn_valkey_word(&shared->link, cn_str_from(look->node ? look->node : ""));
    cn_valkey_word(&shared->link, look->report);
    return talk(shared, &exchange, deadline_us, err);
}

int
cn_shared_wanted_write(struct cn_shared_link *shared, const char *seen, uint64_t least,
                       struct cn_str text, bool *written, char token[CN_WANTED_TOKEN_MAX],
                       struct cn_error *err)
{
    struct exchange exchange = {0};
    const uint64_t next = cn_wanted_generation(seen) + 1;
    char fresh[CN_WANTED_TOKEN_MAX];
    uint64_t deadline_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    *written = false;
    if (rc != 0)
        return rc;
    snprintf(fresh, sizeof(fresh), "%llu-%016llx",
             (unsigned long long)(next > least ? next : least),
             (unsigned long long)cn_random_u64());
    script_words(&shared->link, write_script, 3);
    cn_valkey_word(&shared->link, cn_str_from(seen));
    cn_valkey_word(&shared->link, cn_str_from(fresh));
    cn_valkey_word(&shared->link, text);
    rc = talk(shared, &exchange, deadline_us, err);
    *written = rc == 0 && exchange.done;
    if (*written)
        memcpy(token, fresh, sizeof(fresh));
    return rc;
}

int
cn_shared_wanted_reports(struct cn_shared_link *shared, uint64_t forget_ms,
                         cn_wanted_report_fn on_report, void *ctx, struct cn_error *err)
{
    struct exchange exchange = {.on_report = on_report, .ctx = ctx};
    uint64_t deadline_us;
    char most[24];
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    if (rc != 0)
        return rc;
    snprintf(most, sizeof(most), "%llu", (unsigned long long)forget_ms);
    script_words(&shared->link, reports_script, 1);
    cn_valkey_word(&shared->link, cn_str_from(most));
    return talk(shared, &exchange, deadline_us, err);
}

int
cn_shared_wanted_leave(struct cn_shared_link *shared, const char *node, struct cn_error *err)
{
    struct exchange exchange = {0};
    uint64_t deadline_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    if (rc != 0)
        return rc;
    cn_valkey_command(&shared->link, CN_PLACE_MODELS, 3);
    cn_valkey_word(&shared->link, CN_STR("HDEL"));
    key_word(&shared->link, "nodes");
    cn_valkey_word(&shared->link, cn_str_from(node));
    return talk(shared, &exchange, deadline_us, err);
}
