/* store/link/link.c - finds the shared store's servers, connects to them, and does so again after
 * failures. The thread that owns the link.
 *
 * There are three ways to find the servers: the URL has them, Sentinels name the primary, or the
 * nodes of a cluster say which of them has which keys (valkey_cluster.c). valkey_exchange.c sends
 * the commands.
 *
 * Calls never wait longer than their deadline, which is the model's time limit for the store. While
 * the store is down, a call fails at once if another one has waited in vain a short while ago
 * (FAIL_FAST_US): a batch of many sequences would otherwise wait once for each of them. */
#include "store/link/link.h"

#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "store/link/fitness.h"
#include "store/link/valkey_cluster.h"

#define FAIL_FAST_US 100000 /* after a wait in vain, calls fail at once for this time */
#define RETRY_US 20000      /* pause between two attempts to connect */
#define ASK_AGAIN_US 100000 /* the same pause if Sentinels are asked each time */
#define ATTEMPT_US 500000   /* an attempt with Sentinels need not leave time for another one */

static void
copy_options(struct cn_valkey_link *link, const struct cn_shared_options *options)
{
    struct cn_shared_options *own = &link->options;

    *own = *options;
    if (own->n_hosts > CN_VALKEY_HOSTS_MAX)
        own->n_hosts = CN_VALKEY_HOSTS_MAX;
    for (uint32_t i = 0; i < own->n_hosts; i++)
        link->hosts[i] = (struct cn_shared_host){.host = cn_strdup(options->hosts[i].host),
                                                 .port = options->hosts[i].port};
    own->hosts = link->hosts;
    own->master = cn_strdup(options->master ? options->master : "");
    own->user = cn_strdup(options->user);
    own->password = cn_strdup(options->password);
    own->prefix = cn_strdup(options->prefix);
    own->model = cn_strdup(options->model);
    own->version = cn_strdup(options->version);
    if (!options->tls)
        return;
    link->tls = (struct cn_shared_tls){.ca = cn_strdup(options->tls->ca),
                                       .certificate = cn_strdup(options->tls->certificate),
                                       .key = cn_strdup(options->tls->key),
                                       .name = cn_strdup(options->tls->name)};
    own->tls = &link->tls;
}

int
cn_valkey_link_init(struct cn_valkey_link *link, const struct cn_shared_options *options,
                    const char *script, struct cn_error *err)
{
    int rc;

    memset(link, 0, sizeof(*link));
    rc = cn_hiredis_open(&link->lib, err);
    link->script = script;
    copy_options(link, options);
    cn_sentinel_init(&link->sentinel, &link->options, link->lib);
    cn_replica_count_init(&link->count, &link->options, link->lib);
    cn_valkey_cluster_init(link);
    if (!link->options.cluster)
        link->servers[link->n_servers++] =
            cn_valkey_server_create(&link->options, link->lib, script);
    return rc;
}

static void
free_text(const char *text)
{
    cn_free((void *)(uintptr_t)text);
}

void
cn_valkey_link_fini(struct cn_valkey_link *link)
{
    for (uint32_t i = 0; i < link->n_servers; i++)
        cn_valkey_server_destroy(link->servers[i]);
    cn_sentinel_fini(&link->sentinel);
    cn_replica_count_fini(&link->count);
    cn_valkey_cluster_fini(link);
    cn_free(link->commands);
    cn_free(link->begun);
    for (uint32_t i = 0; i < link->options.n_hosts; i++)
        free_text(link->hosts[i].host);
    free_text(link->options.master);
    free_text(link->options.user);
    free_text(link->options.password);
    free_text(link->options.prefix);
    free_text(link->options.model);
    free_text(link->options.version);
    free_text(link->tls.ca);
    free_text(link->tls.certificate);
    free_text(link->tls.key);
    free_text(link->tls.name);
}

uint32_t
cn_valkey_link_add_slot(struct cn_valkey_link *link, uint16_t slot)
{
    cn_assert(link->cluster.n_places < CN_VALKEY_PLACES_MAX && slot < CN_HASH_SLOTS);
    link->cluster.slots[link->cluster.n_places] = slot;
    return link->cluster.n_places++;
}

uint32_t
cn_valkey_link_add_place(struct cn_valkey_link *link, struct cn_str key)
{
    return cn_valkey_link_add_slot(link, cn_hash_slot_of(key));
}

struct cn_valkey_server *
cn_valkey_link_server(struct cn_valkey_link *link, const char *host, uint16_t port)
{
    struct cn_valkey_server *server;

    for (uint32_t i = 0; i < link->n_servers; i++)
        if (link->servers[i]->port == port && strcmp(link->servers[i]->host, host) == 0)
            return link->servers[i];
    if (link->n_servers == CN_VALKEY_SERVERS_MAX)
        return NULL;
    server = cn_valkey_server_create(&link->options, link->lib, link->script);
    cn_valkey_server_move(server, host, port);
    return link->servers[link->n_servers++] = server;
}

void
cn_valkey_link_doubt(struct cn_valkey_link *link)
{
    if (link->options.cluster)
        link->cluster.stale = link->cluster.doubted = true;
    else
        cn_wire_drop(&link->servers[0]->wire);
}

bool
cn_valkey_link_connected(const struct cn_valkey_link *link)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < link->n_servers; i++) {
        if (link->servers[i]->retry.failures > 0)
            return false;
        n += link->servers[i]->wire.fd >= 0;
    }
    return n > 0;
}

uint64_t
cn_valkey_deadline_us(const struct cn_valkey_link *link)
{
    return cn_now_us() + (uint64_t)link->options.timeout_ms * 1000;
}

/* --- connecting */

/* Connects to the primary, which is at this host now. */
static int
try_host(struct cn_valkey_link *link, const struct cn_shared_host *host, uint64_t deadline_us,
         struct cn_error *err)
{
    struct cn_valkey_server *server = link->servers[0];
    int rc;

    cn_valkey_server_move(server, host->host, host->port);
    rc = cn_valkey_server_connect(server, deadline_us, err);
    if (rc == 0) {
        server->retry = (struct cn_valkey_retry){0};
        memcpy(link->digest, server->digest, sizeof(link->digest));
    }
    return rc;
}

/* Tries each host once, beginning with the one that was the primary last. Each gets an equal share
 * of the time that is left. */
static int
try_hosts(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const uint32_t n = link->options.n_hosts;
    int rc = CN_E_STORE_UNREACHABLE;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us();
        const uint64_t left = deadline_us > now ? deadline_us - now : 0;

        rc = try_host(link, &link->hosts[link->host], now + left / (n - i), err);
        if (rc != CN_E_STORE_UNREACHABLE)
            return rc;
        link->host = (link->host + 1) % n;
    }
    return rc;
}

/* Sentinels choose the replica with the largest offset. An offset counts the bytes of one history
 * of the data, and a primary that was restarted begins a new history at zero. Until a replica has
 * the new history, its offset is that of the old one and may be the largest, though it lacks all
 * that the other replicas have confirmed since. So a confirmation counts for nothing before all
 * replicas that may be chosen have the new history. The numbers are compared and not the addresses,
 * because Sentinel and primary may name a replica differently. */
static int
check_history(struct cn_valkey_link *link, struct cn_error *err)
{
    struct cn_valkey_server *server = link->servers[0];
    const uint32_t electable = link->sentinel.electable;

    if (link->options.replicas == 0 || !server->began_history ||
        server->replicas_online >= electable)
        return 0;
    cn_wire_fail(&server->wire, CN_E_STORE_UNREACHABLE, err,
                 "was started anew, and only %u of the %u replicas that the Sentinels might make "
                 "the primary have its data yet; a step would be lost with a replica that does "
                 "not. Let the others connect, or wait until the Sentinels take them for down",
                 server->replicas_online, electable);
    cn_wire_drop(&server->wire);
    return err->code;
}

/* Sets how many replicas must confirm from now on. The primary has just said which ones it has. */
static void
count_replicas(struct cn_valkey_link *link, uint64_t deadline_us)
{
    struct cn_valkey_server *server = link->servers[0];

    link->sentinel.replicas_changed = false;
    cn_replica_count_renew(&link->count, &server->confirming, deadline_us);
    server->must_confirm = link->count.wanted;
    /* What one Sentinel has said is better than nothing. */
    if (!link->count.had_majority && server->must_confirm < link->sentinel.electable)
        server->must_confirm = link->count.wanted = link->sentinel.electable;
}

/* Counts the replicas again if a Sentinel has sent a message about them, or if it is time. */
static void
follow_replicas(struct cn_valkey_link *link, uint64_t deadline_us)
{
    struct cn_error err;

    if (link->begun || (!link->sentinel.replicas_changed && cn_now_us() < link->count.next_us))
        return;
    if (cn_valkey_ask_replicas(link->servers[0], deadline_us, &err) == 0 &&
        (link->sentinel.replicas_changed ||
         !cn_replica_count_holds(&link->count, &link->servers[0]->confirming)))
        count_replicas(link, deadline_us);
}

/* Asks the Sentinels for the primary and connects to it. A primary that does not answer gets half
 * of the time, because the Sentinels may name another one then. */
static int
try_sentinels(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const uint64_t now = cn_now_us(), left = deadline_us > now ? deadline_us - now : 0;
    struct cn_shared_host primary;
    int rc;

    if (left / 2 > ATTEMPT_US)
        deadline_us = now + left / 2;
    rc = cn_sentinel_find(&link->sentinel, deadline_us, &primary, err);
    if (rc == 0)
        rc = try_host(link, &primary, deadline_us, err);
    if (rc == 0)
        rc = check_history(link, err);
    if (rc == 0 && link->options.replicas == CN_REPLICAS_ALL)
        count_replicas(link, deadline_us);
    return rc;
}

/* Finds the store's servers, and connects to the primary if there is only one. */
static int
try_once(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    if (link->options.cluster)
        return cn_valkey_cluster_find(link, deadline_us, err);
    if (link->options.master[0])
        return try_sentinels(link, deadline_us, err);
    return try_hosts(link, deadline_us, err);
}

/* Is there nothing to do? */
static bool
is_ready(struct cn_valkey_link *link, uint64_t deadline_us)
{
    struct cn_valkey_wire *wire;

    if (link->options.cluster) {
        if (link->cluster.known)
            cn_valkey_cluster_refresh(link, deadline_us);
        return link->cluster.known;
    }
    wire = &link->servers[0]->wire;
    if (wire->fd >= 0 && link->options.master[0] && cn_sentinel_moved(&link->sentinel))
        cn_wire_drop(wire);
    if (wire->fd >= 0 && link->options.replicas == CN_REPLICAS_ALL)
        follow_replicas(link, deadline_us);
    return wire->fd >= 0;
}

int
cn_valkey_link_ready(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err)
{
    const bool was_down = link->failed_us != 0;
    const uint64_t pause_us = link->options.master[0] ? ASK_AGAIN_US : RETRY_US;
    struct cn_error last = {0}, why = {0};
    int rc;

    if (is_ready(link, deadline_us))
        return 0;
    if (was_down && cn_now_us() - link->failed_us < FAIL_FAST_US) {
        if (err)
            *err = link->failure;
        return link->failure.code;
    }
    /* The first call that finds the store down tries again until its deadline. While the store
     * stays down, each later call tries once. The error is that of the last attempt that had enough
     * time: one that the deadline cut short only knows that the time was over. */
    for (;;) {
        rc = try_once(link, deadline_us, &last);
        if (!why.code || cn_now_us() < deadline_us)
            why = last;
        if (rc != CN_E_STORE_UNREACHABLE || was_down || cn_now_us() + pause_us >= deadline_us)
            break;
        usleep((useconds_t)pause_us);
    }
    link->failure = why;
    link->failed_us = rc == 0 ? 0 : cn_now_us();
    if (rc != 0 && err)
        *err = link->failure;
    return rc;
}
