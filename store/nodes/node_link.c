/* store/nodes/node_link.c - the server's own connection to the shared store. One thread at a
 * time. */
#include "store/nodes/node_link_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "store/link/fitness.h"
#include "store/shared_url.h"

/* Adds the places: the keys of the list of nodes, those of the wanted models, and then one slot in
 * every 256 or so. */
static void
add_places(struct cn_valkey_link *link)
{
    char key[96];

    snprintf(key, sizeof(key), "{%s/nodes}", link->options.prefix);
    cn_valkey_link_add_place(link, cn_str_from(key));
    snprintf(key, sizeof(key), "{%s/models}", link->options.prefix);
    cn_valkey_link_add_place(link, cn_str_from(key));
    for (uint32_t i = 2; i < CN_VALKEY_PLACES_MAX; i++)
        cn_valkey_link_add_slot(link, (uint16_t)(i * (CN_HASH_SLOTS / CN_VALKEY_PLACES_MAX)));
}

int
cn_shared_link_open(const char *url, uint32_t timeout_ms, struct cn_shared_link **out,
                    struct cn_error *err)
{
    struct cn_shared_url *read = cn_alloc(sizeof(*read));
    struct cn_shared_link *shared = NULL;
    int rc = cn_shared_url_read(url, read, err);

    if (rc == 0) {
        shared = cn_alloc(sizeof(*shared));
        read->options.timeout_ms = timeout_ms;
        rc = cn_valkey_link_init(&shared->link, &read->options, NULL, err);
        add_places(&shared->link);
    }
    if (rc != 0) {
        cn_shared_link_close(shared);
        shared = NULL;
    }
    cn_free(read);
    *out = shared;
    return rc;
}

void
cn_shared_link_close(struct cn_shared_link *shared)
{
    if (!shared)
        return;
    cn_valkey_link_fini(&shared->link);
    cn_free(shared);
}

void
cn_shared_link_hurry(struct cn_shared_link *shared, uint32_t timeout_ms)
{
    shared->link.options.timeout_ms = timeout_ms;
}

int
cn_shared_link_begin(struct cn_shared_link *shared, uint64_t *deadline_us, struct cn_error *err)
{
    *deadline_us = cn_valkey_deadline_us(&shared->link);
    return cn_valkey_link_ready(&shared->link, *deadline_us, err);
}

int
cn_shared_link_fail(struct cn_shared_link *shared, struct cn_str words, struct cn_error *err)
{
    cn_valkey_link_doubt(&shared->link);
    return cn_fail(err, CN_E_STATE_STORE, "the state store refuses a command: %.*s",
                   words.len < 300 ? (int)words.len : 300, words.ptr);
}

/* --- what the server says about itself */

static uint64_t
number_of(struct cn_str text)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%.*s", text.len < 23 ? (int)text.len : 23, text.ptr);
    return strtoull(digits, NULL, 10);
}

/* Finds the value of `key` in "key=value,key=value". */
static struct cn_str
value_of(struct cn_str text, const char *key)
{
    const size_t len = strlen(key);
    const char *at = text.ptr, *end = text.ptr + text.len, *stop;

    for (; at < end; at = stop + 1) {
        stop = memchr(at, ',', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) > len && memcmp(at, key, len) == 0 && at[len] == '=')
            return (struct cn_str){at + len + 1, (size_t)(stop - at) - len - 1};
    }
    return (struct cn_str){"", 0};
}

static void
read_replica(struct cn_str line, uint64_t primary_offset, struct cn_shared_facts *out)
{
    const struct cn_str host = value_of(line, "ip"), port = value_of(line, "port");
    const uint64_t offset = number_of(value_of(line, "offset"));
    const uint32_t i = out->n_replicas++;

    snprintf(out->replicas[i].address, sizeof(out->replicas[i].address), "%.*s:%.*s",
             host.len < 255 ? (int)host.len : 255, host.ptr, port.len < 8 ? (int)port.len : 8,
             port.ptr);
    out->replicas[i].online = cn_str_eq(value_of(line, "state"), CN_STR("online"));
    out->replicas[i].lag_bytes = primary_offset > offset ? primary_offset - offset : 0;
    out->replicas[i].lag_s = (uint32_t)number_of(value_of(line, "lag"));
}

/* Adds what one server says to what others have said before. */
static void
add_facts(struct cn_str info, bool first, struct cn_shared_facts *out)
{
    const uint64_t offset = number_of(cn_valkey_info_field(info, "master_repl_offset"));
    const uint64_t max_bytes = number_of(cn_valkey_info_field(info, "maxmemory"));
    const bool has_aof = number_of(cn_valkey_info_field(info, "aof_enabled")) == 1;
    struct cn_str version = cn_valkey_info_field(info, "valkey_version");
    char name[24];

    if (version.len == 0)
        version = cn_valkey_info_field(info, "redis_version");
    if (first)
        snprintf(out->version, sizeof(out->version), "%.*s",
                 version.len < 31 ? (int)version.len : 31, version.ptr);
    out->used_bytes += number_of(cn_valkey_info_field(info, "used_memory"));
    /* One server without a limit leaves no limit to all. */
    out->max_bytes = max_bytes && (first || out->max_bytes) ? out->max_bytes + max_bytes : 0;
    out->commands_per_s += number_of(cn_valkey_info_field(info, "instantaneous_ops_per_sec"));
    out->has_aof = has_aof && (first || out->has_aof);
    for (int i = 0; i < CN_SHARED_REPLICAS_MAX && out->n_replicas < CN_SHARED_REPLICAS_MAX; i++) {
        struct cn_str line;

        snprintf(name, sizeof(name), "slave%d", i);
        line = cn_valkey_info_field(info, name);
        if (line.len)
            read_replica(line, offset, out);
    }
}

void
cn_shared_facts_read(struct cn_str info, struct cn_shared_facts *out)
{
    memset(out, 0, sizeof(*out));
    add_facts(info, true, out);
}

struct asked {
    struct cn_shared_facts *out;
    uint32_t n_answers;
    char refused[300];
};

/* The answer to CONFIG GET appendfsync. */
static void
take_fsync(struct cn_shared_facts *out, const redisReply *reply)
{
    struct cn_str text;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        return;
    text = cn_valkey_text(reply->element[1]);
    if (text.len < sizeof(out->fsync) && strcmp(out->fsync, "everysec") != 0)
        snprintf(out->fsync, sizeof(out->fsync), "%.*s", (int)text.len, text.ptr);
}

/* Each server is asked for INFO and then for a setting. */
static void
take_info(void *ctx, uint32_t i, const redisReply *reply)
{
    struct asked *asked = ctx;
    const struct cn_str text = cn_valkey_text(reply);

    if (i % 2 == 1) {
        take_fsync(asked->out, reply);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR)
        snprintf(asked->refused, sizeof(asked->refused), "%.*s",
                 text.len < 299 ? (int)text.len : 299, text.ptr);
    else
        add_facts(text, asked->n_answers++ == 0, asked->out);
}

int
cn_shared_link_facts(struct cn_shared_link *shared, struct cn_shared_facts *out,
                     struct cn_error *err)
{
    struct asked asked = {.out = out};
    uint64_t deadline_us;
    int rc = cn_shared_link_begin(shared, &deadline_us, err);

    memset(out, 0, sizeof(*out));
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < shared->link.n_servers; i++) {
        cn_valkey_command_to(&shared->link, i, 1);
        cn_valkey_word(&shared->link, CN_STR("INFO"));
        cn_valkey_command_to(&shared->link, i, 3);
        cn_valkey_word(&shared->link, CN_STR("CONFIG"));
        cn_valkey_word(&shared->link, CN_STR("GET"));
        cn_valkey_word(&shared->link, CN_STR("appendfsync"));
    }
    if ((rc = cn_valkey_talk(&shared->link, false, take_info, &asked, deadline_us, err)) != 0)
        return rc;
    return asked.refused[0] ? cn_shared_link_fail(shared, cn_str_from(asked.refused), err) : 0;
}
