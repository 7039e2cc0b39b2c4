/* frontend/server/server_stop.c - the end of the server: leave, drain, let connections go, stop the
 * loops.
 *
 * The stop has five phases:
 * - leave: for --drain-delay, which is 0 by default, the server serves as before. But it says that
 *   it is not ready, and each answer closes its connection, so that proxies send requests to other
 *   servers. A second signal ends this phase.
 * - drain: on every loop the inference listener accepts no more connections, and management lets
 *   the steps that wait or run come to their end. Management and metrics stay open, so that one can
 *   watch. One more signal shortens this phase.
 * - finish: when the steps are done, all listeners stop, and clients get FLUSH_MS to take their
 *   last answers.
 * - cut: after that the connections that are left are shut down.
 * - give up: if a connection is still there GIVE_UP_MS after the finish began, it is logged as an
 *   error, and the server exits without cleaning up, since a listener must be empty for that.
 *
 * Each loop does this for its own site and then posts `finished` to loop 0, which counts the loops
 * that are missing and stops when none is.
 */
#include <signal.h>

#include "core/log/log.h"
#include "frontend/page/feed.h"
#include "frontend/server/grpc_door.h"
#include "frontend/server/server_priv.h"
#include "management/management.h"

#define FLUSH_MS 2000   /* time for clients to take the last answers */
#define GIVE_UP_MS 5000 /* time for cut connections to be gone */
#define FINISH_TICK_MS 10

static void
on_finished(struct cn_msg *msg)
{
    struct cn_server_site *site = cn_container_of(msg, struct cn_server_site, finished);
    struct cn_server *server = site->server;

    if (site->is_stuck)
        server->is_stuck = true;
    if (--server->n_unfinished == 0)
        cn_loop_stop(server->loops[0]);
}

/* Logs which listeners still have connections. */
static void
tell_left(const struct cn_server_site *site)
{
    unsigned api, connections, requests;

    for (api = 0; api < CN_N_APIS; api++) {
        if (!site->listeners[api] || cn_http_listener_is_empty(site->listeners[api]))
            continue;
        cn_http_listener_left(site->listeners[api], &connections, &requests);
        cn_log(CN_LOG_ERROR, "event=stop_waits_for listener=%u loop=%u connections=%u requests=%u",
               api, cn_loop_index(site->loop), connections, requests);
    }
    if (!cn_grpc_door_is_empty(site->server->grpc, cn_loop_index(site->loop)))
        cn_log(CN_LOG_ERROR, "event=stop_waits_for listener=grpc loop=%u",
               cn_loop_index(site->loop));
}

/* Looks every FINISH_TICK_MS whether the site is empty, and cuts or gives up when it is time. */
static void
check_finished(struct cn_timer *timer)
{
    struct cn_server_site *site = cn_container_of(timer, struct cn_server_site, timer);
    uint64_t now_ms = cn_loop_now_ms(site->loop), waited_ms = now_ms - site->finish_since_ms;
    bool is_empty = true;
    unsigned api;

    for (api = 0; api < CN_N_APIS; api++) {
        struct cn_http_listener *listener = site->listeners[api];

        if (!listener || cn_http_listener_is_empty(listener))
            continue;
        is_empty = false;
        if (waited_ms >= FLUSH_MS && !site->was_cut)
            cn_http_listener_cut(listener);
    }
    if (!cn_grpc_door_is_empty(site->server->grpc, cn_loop_index(site->loop))) {
        is_empty = false;
        if (waited_ms >= FLUSH_MS && !site->was_cut)
            cn_grpc_door_cut(site->server->grpc); /* cuts the calls of all loops */
    }
    site->was_cut = waited_ms >= FLUSH_MS;
    if (!is_empty && waited_ms < GIVE_UP_MS) {
        cn_timer_set(cn_loop_wheel(site->loop), timer, now_ms + FINISH_TICK_MS);
        return;
    }
    site->is_stuck = !is_empty;
    if (!is_empty)
        tell_left(site);
    cn_loop_post(site->server->loops[0], &site->finished);
}

static void
finish_site(struct cn_msg *msg)
{
    struct cn_server_site *site = cn_container_of(msg, struct cn_server_site, finish);
    unsigned api;

    for (api = 0; api < CN_N_APIS; api++)
        cn_server_drain_listener(site, api);
    if (cn_loop_index(site->loop) == 0) {
        cn_grpc_door_drain(site->server->grpc, CN_GRPC_INFERENCE);
        cn_grpc_door_drain(site->server->grpc, CN_GRPC_MANAGEMENT);
    }
    site->finish_since_ms = cn_loop_now_ms(site->loop);
    check_finished(&site->timer);
}

static void
leave_site(struct cn_msg *msg)
{
    struct cn_server_site *site = cn_container_of(msg, struct cn_server_site, leave);

    if (site->listeners[CN_INFERENCE])
        cn_http_listener_leave(site->listeners[CN_INFERENCE]);
}

static void
drain_site(struct cn_msg *msg)
{
    struct cn_server_site *site = cn_container_of(msg, struct cn_server_site, drain);

    cn_server_drain_listener(site, CN_INFERENCE);
    if (cn_loop_index(site->loop) == 0) {
        cn_feed_end(site->server->shared.feed);
        cn_grpc_door_drain(site->server->grpc, CN_GRPC_INFERENCE);
    }
}

/* Management has nothing left to do: the connections may end. */
static void
on_drained(void *ctx)
{
    struct cn_server *server = ctx;
    unsigned i;

    server->n_unfinished = server->n_loops;
    for (i = 0; i < server->n_loops; i++)
        cn_loop_post(server->loops[i], &server->sites[i].finish);
}

/* Begins the drain, or makes it hurry. */
static void
drain(struct cn_server *server)
{
    unsigned i;

    cn_timer_cancel(&server->delay);
    if (!server->draining) {
        for (i = 0; i < server->n_loops; i++)
            cn_loop_post(server->loops[i], &server->sites[i].drain);
    }
    server->draining = true;
    cn_management_drain(server->management, on_drained, server);
}

static void
on_delay_over(struct cn_timer *timer)
{
    drain(cn_container_of(timer, struct cn_server, delay));
}

/* Tells everybody who asks that the server stops, and drains --drain-delay later. */
static void
leave(struct cn_server *server)
{
    const uint32_t delay_ms = server->config.drain_delay_ms;
    unsigned i;

    cn_log(CN_LOG_INFO, "event=leaving drain_delay_ms=%u", delay_ms);
    cn_management_announce_stop(server->management);
    for (i = 0; i < server->n_loops; i++)
        cn_loop_post(server->loops[i], &server->sites[i].leave);
    cn_timer_set(cn_loop_wheel(server->loops[0]), &server->delay,
                 cn_loop_now_ms(server->loops[0]) + delay_ms);
}

void
cn_server_stop_begin(struct cn_server *server, int signal_number)
{
    const bool is_first = !server->stopping;

    cn_log(CN_LOG_INFO, "event=%s signal=%s", is_first ? "stopping" : "stop_hurried",
           signal_number == 0         ? "none"
           : signal_number == SIGTERM ? "SIGTERM"
                                      : "SIGINT");
    server->stopping = true;
    if (is_first && signal_number != 0 && server->config.drain_delay_ms > 0)
        leave(server);
    else
        drain(server);
}

void
cn_server_stop_init(struct cn_server *server)
{
    unsigned i;

    cn_timer_init(&server->delay, on_delay_over);
    for (i = 0; i < server->n_loops; i++) {
        struct cn_server_site *site = &server->sites[i];

        site->leave.fn = leave_site;
        site->drain.fn = drain_site;
        site->finish.fn = finish_site;
        site->finished.fn = on_finished;
        cn_timer_init(&site->timer, check_finished);
    }
}
