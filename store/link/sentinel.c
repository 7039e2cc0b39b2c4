/* store/link/sentinel.c - finds the primary through Sentinels. The link's thread.
 *
 * The Sentinels are asked one after the other until one answers. The same connection then
 * subscribes to the message +switch-master, so that a node that still has a connection to the old
 * primary leaves it. Such a connection may well be alive, because the old primary was only stopped
 * or cut off for a while, and what is written there is lost when the Sentinels make it a replica.
 * Question and subscription are sent together, so no change falls between them. With
 * state.replicas: all, it also subscribes to the messages about replicas; replica_count.c counts
 * them.
 *
 * An answer to SENTINEL GET-MASTER-ADDR-BY-NAME is ["10.0.0.1", "6379"], or nil if the name is
 * unknown there. The message is the text "mymaster 10.0.0.1 6379 10.0.0.2 6379" with the old and
 * the new address. One about a replica is "slave 10.0.0.3:6379 10.0.0.3 6379 @ mymaster 10.0.0.1
 * 6379". A message is only a hint that something has changed for this name; the Sentinels are then
 * asked again. */
#include "store/link/sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/time/clock.h"

#define LOOK_AGAIN_US 100000 /* how long a lost connection may be made again for, during a step */
#define PAUSE_MIN_US 1000000 /* pause between two such attempts; it doubles */
#define PAUSE_MAX_US 10000000

/* Messages after which the replicas are counted again, with state.replicas: all. */
static const char *const about_replicas[] = {"+sdown", "-sdown", "+slave", "+convert-to-slave",
                                             "+reset-master"};
#define N_ABOUT_REPLICAS (sizeof(about_replicas) / sizeof(about_replicas[0]))

void
cn_sentinel_init(struct cn_sentinel *sentinel, const struct cn_shared_options *options,
                 const struct cn_hiredis *lib)
{
    memset(sentinel, 0, sizeof(*sentinel));
    sentinel->options = options;
    sentinel->pause_us = PAUSE_MIN_US;
    cn_wire_init(&sentinel->wire, lib, options);
}

void
cn_sentinel_fini(struct cn_sentinel *sentinel)
{
    cn_wire_fini(&sentinel->wire);
}

bool
cn_sentinel_take_address(const redisReply *reply, char host[256], uint16_t *port)
{
    const redisReply *name, *number;
    long value;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        return false;
    name = reply->element[0];
    number = reply->element[1];
    if (name->type != REDIS_REPLY_STRING || number->type != REDIS_REPLY_STRING || name->len == 0 ||
        name->len > 255 || strlen(name->str) != (size_t)name->len)
        return false;
    value = strtol(number->str, NULL, 10);
    if (value < 1 || value > 65535)
        return false;
    memcpy(host, name->str, (size_t)name->len + 1);
    *port = (uint16_t)value;
    return true;
}

bool
cn_sentinel_is_about(struct cn_str message, const char *master)
{
    const size_t len = strlen(master);

    return message.len > len && memcmp(message.ptr, master, len) == 0 && message.ptr[len] == ' ';
}

bool
cn_sentinel_is_about_replica(struct cn_str channel, struct cn_str message, const char *master)
{
    char end[80];

    if (cn_str_eq(channel, CN_STR("+reset-master")))
        return message.len > 7 && memcmp(message.ptr, "master ", 7) == 0 &&
               cn_sentinel_is_about((struct cn_str){message.ptr + 7, message.len - 7}, master);
    snprintf(end, sizeof(end), " @ %s ", master);
    return message.len > 6 && memcmp(message.ptr, "slave ", 6) == 0 &&
           memmem(message.ptr, message.len, end, strlen(end)) != NULL;
}

const char *
cn_sentinel_field(const redisReply *instance, const char *name)
{
    for (size_t i = 0; instance->type == REDIS_REPLY_ARRAY && i + 1 < instance->elements; i += 2) {
        const redisReply *key = instance->element[i], *value = instance->element[i + 1];

        if (key->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(key->str, name) == 0)
            return value->str;
    }
    return NULL;
}

static const char *
field(const redisReply *instance, const char *name)
{
    const char *value = cn_sentinel_field(instance, name);

    return value ? value : "";
}

/* Sentinels do not choose a replica that has had no connection to the primary for more than ten
 * times down-after-milliseconds. The time for which the primary is down does not count. */
bool
cn_sentinel_reaches(const redisReply *replica, bool primary_is_down)
{
    const char *flags = field(replica, "flags");
    const long long away_ms = strtoll(field(replica, "master-link-down-time"), NULL, 10);
    const long long after_ms = strtoll(field(replica, "down-after-milliseconds"), NULL, 10);

    return *flags && !strstr(flags, "s_down") && !strstr(flags, "o_down") &&
           (primary_is_down || after_ms <= 0 || away_ms / 10 <= after_ms);
}

static bool
is_electable(const redisReply *replica)
{
    return cn_sentinel_reaches(replica, false) &&
           strcmp(field(replica, "slave-priority"), "0") != 0;
}

uint32_t
cn_sentinel_take_replicas(const redisReply *reply)
{
    uint32_t n = 0;

    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        n += is_electable(reply->element[i]);
    return n;
}

/* What a Sentinel said. */
struct told {
    struct cn_sentinel *sentinel;
    bool known;       /* it knows the primary, whose address is in `sentinel` */
    bool wants_login; /* it answers only after AUTH */
    char why[160];    /* its words, if it refused something */
};

static void
take_words(struct told *told, const redisReply *error)
{
    snprintf(told->why, sizeof(told->why), "%.*s", (int)(error->len < 159 ? error->len : 159),
             error->str);
}

static void
take_told(void *ctx, uint32_t i, const redisReply *reply)
{
    struct told *told = ctx;

    if (reply->type == REDIS_REPLY_ERROR) {
        told->wants_login |= cn_valkey_is_error(reply, "NOAUTH");
        if (!told->why[0])
            take_words(told, reply);
    }
    if (i == 0)
        told->known =
            cn_sentinel_take_address(reply, told->sentinel->primary, &told->sentinel->port);
    if (i == 1)
        told->sentinel->electable = cn_sentinel_take_replicas(reply);
}

static void
take_login(void *ctx, uint32_t i, const redisReply *reply)
{
    struct told *told = ctx;

    (void)i;
    if (reply->type == REDIS_REPLY_ERROR)
        take_words(told, reply);
}

static void
subscribe(struct cn_valkey_wire *wire, const char *channel)
{
    cn_wire_command(wire, 2);
    cn_wire_word(wire, CN_STR("SUBSCRIBE"));
    cn_wire_word(wire, cn_str_from(channel));
}

static int
put_question(struct cn_sentinel *sentinel, struct told *told, uint64_t deadline_us,
             struct cn_error *err)
{
    struct cn_valkey_wire *wire = &sentinel->wire;

    *told = (struct told){.sentinel = sentinel};
    cn_wire_command(wire, 3);
    cn_wire_word(wire, CN_STR("SENTINEL"));
    cn_wire_word(wire, CN_STR("GET-MASTER-ADDR-BY-NAME"));
    cn_wire_word(wire, cn_str_from(sentinel->options->master));
    cn_wire_command(wire, 3);
    cn_wire_word(wire, CN_STR("SENTINEL"));
    cn_wire_word(wire, CN_STR("REPLICAS"));
    cn_wire_word(wire, cn_str_from(sentinel->options->master));
    subscribe(wire, "+switch-master");
    for (size_t i = 0; sentinel->options->replicas == CN_REPLICAS_ALL && i < N_ABOUT_REPLICAS; i++)
        subscribe(wire, about_replicas[i]);
    return cn_wire_talk(wire, take_told, told, deadline_us, err);
}

/* Sentinels may have a password of their own. It must be that of the store, because a URL has only
 * one. */
static int
log_in(struct cn_sentinel *sentinel, struct told *told, uint64_t deadline_us, struct cn_error *err)
{
    const struct cn_shared_options *options = sentinel->options;
    struct cn_valkey_wire *wire = &sentinel->wire;
    int rc;

    if (!options->password[0])
        return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                            "wants a password; put it into the URL, as in "
                            "valkey+sentinel://:password@host/mymaster");
    *told = (struct told){.sentinel = sentinel};
    cn_wire_login(wire);
    if ((rc = cn_wire_talk(wire, take_login, told, deadline_us, err)) != 0)
        return rc;
    if (!told->why[0])
        return 0;
    return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                        "refuses the user name or the password of the URL (it says: %.60s); "
                        "Sentinels with a password need the same one as the store",
                        told->why);
}

/* Asks one Sentinel. CN_E_NOT_FOUND: it does not know the primary. */
static int
ask_one(struct cn_sentinel *sentinel, uint64_t deadline_us, struct cn_error *err)
{
    const struct cn_shared_host *host = &sentinel->options->hosts[sentinel->host];
    struct told told;
    int rc;

    cn_wire_drop(&sentinel->wire);
    rc = cn_wire_connect(&sentinel->wire, "the Sentinel", host, deadline_us, err);
    if (rc == 0)
        rc = put_question(sentinel, &told, deadline_us, err);
    if (rc == 0 && told.wants_login) {
        rc = log_in(sentinel, &told, deadline_us, err);
        if (rc == 0)
            rc = put_question(sentinel, &told, deadline_us, err);
    }
    if (rc == 0 && told.known)
        return 0;
    if (rc == 0)
        rc = cn_wire_fail(&sentinel->wire, CN_E_NOT_FOUND, err,
                          "does not know a primary with the name '%s'%s%s%s; the name stands "
                          "behind the hosts of the URL, and in the Sentinel's configuration "
                          "behind 'sentinel monitor'",
                          sentinel->options->master, told.why[0] ? " (it says: " : "", told.why,
                          told.why[0] ? ")" : "");
    cn_wire_drop(&sentinel->wire);
    return rc;
}

/* A Sentinel that does not know the name must not hide one that cannot be reached, and the other
 * way round: the next one is asked in both cases. If none helps, a Sentinel that has said "unknown
 * name" decides, because that is a setting to be corrected. */
int
cn_sentinel_find(struct cn_sentinel *sentinel, uint64_t deadline_us, struct cn_shared_host *out,
                 struct cn_error *err)
{
    const uint32_t n = sentinel->options->n_hosts;
    struct cn_error unknown = {0};
    int rc = CN_E_STORE_UNREACHABLE;

    /* The time is shared among the Sentinels, and the primary gets a share, too. */
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us();
        const uint64_t left = deadline_us > now ? deadline_us - now : 0;

        rc = ask_one(sentinel, now + left / (n - i + 1), err);
        if (rc == 0) {
            *out = (struct cn_shared_host){.host = sentinel->primary, .port = sentinel->port};
            sentinel->pause_us = PAUSE_MIN_US;
            sentinel->replicas_changed = true; /* messages may have been missed */
            return 0;
        }
        if (rc == CN_E_NOT_FOUND)
            unknown = *err;
        else if (rc != CN_E_STORE_UNREACHABLE)
            return rc;
        sentinel->host = (sentinel->host + 1) % n;
    }
    if (!unknown.code)
        return rc;
    *err = unknown;
    return err->code = CN_E_STATE_STORE;
}

static void
take_message(void *ctx, uint32_t i, const redisReply *reply)
{
    struct told *told = ctx;
    const char *master = told->sentinel->options->master;
    struct cn_str channel, text;

    (void)i;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return;
    channel = cn_valkey_text(reply->element[1]);
    text = cn_valkey_text(reply->element[2]);
    if (cn_str_eq(channel, CN_STR("+switch-master")))
        told->known |= cn_sentinel_is_about(text, master);
    else
        told->sentinel->replicas_changed |= cn_sentinel_is_about_replica(channel, text, master);
}

/* Asks again after the connection was lost: has the primary changed meanwhile? */
static bool
moved_meanwhile(struct cn_sentinel *sentinel)
{
    const uint64_t now = cn_now_us();
    const uint16_t port = sentinel->port;
    struct cn_shared_host found;
    struct cn_error err;
    char before[256];

    if (now < sentinel->next_try_us)
        return false;
    sentinel->next_try_us = now + sentinel->pause_us;
    sentinel->pause_us =
        sentinel->pause_us * 2 < PAUSE_MAX_US ? sentinel->pause_us * 2 : PAUSE_MAX_US;
    memcpy(before, sentinel->primary, sizeof(before));
    if (cn_sentinel_find(sentinel, now + LOOK_AGAIN_US, &found, &err) != 0) {
        memcpy(sentinel->primary, before, sizeof(before));
        sentinel->port = port;
        return false; /* the primary may be well without Sentinels */
    }
    return strcmp(before, found.host) != 0 || port != found.port;
}

bool
cn_sentinel_moved(struct cn_sentinel *sentinel)
{
    struct told told = {.sentinel = sentinel};
    struct cn_error err;

    if (sentinel->wire.fd >= 0)
        cn_wire_hear(&sentinel->wire, take_message, &told, &err);
    if (told.known)
        return true;
    return sentinel->wire.fd < 0 && moved_meanwhile(sentinel);
}
