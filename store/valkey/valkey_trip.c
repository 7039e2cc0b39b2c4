/* store/valkey/valkey_trip.c - round trips to a shared store, what is noted of them for metrics,
 * and errors of the server. Worker's thread. */
#include <stdio.h>
#include <string.h>

#include "core/time/clock.h"
#include "store/valkey/valkey_priv.h"

#define TRIPS_SMOOTHED 8 /* the mean of the last trips changes by this part with each one */

/* --- errors of the server */

/* The beginnings of a server's errors, by what a worker makes of them. A list ends with NULL. */
static const char *const passing[] = {"LOADING", "READONLY",    "MASTERDOWN", "NOREPLICAS",
                                      "BUSY",    "TRYAGAIN",    "UNBLOCKED",  "MOVED",
                                      "ASK",     "CLUSTERDOWN", "NOSCRIPT",   NULL};
/* A command that the user of the URL may not do: outside of a script, in a script of Redis 7.0, and
 * in one of Valkey 8 and Redis 8. */
static const char *const no_permission[] = {"NOPERM", "ERR The user executing the script can't",
                                            "ERR ACL failure in script", NULL};

static bool
begins_with_one_of(const redisReply *reply, const char *const words[])
{
    for (; *words; words++)
        if (cn_valkey_is_error(reply, *words))
            return true;
    return false;
}

int
cn_valkey_fail_reply(const struct cn_valkey_store *vs, const redisReply *reply,
                     struct cn_error *err)
{
    const struct cn_valkey_wire *wire = &vs->link.speaking->wire;
    const struct cn_str text = cn_valkey_text(reply);
    const int len = (int)(text.len < 200 ? text.len : 200);

    if (begins_with_one_of(reply, passing))
        return cn_wire_fail(wire, CN_E_STORE_UNREACHABLE, err, "cannot be used now: %.*s", len,
                            text.ptr);
    if (cn_valkey_is_error(reply, "OOM"))
        return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                            "is full (maxmemory); end sequences, or give it more memory");
    if (begins_with_one_of(reply, no_permission))
        return cn_wire_fail(wire, CN_E_STATE_STORE, err,
                            "does not permit a command to the user of the URL: %.*s; "
                            "docs/shared-store.md lists the commands and keys that the user needs",
                            len, text.ptr);
    return cn_wire_fail(wire, CN_E_STATE_STORE, err, "refuses a command: %.*s", len, text.ptr);
}

/* --- round trips */

const struct cn_store_activity *
cn_valkey_note(struct cn_valkey_store *vs, int rc, const struct cn_error *err)
{
    struct cn_store_activity *activity = vs->activity;
    const bool connected = cn_valkey_link_connected(&vs->link);

    if (activity == &vs->own && connected != activity->connected) {
        activity->connected = connected;
        activity->since_wall_ms = cn_wall_ms();
    }
    if (rc != 0)
        snprintf(activity->last_error, sizeof(activity->last_error), "%.255s", err->message);
    return activity;
}

int
cn_valkey_end_trip(struct cn_valkey_store *vs, bool confirm, cn_valkey_reply_fn on_reply, void *ctx,
                   uint64_t begun_us, uint64_t deadline_us, struct cn_error *err)
{
    struct cn_store_activity *activity = vs->activity;
    const int rc = cn_valkey_talk(&vs->link, confirm, on_reply, ctx, deadline_us, err);
    const uint64_t took_us = cn_now_us() - begun_us;

    cn_duration_observe(activity->trips, took_us);
    if (rc == 0)
        activity->trip_us = (activity->trip_us * (TRIPS_SMOOTHED - 1) + took_us) / TRIPS_SMOOTHED;
    cn_valkey_note(vs, rc, err);
    return rc;
}
