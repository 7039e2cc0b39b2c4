/* store/link/valkey_cluster.c - finds the primaries of a cluster, and follows it when slots move or
 * a replica becomes a primary. The link's thread.
 *
 * The first answer comes from a host of the URL. Later the servers that are connected are asked in
 * turn, once a second while the link is used, and every tenth of a second while a server does not
 * answer or has said that the map is wrong. An answer counts only if its configuration epoch, which
 * rises with each failover, is not lower than one that was seen before: a primary that was stopped
 * for a while and does not know yet that it was replaced still names itself. A cluster that was
 * made anew begins again at low epochs; it is believed when no other answer came for some time. */
#include "store/link/valkey_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/link/fitness.h"

#define REFRESH_US 1000000 /* how old the map may be, so that a replaced primary is left */
#define TROUBLE_US 100000  /* the same while something is wrong */
#define ASK_US 100000      /* how long an answer may take while there is a map */
#define PAUSE_US 20000     /* for a cluster that can do nothing now */
#define LOWER_US 10000000  /* then answers with lower epochs are believed */

void
cn_valkey_cluster_init(struct cn_valkey_link *link)
{
    cn_wire_init(&link->cluster.wire, link->lib, &link->options);
}

void
cn_valkey_cluster_fini(struct cn_valkey_link *link)
{
    cn_wire_fini(&link->cluster.wire);
}

/* --- an answer */

struct answer {
    struct cn_valkey_link *link;
    const char *origin;
    struct cn_hash_slot_owner owners[CN_VALKEY_PLACES_MAX];
    uint64_t epoch;
    bool has_slots, not_a_cluster;
    char why[160]; /* the server's words, if it refused something */
};

static uint64_t
read_epoch(struct cn_str info)
{
    const struct cn_str text = cn_valkey_info_field(info, "cluster_current_epoch");
    char digits[24];

    snprintf(digits, sizeof(digits), "%.*s", text.len < 23 ? (int)text.len : 23, text.ptr);
    return strtoull(digits, NULL, 10);
}

static void
take_answer(void *ctx, uint32_t i, const redisReply *reply)
{
    struct answer *answer = ctx;
    const struct cn_valkey_cluster *cluster = &answer->link->cluster;
    const struct cn_str text = cn_valkey_text(reply);

    if (reply->type == REDIS_REPLY_ERROR) {
        snprintf(answer->why, sizeof(answer->why), "%.*s", text.len < 159 ? (int)text.len : 159,
                 text.ptr);
        answer->not_a_cluster |= strstr(answer->why, "cluster support disabled") != NULL;
    } else if (i == 0) {
        answer->epoch = read_epoch(text);
    } else {
        answer->has_slots = cn_hash_slots_take(reply, answer->origin, cluster->slots,
                                               cluster->n_places, answer->owners);
    }
}

/* Asks on a connection that has logged in. */
static int
ask(struct cn_valkey_wire *wire, struct answer *answer, uint64_t deadline_us, struct cn_error *err)
{
    int rc;

    cn_wire_command(wire, 2);
    cn_wire_word(wire, CN_STR("CLUSTER"));
    cn_wire_word(wire, CN_STR("INFO"));
    cn_wire_command(wire, 2);
    cn_wire_word(wire, CN_STR("CLUSTER"));
    cn_wire_word(wire, CN_STR("SLOTS"));
    if ((rc = cn_wire_talk(wire, take_answer, answer, deadline_us, err)) != 0)
        return rc;
    if (answer->not_a_cluster)
        return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                            "is not a node of a cluster; begin the URL with valkey:// (rediss:// "
                            "with TLS)");
    if (strncmp(answer->why, "LOADING", 7) == 0)
        return cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err, "is still loading its data");
    if (answer->why[0])
        return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                            "does not say which servers the cluster has (it says: %.100s)%s",
                            answer->why,
                            strncmp(answer->why, "NOAUTH", 6) == 0
                                ? "; put a password into the URL, as in "
                                  "valkey+cluster://:password@host"
                                : "; its user needs the commands that docs/shared-store.md lists");
    if (answer->has_slots)
        return 0;
    return cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err,
                        "knows no server of the cluster that has the keys; look at CLUSTER INFO "
                        "and CLUSTER SLOTS there");
}

/* --- the map */

static bool
is_owner(const struct cn_valkey_cluster *cluster, const struct cn_valkey_server *server)
{
    for (uint32_t i = 0; i < cluster->n_places; i++)
        if (cluster->owner[i] == server)
            return true;
    return false;
}

/* Forgets servers that have no place and got no command since the last time. */
static void
forget_servers(struct cn_valkey_link *link)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < link->n_servers; i++) {
        struct cn_valkey_server *server = link->servers[i];

        if (server->used || is_owner(&link->cluster, server)) {
            server->used = false;
            link->servers[n++] = server;
        } else {
            cn_valkey_server_destroy(server);
        }
    }
    link->n_servers = n;
}

/* Is the answer as new as what is known?
 *
 * Suppose epoch 7 was seen, and a primary answers with 6: it was probably replaced, so its answer
 * is left out. If only answers with 6 come for LOWER_US, the cluster itself must have begun
 * anew. */
static bool
is_new_enough(struct cn_valkey_cluster *cluster, uint64_t epoch)
{
    const uint64_t now = cn_now_us();

    if (epoch >= cluster->epoch || !cluster->known) {
        cluster->lower_us = 0;
        return true;
    }
    if (!cluster->lower_us)
        cluster->lower_us = now;
    return now - cluster->lower_us >= LOWER_US;
}

static bool
use_answer(struct cn_valkey_link *link, const struct answer *answer)
{
    struct cn_valkey_cluster *cluster = &link->cluster;

    if (!is_new_enough(cluster, answer->epoch))
        return false;
    /* The servers of the last trip may be forgotten now, and its commands with them. */
    link->n_commands = 0;
    memset(cluster->owner, 0, sizeof(cluster->owner));
    for (uint32_t i = 0; i < cluster->n_places; i++)
        if (answer->owners[i].port)
            cluster->owner[i] =
                cn_valkey_link_server(link, answer->owners[i].host, answer->owners[i].port);
    forget_servers(link);
    cluster->epoch = answer->epoch;
    cluster->known = true;
    cluster->stale = false;
    cluster->lower_us = 0;
    cluster->asked_us = cn_now_us();
    return true;
}

/* --- asking */

/* Asks a host of the URL, on a connection that is only for this. */
static int
ask_host(struct cn_valkey_link *link, const struct cn_shared_host *host, uint64_t deadline_us,
         struct cn_error *err)
{
    struct cn_valkey_wire *wire = &link->cluster.wire;
    struct answer *answer = cn_alloc(sizeof(*answer));
    int rc = cn_wire_connect(wire, "the state store", host, deadline_us, err);

    *answer = (struct answer){.link = link, .origin = host->host};
    if (rc == 0)
        rc = cn_valkey_log_in(wire, deadline_us, err);
    if (rc == 0)
        rc = ask(wire, answer, deadline_us, err);
    cn_wire_drop(wire);
    if (rc == 0 && !use_answer(link, answer))
        rc = cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err,
                          "has an older map of the cluster than other servers had");
    cn_free(answer);
    return rc;
}

int
cn_valkey_cluster_find(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_valkey_cluster *cluster = &link->cluster;
    const uint32_t n = link->options.n_hosts;
    int rc = CN_E_STORE_UNREACHABLE;

    /* Each gets an equal share of the time that is left. */
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us(), left = deadline_us > now ? deadline_us - now : 0;

        rc = ask_host(link, &link->hosts[cluster->host], now + left / (n - i), err);
        if (rc != CN_E_STORE_UNREACHABLE)
            return rc;
        cluster->host = (cluster->host + 1) % n;
    }
    return rc;
}

/* Asks one of the connected servers, the next one in turn. Returns whether the map is new. */
static bool
ask_servers(struct cn_valkey_link *link, uint64_t deadline_us)
{
    struct cn_valkey_cluster *cluster = &link->cluster;
    struct answer *answer = cn_alloc(sizeof(*answer));
    struct cn_error err;
    bool done = false;

    for (uint32_t i = 0; i < link->n_servers && !done; i++) {
        struct cn_valkey_server *server = link->servers[cluster->next++ % link->n_servers];
        const uint64_t began_us = cn_now_us();
        int rc;

        if (server->wire.fd < 0 || began_us >= deadline_us)
            continue;
        *answer = (struct answer){.link = link, .origin = server->host};
        rc = ask(&server->wire, answer, deadline_us, &err);
        done = rc == 0 && use_answer(link, answer);
        if (rc == 0 || server->wire.fd >= 0)
            continue;
        server->failure = err;
        cn_valkey_retry_later(&server->retry, began_us, link->options.timeout_ms);
    }
    cn_free(answer);
    return done;
}

static bool
in_trouble(const struct cn_valkey_link *link)
{
    const struct cn_valkey_cluster *cluster = &link->cluster;

    if (cluster->stale)
        return true;
    for (uint32_t i = 0; i < cluster->n_places; i++)
        if (!cluster->owner[i] || cluster->owner[i]->retry.failures > 0)
            return true;
    return false;
}

void
cn_valkey_cluster_refresh(struct cn_valkey_link *link, uint64_t deadline_us)
{
    struct cn_valkey_cluster *cluster = &link->cluster;
    uint64_t now = cn_now_us(), until;
    struct cn_error err;

    if (cluster->doubted && now + PAUSE_US < deadline_us) {
        usleep(PAUSE_US);
        now = cn_now_us();
    }
    cluster->doubted = false;
    if (now - cluster->asked_us < (in_trouble(link) ? TROUBLE_US : REFRESH_US))
        return;
    until = now + ASK_US < deadline_us ? now + ASK_US : deadline_us;
    cluster->asked_us = now; /* whether somebody answers or not */
    if (ask_servers(link, until) || now < cluster->retry.next_us)
        return;
    if (cn_valkey_cluster_find(link, now + ASK_US < deadline_us ? now + ASK_US : deadline_us,
                               &err) == 0)
        cluster->retry = (struct cn_valkey_retry){0};
    else
        cn_valkey_retry_later(&cluster->retry, now, link->options.timeout_ms);
}
