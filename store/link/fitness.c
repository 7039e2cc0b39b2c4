/* store/link/fitness.c - what a server must be before states are trusted to it. The
 * connection's thread.
 *
 * The same checks are made after each reconnection, because another server may have become the
 * primary.
 *
 * Nearly all of it comes from INFO, a text of lines "name:value\r\n" with sections "# Name" between
 * them:
 *   role:master                   a replica would refuse writes, or lose them
 *   loading:0                     while it loads, it answers most commands with an error
 *   maxmemory_policy:noeviction   any other policy may remove a state when memory runs short
 *   cluster_enabled:0             must agree with the scheme of the URL
 *   aof_enabled:1                 with durability power, together with appendfsync or WAITAOF
 * Two kinds of failure are told apart: CN_E_STATE_STORE means that somebody must change a setting,
 * and CN_E_STORE_UNREACHABLE that a later attempt may succeed. */
#include "store/link/fitness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A replica confirms once a second. One that has been silent for longer does not count as one that
 * may confirm. */
#define SILENT_S 3
#define INFO_MAX 32768 /* a server's INFO has about 6 KiB */

/* What the server said of itself. */
struct answers {
    bool login_refused;
    char why[200]; /* the server's words, when it refused something */
    char info[INFO_MAX];
    size_t info_len;
    char fsync[24]; /* CONFIG GET appendfsync; "" when it does not say */
};

#define fail_at(wire, err, ...) cn_wire_fail(wire, CN_E_STATE_STORE, err, __VA_ARGS__)
#define fail_for_now(wire, err, ...) cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err, __VA_ARGS__)

struct cn_str
cn_valkey_info_field(struct cn_str info, const char *name)
{
    const size_t len = strlen(name);
    const char *at = info.ptr, *end = info.ptr + info.len, *stop;

    while (at < end) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) > len && memcmp(at, name, len) == 0 && at[len] == ':') {
            const char *value = at + len + 1;

            while (stop > value && stop[-1] == '\r')
                stop--;
            return (struct cn_str){value, (size_t)(stop - value)};
        }
        at = stop < end ? stop + 1 : end;
    }
    return (struct cn_str){"", 0};
}

static void
copy_text(char *out, size_t max, struct cn_str text)
{
    const size_t n = text.len < max - 1 ? text.len : max - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

static void
take_login(void *ctx, uint32_t i, const redisReply *reply)
{
    struct answers *answers = ctx;

    (void)i;
    answers->login_refused = reply->type == REDIS_REPLY_ERROR;
    copy_text(answers->why, sizeof(answers->why), cn_valkey_text(reply));
}

static void
take_answer(void *ctx, uint32_t i, const redisReply *reply)
{
    struct answers *answers = ctx;
    const struct cn_str text = cn_valkey_text(reply);

    if (reply->type == REDIS_REPLY_ERROR && i == 0) {
        copy_text(answers->why, sizeof(answers->why), text);
    } else if (i == 0) {
        copy_text(answers->info, sizeof(answers->info), text);
        answers->info_len = strlen(answers->info);
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
        copy_text(answers->fsync, sizeof(answers->fsync), cn_valkey_text(reply->element[1]));
    }
}

int
cn_valkey_log_in(struct cn_valkey_wire *wire, uint64_t deadline_us, struct cn_error *err)
{
    const struct cn_shared_options *options = wire->options;
    struct answers answers = {0};
    int rc;

    if (!options->password[0])
        return 0;
    cn_wire_login(wire);
    if ((rc = cn_wire_talk(wire, take_login, &answers, deadline_us, err)) != 0)
        return rc;
    if (!answers.login_refused)
        return 0;
    return fail_at(wire, err,
                   "refuses the user name or the password of the URL (it says: %.60s); the URL is "
                   "state-store or the model's state.store",
                   answers.why);
}

static int
ask(struct cn_valkey_wire *wire, struct answers *answers, uint64_t deadline_us,
    struct cn_error *err)
{
    int rc;

    cn_wire_command(wire, 1);
    cn_wire_word(wire, CN_STR("INFO"));
    if (wire->options->power) {
        cn_wire_command(wire, 3);
        cn_wire_word(wire, CN_STR("CONFIG"));
        cn_wire_word(wire, CN_STR("GET"));
        cn_wire_word(wire, CN_STR("appendfsync"));
    }
    if ((rc = cn_wire_talk(wire, take_answer, answers, deadline_us, err)) != 0)
        return rc;
    if (answers->info_len)
        return 0;
    return fail_at(wire, err, "does not answer INFO (it says: %.100s)%s", answers->why,
                   strncmp(answers->why, "NOAUTH", 6) == 0
                       ? "; put a password into the URL, as in valkey://:password@host"
                       : "");
}

static bool
says(const struct answers *answers, const char *field, const char *value)
{
    const struct cn_str info = {answers->info, answers->info_len};

    return cn_str_eq(cn_valkey_info_field(info, field), cn_str_from(value));
}

/* Does the server have WAITAOF? Redis has it from 7.2 on. Valkey, which says that it is Redis
 * 7.2.4 for such questions, has it in all versions. */
static bool
has_waitaof(const struct answers *answers)
{
    const struct cn_str version =
        cn_valkey_info_field((struct cn_str){answers->info, answers->info_len}, "redis_version");
    char text[24];
    unsigned major = 0, minor = 0;

    copy_text(text, sizeof(text), version);
    return sscanf(text, "%3u.%3u", &major, &minor) == 2 &&
           (major > 7 || (major == 7 && minor >= 2));
}

/* A step with durability power must survive an outage of the primary's machine. Either the server
 * syncs each write, or it is asked after each batch whether it has done so. */
static int
check_power(struct cn_valkey_server *server, const struct answers *answers, struct cn_error *err)
{
    const bool aof = says(answers, "aof_enabled", "1");

    server->waits_for_disk = false;
    if (!server->options->power || (aof && strcmp(answers->fsync, "always") == 0))
        return 0;
    server->waits_for_disk = aof && has_waitaof(answers);
    if (server->waits_for_disk)
        return 0;
    return fail_at(
        &server->wire, err,
        "does not sync each write to its disk, which durability power needs (aof_enabled "
        "is %s, appendfsync is %s); set appendonly yes there, and appendfsync always unless it has "
        "WAITAOF (Valkey, or Redis from 7.2 on); or set durability process",
        aof ? "1" : "0", answers->fsync[0] ? answers->fsync : "not readable");
}

/* A URL of a cluster and one of a single primary are not the same: a node of a cluster has only a
 * part of the keys. */
static int
check_kind(const struct cn_valkey_wire *wire, const struct answers *answers, struct cn_error *err)
{
    const bool in_cluster = says(answers, "cluster_enabled", "1");

    if (in_cluster == wire->options->cluster)
        return 0;
    return fail_at(wire, err,
                   in_cluster ? "is a node of a cluster; begin the URL with valkey+cluster:// "
                                "(rediss+cluster:// with TLS)"
                              : "is not a node of a cluster; begin the URL with valkey:// "
                                "(rediss:// with TLS)");
}

static int
check_role(const struct cn_valkey_wire *wire, const struct answers *answers, struct cn_error *err)
{
    const struct cn_shared_options *options = wire->options;

    if (says(answers, "role", "master"))
        return 0;
    return fail_for_now(wire, err, "is a replica; %s",
                        options->cluster     ? "the cluster still takes it for a primary"
                        : options->master[0] ? "the Sentinels still take it for the primary"
                                             : "add the primary to the URL, as in "
                                               "valkey://host1:6379,host2:6379");
}

static int
check_answers(struct cn_valkey_server *server, const struct answers *answers, struct cn_error *err)
{
    const struct cn_valkey_wire *wire = &server->wire;
    const struct cn_str policy =
        cn_valkey_info_field((struct cn_str){answers->info, answers->info_len}, "maxmemory_policy");
    int rc;

    if (says(answers, "loading", "1"))
        return fail_for_now(wire, err, "is still loading its data");
    if ((rc = check_kind(wire, answers, err)) != 0 || (rc = check_role(wire, answers, err)) != 0)
        return rc;
    if (!cn_str_eq(policy, CN_STR("noeviction")))
        return fail_at(wire, err,
                       "may evict keys, and a state with them (maxmemory-policy is %.*s); set "
                       "maxmemory-policy noeviction there",
                       CN_STR_ARG(policy));
    return check_power(server, answers, err);
}

/* A part of "ip=10.0.0.2,port=6379,..."; empty if it is missing. */
static struct cn_str
part_of(struct cn_str replica, const char *name)
{
    const size_t len = strlen(name);
    const char *at = replica.ptr, *end = replica.ptr + replica.len, *stop;

    for (; at < end; at = stop + 1) {
        stop = memchr(at, ',', (size_t)(end - at));
        stop = stop ? stop : end;
        if ((size_t)(stop - at) >= len && memcmp(at, name, len) == 0)
            return (struct cn_str){at + len, (size_t)(stop - at) - len};
    }
    return (struct cn_str){"", 0};
}

/* A replica that has become the primary goes on with the history of the one before it, which is in
 * master_replid2.
 *
 * A server that has been a primary since its start has only zeros there. The replicas are in lines
 * such as slave0:ip=10.0.0.2,port=6379,state=online,offset=1234,lag=0. */
void
cn_valkey_take_history(struct cn_valkey_server *server, struct cn_str info)
{
    const struct cn_str before = cn_valkey_info_field(info, "master_replid2");
    char name[24];

    server->began_history = before.len > 0;
    for (size_t i = 0; i < before.len; i++)
        server->began_history &= before.ptr[i] == '0';
    server->replicas_online = 0;
    server->confirming.n = 0;
    for (uint32_t i = 0; i < CN_REPLICAS_SEEN; i++) {
        struct cn_str replica;

        snprintf(name, sizeof(name), "slave%u", i);
        replica = cn_valkey_info_field(info, name);
        if (!memmem(replica.ptr, replica.len, ",state=online", 13))
            continue;
        server->replicas_online++;
        if (strtoul(part_of(replica, "lag=").ptr, NULL, 10) <= SILENT_S)
            cn_replica_set_add(&server->confirming, part_of(replica, "ip="),
                               part_of(replica, "port="));
    }
}

static void
take_replicas(void *ctx, uint32_t i, const redisReply *reply)
{
    (void)i;
    cn_valkey_take_history(ctx, cn_valkey_text(reply));
}

int
cn_valkey_ask_replicas(struct cn_valkey_server *server, uint64_t deadline_us, struct cn_error *err)
{
    cn_wire_command(&server->wire, 2);
    cn_wire_word(&server->wire, CN_STR("INFO"));
    cn_wire_word(&server->wire, CN_STR("replication"));
    return cn_wire_talk(&server->wire, take_replicas, server, deadline_us, err);
}

int
cn_valkey_check_server(struct cn_valkey_server *server, uint64_t deadline_us, struct cn_error *err)
{
    struct answers answers = {0};
    int rc = cn_valkey_log_in(&server->wire, deadline_us, err);

    if (rc == 0)
        rc = ask(&server->wire, &answers, deadline_us, err);
    if (rc == 0)
        rc = check_answers(server, &answers, err);
    if (rc == 0)
        cn_valkey_take_history(server, (struct cn_str){answers.info, answers.info_len});
    return rc;
}
