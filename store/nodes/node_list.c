/* store/nodes/node_list.c - the list of nodes, in the shared store. One thread at a time.
 *
 *   {PREFIX/nodes}                a sorted set of the entries' names, all with score 0
 *   {PREFIX/nodes}NAME#INSTANCE   an entry; the store deletes it when it is not renewed
 *
 * The set only says where to look. Whoever finds a name in it whose entry is gone removes the name.
 * If the entry was written again just before that, its node's next renewal adds the name again. */
#include "store/shared_nodes.h"

#include <stdio.h>
#include <string.h>

#include "core/memory/arena.h"
#include "core/time/clock.h"
#include "store/nodes/node_link_priv.h"

#define PAGE 256 /* entries that are read in one round trip */

/* --- words of commands */

static void
number_word(struct cn_valkey_link *link, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    cn_valkey_word(link, cn_str_from(text));
}

/* Appends the key of an entry; an empty entry gives the key of the set. */
static void
key_word(struct cn_valkey_link *link, struct cn_str entry)
{
    char key[512];
    int n = snprintf(key, sizeof(key), "{%s/nodes}%.*s", link->options.prefix, CN_STR_ARG(entry));

    cn_valkey_word(link, (struct cn_str){key, n < (int)sizeof(key) ? (size_t)n : sizeof(key) - 1});
}

static void
forget_words(struct cn_valkey_link *link, struct cn_str entry)
{
    cn_valkey_command(link, CN_PLACE_NODES, 3);
    cn_valkey_word(link, CN_STR("ZREM"));
    key_word(link, (struct cn_str){"", 0});
    cn_valkey_word(link, entry);
}

/* Appends the command that lists at most `most` names from `from` up to `to`, both of which are
 * written as ZRANGEBYLEX wants them. */
static void
list_words(struct cn_valkey_link *link, const char *from, const char *to, uint32_t most)
{
    cn_valkey_command(link, CN_PLACE_NODES, 7);
    cn_valkey_word(link, CN_STR("ZRANGEBYLEX"));
    key_word(link, (struct cn_str){"", 0});
    cn_valkey_word(link, cn_str_from(from));
    cn_valkey_word(link, cn_str_from(to));
    cn_valkey_word(link, CN_STR("LIMIT"));
    cn_valkey_word(link, CN_STR("0"));
    number_word(link, most);
}

/* --- replies */

struct exchange {
    struct cn_arena arena;
    char refused[300];    /* the first error reply */
    struct cn_str *names; /* that were listed */
    uint32_t n_names;
    uint64_t store_wall_ms;
    cn_shared_node_fn on_node;
    void *ctx;
    struct cn_str own; /* this node's entry, which is not reported */
    bool *gone;        /* by name: there is no entry */
};

static bool
is_refusal(struct exchange *exchange, const redisReply *reply)
{
    const struct cn_str text = cn_valkey_text(reply);

    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    if (!exchange->refused[0])
        snprintf(exchange->refused, sizeof(exchange->refused), "%.*s",
                 text.len < 299 ? (int)text.len : 299, text.ptr);
    return true;
}

static void
take_names(struct exchange *exchange, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return;
    exchange->names =
        cn_arena_alloc(&exchange->arena, sizeof(*exchange->names) * (reply->elements + 1));
    exchange->n_names = 0;
    for (size_t i = 0; i < reply->elements; i++) {
        const struct cn_str name = cn_valkey_text(reply->element[i]);

        if (name.len)
            exchange->names[exchange->n_names++] =
                (struct cn_str){cn_arena_strndup(&exchange->arena, name.ptr, name.len), name.len};
    }
}

static void
take_list(void *ctx, uint32_t i, const redisReply *reply)
{
    (void)i;
    if (!is_refusal(ctx, reply))
        take_names(ctx, reply);
}

/* The replies to the four commands of a renewal. A server may refuse TIME to this user. */
static void
take_renewal(void *ctx, uint32_t i, const redisReply *reply)
{
    struct exchange *exchange = ctx;
    unsigned long long s, us;

    if (i == 3 && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        sscanf(cn_valkey_text(reply->element[0]).ptr, "%llu", &s) == 1 &&
        sscanf(cn_valkey_text(reply->element[1]).ptr, "%llu", &us) == 1)
        exchange->store_wall_ms = s * 1000 + us / 1000;
    if (i == 3 || is_refusal(exchange, reply))
        return;
    if (i == 2)
        take_names(exchange, reply);
}

static void
take_entry(void *ctx, uint32_t i, const redisReply *reply)
{
    struct exchange *exchange = ctx;

    if (is_refusal(exchange, reply))
        return;
    exchange->gone[i] = reply->type == REDIS_REPLY_NIL;
    if (reply->type == REDIS_REPLY_STRING && !cn_str_eq(exchange->names[i], exchange->own))
        exchange->on_node(exchange->ctx, exchange->names[i], cn_valkey_text(reply));
}

static void
take_nothing(void *ctx, uint32_t i, const redisReply *reply)
{
    (void)i;
    is_refusal(ctx, reply);
}

/* Sends the commands, and makes an error of an error reply. */
static int
talk(struct cn_shared_link *shared, cn_valkey_reply_fn take, struct exchange *exchange,
     uint64_t deadline_us, struct cn_error *err)
{
    int rc = cn_valkey_talk(&shared->link, false, take, exchange, deadline_us, err);

    if (rc == 0 && exchange->refused[0])
        rc = cn_shared_link_fail(shared, cn_str_from(exchange->refused), err);
    return rc;
}

/* Reads the entries of the names that were listed, and removes names whose entry is gone. */
static int
read_entries(struct cn_shared_link *shared, struct exchange *exchange, uint64_t deadline_us,
             struct cn_error *err)
{
    uint32_t n_gone = 0;
    int rc;

    if (exchange->n_names == 0)
        return 0;
    exchange->gone = cn_arena_alloc(&exchange->arena, exchange->n_names);
    memset(exchange->gone, 0, exchange->n_names);
    for (uint32_t i = 0; i < exchange->n_names; i++) {
        cn_valkey_command(&shared->link, CN_PLACE_NODES, 2);
        cn_valkey_word(&shared->link, CN_STR("GET"));
        key_word(&shared->link, exchange->names[i]);
    }
    if ((rc = talk(shared, take_entry, exchange, deadline_us, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < exchange->n_names; i++) {
        if (exchange->gone[i] && !cn_str_eq(exchange->names[i], exchange->own)) {
            forget_words(&shared->link, exchange->names[i]);
            n_gone++;
        }
    }
    return n_gone ? talk(shared, take_nothing, exchange, deadline_us, err) : 0;
}

/* --- the calls */

int
cn_shared_nodes_renew(struct cn_shared_link *shared, struct cn_shared_renewal *renewal,
                      cn_shared_node_fn on_namesake, void *ctx, struct cn_error *err)
{
    struct exchange exchange = {.on_node = on_namesake, .ctx = ctx};
    struct cn_valkey_link *link = &shared->link;
    char entry[128], from[130], to[130];
    uint64_t deadline_us, began_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    if (rc != 0)
        return rc;
    snprintf(entry, sizeof(entry), "%s#%s", renewal->name, renewal->instance);
    snprintf(from, sizeof(from), "[%s#", renewal->name);
    snprintf(to, sizeof(to), "(%s$", renewal->name); /* $ follows # */
    exchange.own = cn_str_from(entry);
    cn_valkey_command(link, CN_PLACE_NODES, 5);
    cn_valkey_word(link, CN_STR("SET"));
    key_word(link, exchange.own);
    cn_valkey_word(link, renewal->value);
    cn_valkey_word(link, CN_STR("PX"));
    number_word(link, renewal->ttl_ms);
    cn_valkey_command(link, CN_PLACE_NODES, 4);
    cn_valkey_word(link, CN_STR("ZADD"));
    key_word(link, (struct cn_str){"", 0});
    cn_valkey_word(link, CN_STR("0"));
    cn_valkey_word(link, exchange.own);
    list_words(link, from, to, CN_SHARED_NAMESAKES_MAX);
    cn_valkey_command(link, CN_PLACE_NODES, 1);
    cn_valkey_word(link, CN_STR("TIME"));
    cn_arena_init(&exchange.arena);
    began_us = cn_now_us();
    rc = talk(shared, take_renewal, &exchange, deadline_us, err);
    renewal->round_trip_us = cn_now_us() - began_us;
    renewal->wall_ms = cn_wall_ms() - renewal->round_trip_us / 2000;
    renewal->store_wall_ms = exchange.store_wall_ms;
    if (rc == 0 && exchange.n_names > 1)
        rc = read_entries(shared, &exchange, deadline_us, err);
    cn_arena_fini(&exchange.arena);
    return rc;
}

int
cn_shared_nodes_leave(struct cn_shared_link *shared, const char *name, const char *instance,
                      struct cn_error *err)
{
    struct exchange exchange = {0};
    char entry[128];
    uint64_t deadline_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    if (rc != 0)
        return rc;
    snprintf(entry, sizeof(entry), "%s#%s", name, instance);
    cn_valkey_command(&shared->link, CN_PLACE_NODES, 2);
    cn_valkey_word(&shared->link, CN_STR("DEL"));
    key_word(&shared->link, cn_str_from(entry));
    forget_words(&shared->link, cn_str_from(entry));
    return talk(shared, take_nothing, &exchange, deadline_us, err);
}

int
cn_shared_nodes_read(struct cn_shared_link *shared, cn_shared_node_fn on_node, void *ctx,
                     struct cn_error *err)
{
    struct exchange exchange = {.on_node = on_node, .ctx = ctx};
    uint32_t total = 0, n = PAGE;
    uint64_t deadline_us;
    char from[256] = "-";
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    while (rc == 0 && n == PAGE && total < CN_SHARED_NODES_MAX) {
        cn_arena_init(&exchange.arena);
        exchange.n_names = 0;
        list_words(&shared->link, from, "+", PAGE);
        rc = talk(shared, take_list, &exchange, deadline_us, err);
        n = exchange.n_names;
        total += n;
        if (rc == 0 && n > 0)
            snprintf(from, sizeof(from), "(%.*s", CN_STR_ARG(exchange.names[n - 1]));
        if (rc == 0)
            rc = read_entries(shared, &exchange, deadline_us, err);
        cn_arena_fini(&exchange.arena);
    }
    return rc;
}
