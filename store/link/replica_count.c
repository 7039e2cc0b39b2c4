/* store/link/replica_count.c - asks all Sentinels about the primary's replicas. The link's thread.
 *
 * WAIT N says that N replicas have a step, and not which ones. So N must count every replica that
 * could confirm, or else one that cannot become the primary would confirm in place of one that can.
 * A replica counts if
 * - any Sentinel could make it the primary. One Sentinel that has lost sight of it proves nothing:
 *   the Sentinels choose a leader among themselves, and the leader chooses the replica by what it
 *   sees. So all of them are asked;
 * - its priority is 0. It never becomes the primary, but it confirms;
 * - or it has confirmed something to the primary in the last seconds, and so may do it again, even
 *   though no Sentinel reaches it.
 *
 * A failover needs the majority of the Sentinels. If fewer have answered, this node may be cut off
 * from the others together with a primary that is being replaced, so the number does not fall.
 *
 * Only one Sentinel tells this node of changes. So while any Sentinel does not count a replica that
 * it knows, the number is renewed once a second, because another one may see that replica first.
 * Otherwise the primary alone is asked once a second whether further replicas confirm: Sentinels
 * see a new one only after some seconds. A Sentinel that does not answer is left out for some
 * seconds, because the steps wait meanwhile. */
#include "store/link/replica_count.h"

#include <stdlib.h>
#include <string.h>

#include "core/time/clock.h"
#include "store/link/sentinel.h"

#define COUNT_SHARE 4 /* all Sentinels together are waited for this part of a trip's time */
#define SILENT_US 10000000
#define AGAIN_US 1000000 /* the shortest pause before the number is renewed without a message */
#define PAUSE_FACTOR 10  /* at most a tenth of a worker's time is spent on this */

void
cn_replica_count_init(struct cn_replica_count *count, const struct cn_shared_options *options,
                      const struct cn_hiredis *lib)
{
    memset(count, 0, sizeof(*count));
    count->options = options;
    count->next_us = UINT64_MAX;
    cn_wire_init(&count->wire, lib, options);
}

void
cn_replica_count_fini(struct cn_replica_count *count)
{
    cn_wire_fini(&count->wire);
}

/* --- what one Sentinel says */

static bool
is(const redisReply *instance, const char *name, const char *value)
{
    const char *said = cn_sentinel_field(instance, name);

    return said && strcmp(said, value) == 0;
}

/* Has the Sentinel never had an answer of this replica to INFO? Then it does not choose it. So it
 * is with all replicas for a moment after a failover, and with the old primary until it is back. */
static bool
is_unheard_of(const redisReply *replica)
{
    return is(replica, "runid", "");
}

/* Is this an old primary that came back and still calls itself one? Its offset is unknown and
 * counts as 0, so the Sentinels choose any other replica first. They make it a replica some seconds
 * later. A replica that they have just promoted calls itself a primary, too, but has an offset. */
static bool
is_old_primary(const redisReply *replica)
{
    return is(replica, "role-reported", "master") && is(replica, "slave-repl-offset", "0");
}

bool
cn_replica_views_take_primary(struct cn_replica_views *views, const redisReply *reply)
{
    const char *others = cn_sentinel_field(reply, "num-other-sentinels");
    const unsigned long n = others ? strtoul(others, NULL, 10) : 0;
    const char *flags;

    if (n < UINT32_MAX && n + 1 > views->sentinels)
        views->sentinels = (uint32_t)n + 1;
    flags = cn_sentinel_field(reply, "flags");
    views->primary_is_down = flags && strstr(flags, "_down");
    return others != NULL;
}

void
cn_replica_views_take_replicas(struct cn_replica_views *views, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return;
    views->answered++;
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *replica = reply->element[i];
        const char *ip = cn_sentinel_field(replica, "ip");
        const char *port = cn_sentinel_field(replica, "port"), *run;

        if (!ip || !port)
            continue;
        cn_replica_set_add(&views->known, cn_str_from(ip), cn_str_from(port));
        if (!cn_sentinel_reaches(replica, views->primary_is_down) || is_unheard_of(replica) ||
            is_old_primary(replica)) {
            views->differ = true;
            continue;
        }
        run = cn_sentinel_field(replica, "runid");
        cn_replica_set_add(&views->counted, cn_str_from(ip), cn_str_from(port));
        cn_replica_set_add(&views->runs, cn_str_from(run ? run : ip), CN_STR(""));
    }
}

/* --- the number */

/* How many replicas confirm besides those of `counted`? Sentinels and primary mostly give the same
 * addresses. If they agree about none, one side uses names, and only the numbers are compared. */
static uint32_t
further(const struct cn_replica_views *views, const struct cn_replica_set *counted,
        const struct cn_replica_set *confirming)
{
    if (cn_replica_set_common(confirming, &views->known) > 0)
        return confirming->n - cn_replica_set_common(confirming, counted);
    return confirming->n > counted->n ? confirming->n - counted->n : 0;
}

uint32_t
cn_replica_views_wanted(const struct cn_replica_views *views,
                        const struct cn_replica_set *confirming, uint32_t before, bool *settled)
{
    const bool majority = (uint64_t)views->answered * 2 > views->sentinels;
    const struct cn_replica_set *counted = majority ? &views->counted : &views->known;
    uint32_t n = (majority ? views->runs.n : views->known.n) + further(views, counted, confirming);

    if (!majority && n < before)
        n = before;
    *settled = majority && !views->differ;
    return n > 0 ? n : 1;
}

/* --- asking */

struct asking {
    struct cn_replica_views *views;
    uint32_t first; /* the place of the first reply that is not about the login */
    bool knows;     /* the Sentinel knows the primary */
};

static void
take(void *ctx, uint32_t i, const redisReply *reply)
{
    struct asking *asking = ctx;

    if (i == asking->first)
        asking->knows = cn_replica_views_take_primary(asking->views, reply);
    if (i == asking->first + 1 && asking->knows)
        cn_replica_views_take_replicas(asking->views, reply);
}

static void
put_question(struct cn_valkey_wire *wire, const char *what, const char *master)
{
    cn_wire_command(wire, 3);
    cn_wire_word(wire, CN_STR("SENTINEL"));
    cn_wire_word(wire, cn_str_from(what));
    cn_wire_word(wire, cn_str_from(master));
}

/* A Sentinel without a password of its own refuses the login and answers the questions. */
static bool
ask(struct cn_replica_count *count, uint32_t host, struct cn_replica_views *views,
    uint64_t deadline_us)
{
    const struct cn_shared_options *options = count->options;
    struct asking asking = {.views = views, .first = options->password[0] ? 1 : 0};
    struct cn_valkey_wire *wire = &count->wire;
    struct cn_error err;
    int rc;

    if (cn_wire_connect(wire, "the Sentinel", &options->hosts[host], deadline_us, &err) != 0)
        return false;
    if (options->password[0])
        cn_wire_login(wire);
    put_question(wire, "MASTER", options->master);
    put_question(wire, "REPLICAS", options->master);
    rc = cn_wire_talk(wire, take, &asking, deadline_us, &err);
    cn_wire_drop(wire);
    return rc == 0;
}

static void
ask_all(struct cn_replica_count *count, struct cn_replica_views *views, uint64_t deadline_us)
{
    const uint32_t n = count->options->n_hosts;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t now = cn_now_us(), left = deadline_us > now ? deadline_us - now : 0;

        if (now >= count->silent_until_us[i] && !ask(count, i, views, now + left / (n - i)))
            count->silent_until_us[i] = cn_now_us() + SILENT_US;
    }
}

void
cn_replica_count_renew(struct cn_replica_count *count, const struct cn_replica_set *confirming,
                       uint64_t deadline_us)
{
    const uint64_t began = cn_now_us();
    const uint64_t limit_us = began + count->options->timeout_ms * UINT64_C(1000) / COUNT_SHARE;
    struct cn_replica_views views = {.sentinels = count->options->n_hosts};
    uint64_t pause_us;

    ask_all(count, &views, deadline_us < limit_us ? deadline_us : limit_us);
    count->wanted = cn_replica_views_wanted(&views, confirming, count->wanted, &count->settled);
    count->had_majority |= (uint64_t)views.answered * 2 > views.sentinels;
    count->seen = views.known;
    cn_replica_set_join(&count->seen, confirming);
    pause_us = (cn_now_us() - began) * PAUSE_FACTOR;
    count->next_us = cn_now_us() + (pause_us > AGAIN_US ? pause_us : AGAIN_US);
}

bool
cn_replica_count_holds(struct cn_replica_count *count, const struct cn_replica_set *confirming)
{
    if (!count->settled || cn_replica_set_common(confirming, &count->seen) < confirming->n)
        return false;
    count->next_us = cn_now_us() + AGAIN_US;
    return true;
}
