/* frontend/page/feed.c - the page's stream of events. Loop 0.
 *
 * A tick asks the management for the versions to show (management/api/watch.h), whose answer makes
 * the event: on_watched() compares each version's description with the one that was sent before,
 * adds rates, new log lines, and from time to time the doctor's findings. Rates and the list of
 * what was sent belong to the feed, not to a client: all clients see the same.
 *
 * What one tick costs is bounded: at most page-models versions are described, with at most
 * WORKERS_MAX workers each, and at most LINES_MAX log lines. */
#include "frontend/page/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log_tail.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/page/feed_parts.h"
#include "frontend/page/json_changes.h"
#include "frontend/page/rates.h"
#include "management/api/watch.h"
#include "management/management.h"
#include "metrics/page/recent_counters.h"
#include "scheduler/queue/job.h"

#define EVENTS_TYPE CN_STR("text/event-stream; charset=utf-8")
#define LINES_MAX 100        /* log lines in one event */
#define FIND_EVERY 5         /* the doctor looks at every fifth tick */
#define CLIENTS_MAX 64       /* the greatest page-clients */
#define EVENT_MAX (4u << 20) /* bytes; a larger event is not sent */

/* A version as it was last sent. */
struct shown {
    char *key;     /* "name/version" */
    json_t *about; /* its members */
    struct cn_rates_point point;
    bool is_here; /* it is in the present look */
};

struct client {
    struct cn_list link;
    struct cn_feed *feed;
    struct cn_http_request *request;
    size_t unread;    /* bytes of events that the connection has not taken yet */
    bool needs_all;   /* the next event must be complete */
    const char *name; /* the model that it looks at; NULL: none */
};

struct cn_feed {
    const struct cn_http_shared *shared;
    struct cn_loop *loop;
    struct cn_list clients;
    unsigned n_clients;
    struct cn_timer timer;
    bool is_looking, has_ended;
    struct cn_watch_order order;
    const char *names[CLIENTS_MAX];
    uint64_t ticks, last_tick_ms;
    struct shown shown[CN_WATCH_VERSIONS_MAX];
    unsigned n_shown;
    struct cn_rates_point before, now; /* sums over the shown versions, for the present look */
    uint64_t jobs_before, requests_before, at_us_before;
    uint64_t lines[2]; /* number of the newest line that was sent, by enum cn_log_tail_kind */
    json_t *findings, *totals, *server;
};

static void tick(struct cn_feed *feed);

/* --- clients */

static void
send_text(struct client *client, struct cn_str text, bool is_final)
{
    struct cn_answer_box *box = cn_answer_box_text(EVENTS_TYPE, text, is_final);

    if (!box) { /* the next event is complete again */
        client->needs_all = true;
        return;
    }
    client->unread += text.len;
    cn_http_answer_piece(client->request, box);
}

static void
end_client(struct client *client)
{
    struct cn_http_request *request = client->request;
    struct cn_answer_box *last = cn_answer_box_text(EVENTS_TYPE, CN_STR(""), true);

    cn_list_remove(&client->link);
    client->feed->n_clients--;
    request->on_gone = NULL;
    request->on_taken = NULL;
    cn_assert(last);
    cn_http_answer_piece(request, last);
    cn_http_request_release(request);
}

static void
on_gone(struct cn_http_request *request)
{
    end_client(request->call);
}

static void
on_taken(struct cn_http_request *request, size_t bytes)
{
    struct client *client = request->call;

    client->unread -= bytes;
}

/* --- one tick: the versions */

static struct shown *
shown_of(struct cn_feed *feed, const char *key)
{
    struct shown *shown;

    for (unsigned i = 0; i < feed->n_shown; i++)
        if (strcmp(feed->shown[i].key, key) == 0)
            return &feed->shown[i];
    if (feed->n_shown == CN_WATCH_VERSIONS_MAX)
        return NULL;
    shown = &feed->shown[feed->n_shown++];
    *shown = (struct shown){.key = cn_strdup(key)};
    return shown;
}

/* Removes versions that are not in the present look, and lists their keys. */
static json_t *
drop_gone(struct cn_feed *feed)
{
    json_t *gone = json_array();
    unsigned kept = 0;

    for (unsigned i = 0; i < feed->n_shown; i++) {
        struct shown *shown = &feed->shown[i];

        if (shown->is_here) {
            feed->shown[kept++] = *shown;
            continue;
        }
        json_array_append_new(gone, json_string(shown->key));
        json_decref(shown->about);
        cn_free(shown->key);
    }
    feed->n_shown = kept;
    return gone;
}

/* Notes one version of the look, and adds to `models` what changed in it. */
static void
take_version(struct cn_feed *feed, const struct cn_watched *watched, uint64_t now_us,
             json_t *models)
{
    struct cn_rates_point now;
    struct shown *shown;
    json_t *about, *changed;
    char key[512];

    snprintf(key, sizeof key, "%s/%s", watched->name, watched->version);
    shown = shown_of(feed, key);
    if (!shown || !json_object_get(watched->about, "modelName"))
        return;
    cn_rates_take(&now, watched->metrics, now_us);
    if (shown->point.at_us) {
        cn_rates_add(&feed->before, &shown->point);
        cn_rates_add(&feed->now, &now);
    }
    about = cn_feed_version(watched);
    json_object_set_new(about, "rates", cn_rates_json(&shown->point, &now));
    changed = cn_changes(shown->about, about);
    if (changed)
        json_object_set_new(models, key, changed);
    json_decref(shown->about);
    shown->about = about;
    shown->point = now;
    shown->is_here = true;
}

/* --- one tick: the rest */

static uint64_t
sum_of_loops(const struct cn_feed *feed, enum cn_metric metric)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < feed->shared->n_loops; i++)
        sum += cn_metrics_get(cn_loop_metrics(feed->shared->loops[i]), metric);
    return sum;
}

/* The server's own resident memory in bytes; 0: not known. */
static uint64_t
own_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long all = 0, resident = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void
put_number(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void
put_rate(json_t *object, const char *key, uint64_t before, uint64_t now, uint64_t us)
{
    json_object_set_new(
        object, key,
        us ? json_integer((json_int_t)((double)(now - before) * 1e6 / (double)us + 0.5))
           : json_null());
}

/* What the head of the page shows: of all models where a counter of the whole server exists, and of
 * the shown versions for the rest. */
static json_t *
make_totals(struct cn_feed *feed, uint64_t now_us)
{
    const struct cn_watch_totals *totals = &feed->order.totals;
    const uint64_t jobs = sum_of_loops(feed, CN_M_ALL_JOBS);
    const uint64_t requests = sum_of_loops(feed, CN_M_HTTP_REQUESTS);
    const uint64_t us = feed->at_us_before ? now_us - feed->at_us_before : 0;
    json_t *out = cn_rates_json(&feed->before, &feed->now);

    put_rate(out, "stepsPerS", feed->jobs_before, jobs, us);
    put_rate(out, "requestsPerS", feed->requests_before, requests, us);
    put_number(out, "models", totals->models);
    put_number(out, "versions", totals->versions);
    put_number(out, "unready", totals->unready);
    put_number(out, "shown", feed->n_shown);
    put_number(out, "connections", sum_of_loops(feed, CN_M_HTTP_CONNECTIONS));
    put_number(out, "serverBytes", own_bytes());
    put_number(out, "pages", feed->n_clients);
    json_object_set_new(out, "healthy",
                        json_boolean(cn_management_healthy(feed->shared->management)));
    feed->jobs_before = jobs;
    feed->requests_before = requests;
    feed->at_us_before = now_us;
    return out;
}

static void
find_problems(struct cn_feed *feed, const struct cn_watched *versions, unsigned n)
{
    uint64_t metrics[CN_METRIC_COUNT];

    cn_recent_show(feed->shared->recent);
    for (unsigned i = 0; i < CN_METRIC_COUNT; i++)
        metrics[i] = sum_of_loops(feed, (enum cn_metric)i);
    json_decref(feed->findings);
    feed->findings = cn_feed_findings(feed->shared->management, versions, n, metrics,
                                      feed->shared->config->management_address);
}

/* Adds the log's lines after `after`, which are 0 for a complete event. */
static void
put_lines(json_t *event, const uint64_t after[2], uint64_t newest[2])
{
    static const char *const keys[] = {"log", "trouble"};

    for (int kind = 0; kind < 2; kind++) {
        json_t *lines = json_array();

        newest[kind] = cn_feed_lines((enum cn_log_tail_kind)kind, after[kind], LINES_MAX, lines);
        if (json_array_size(lines) > 0)
            json_object_set(event, keys[kind], lines);
        json_decref(lines);
    }
}

/* --- events */

/* Makes an event of JSON, which is taken. Returns false when it is too large. */
static bool
write_event(json_t *event, struct cn_buf *text)
{
    char *json = json_dumps(event, JSON_COMPACT);

    cn_buf_init(text, EVENT_MAX);
    cn_buf_puts(text, "data: ");
    cn_buf_puts(text, json ? json : "{}");
    cn_buf_puts(text, "\n\n");
    free(json);
    json_decref(event);
    if (text->failed)
        cn_log(CN_LOG_WARN, "event=page_event_too_large limit_bytes=%u", EVENT_MAX);
    return !text->failed;
}

/* Everything there is to know, for a client that knows nothing. */
static json_t *
complete_event(struct cn_feed *feed)
{
    static const uint64_t from_begin[2] = {0, 0};
    json_t *event = json_object(), *models = json_object();
    uint64_t newest[2];

    for (unsigned i = 0; i < feed->n_shown; i++)
        json_object_set(models, feed->shown[i].key, feed->shown[i].about);
    json_object_set_new(event, "full", json_true());
    json_object_set_new(event, "at", json_integer((json_int_t)cn_wall_ms()));
    json_object_set(event, "server", feed->server);
    json_object_set(event, "totals", feed->totals);
    json_object_set(event, "findings", feed->findings);
    json_object_set_new(event, "models", models);
    put_lines(event, from_begin, newest);
    return event;
}

/* Gives each client that has taken the last event the next one. */
static void
send_to_all(struct cn_feed *feed, json_t *event)
{
    struct cn_buf text, complete;
    bool is_fine = write_event(event, &text), has_complete = false;
    struct cn_list *node, *next;

    cn_buf_init(&complete, 0);
    cn_list_for_each_safe(node, next, &feed->clients) {
        struct client *client = cn_container_of(node, struct client, link);

        if (client->unread > 0 || (!client->needs_all && !is_fine)) {
            client->needs_all = true;
            continue;
        }
        if (client->needs_all && !has_complete)
            has_complete = write_event(complete_event(feed), &complete);
        if (client->needs_all && !has_complete)
            continue;
        if (client->needs_all) {
            client->needs_all = false;
            send_text(client, cn_buf_str(&complete), false);
        } else {
            send_text(client, cn_buf_str(&text), false);
        }
    }
    cn_buf_fini(&complete);
    cn_buf_fini(&text);
}

static void
on_watched(struct cn_watch_order *order, const struct cn_watched *versions, unsigned n)
{
    struct cn_feed *feed = cn_container_of(order, struct cn_feed, order);
    const uint64_t now_us = cn_now_us();
    json_t *event = json_object(), *models = json_object(), *gone;

    feed->before = feed->now = (struct cn_rates_point){0};
    for (unsigned i = 0; i < feed->n_shown; i++)
        feed->shown[i].is_here = false;
    for (unsigned i = 0; i < n; i++)
        take_version(feed, &versions[i], now_us, models);
    gone = drop_gone(feed);
    if (feed->ticks++ % FIND_EVERY == 0 || json_array_size(gone) > 0 || !feed->findings) {
        find_problems(feed, versions, n);
        json_object_set(event, "findings", feed->findings);
    }
    json_decref(feed->totals);
    feed->totals = make_totals(feed, now_us);
    json_object_set_new(event, "at", json_integer((json_int_t)cn_wall_ms()));
    json_object_set(event, "totals", feed->totals);
    json_object_set_new(event, "models", models);
    json_object_set_new(event, "gone", gone);
    put_lines(event, feed->lines, feed->lines);
    feed->is_looking = false;
    send_to_all(feed, event);
    if (feed->n_clients > 0 && !feed->has_ended)
        cn_timer_set(cn_loop_wheel(feed->loop), &feed->timer,
                     cn_loop_now_ms(feed->loop) + feed->shared->config->page_interval_ms);
}

static void
tick(struct cn_feed *feed)
{
    struct cn_list *node;
    unsigned n = 0;

    if (feed->is_looking || feed->has_ended || feed->n_clients == 0)
        return;
    cn_list_for_each(node, &feed->clients) {
        const struct client *client = cn_container_of(node, struct client, link);

        if (client->name && n < CLIENTS_MAX)
            feed->names[n++] = client->name;
    }
    feed->is_looking = true;
    feed->last_tick_ms = cn_loop_now_ms(feed->loop);
    feed->order.most = feed->shared->config->page_models;
    feed->order.names = feed->names;
    feed->order.n_names = n;
    cn_management_watch(feed->shared->management, &feed->order);
}

static void
on_time(struct cn_timer *timer)
{
    tick(cn_container_of(timer, struct cn_feed, timer));
}

/* --- requests */

/* Returns false for a malformed escape. */
static bool
read_name(struct cn_http_request *request, const char **out)
{
    struct cn_str name, value;

    *out = NULL;
    for (uint32_t i = 0; i < request->n_query; i++) {
        if (!cn_http_decode(&request->arena, request->query[i].name, true, &name) ||
            !cn_http_decode(&request->arena, request->query[i].value, true, &value))
            return false;
        if (cn_str_eq(name, CN_STR("model")))
            *out = value.ptr;
    }
    return true;
}

/* Returns true if the request was refused. */
static bool
refuse(const struct cn_feed *feed, struct cn_http_request *request)
{
    const struct cn_server_config *config = feed->shared->config;

    if (config->page == CN_PAGE_OFF) {
        cn_http_answer_error(request, CN_E_NOT_FOUND,
                             "this server shows no page and has no feed (--page off)", 0);
    } else if (feed->has_ended) {
        cn_http_answer_error(request, CN_E_DRAINING, "the server is stopping", 0);
    } else if (feed->n_clients >= config->page_clients) {
        cn_http_answer_error(
            request, CN_E_UNAVAILABLE,
            cn_arena_printf(&request->arena,
                            "%u pages watch this server already (--page-clients); close one of "
                            "them, or raise the option",
                            feed->n_clients),
            5);
    } else {
        return false;
    }
    return true;
}

void
cn_feed_handle(struct cn_http_request *request)
{
    struct cn_feed *feed = request->listener->shared->feed;
    struct client *client;
    const char *name;

    if (refuse(feed, request))
        return;
    if (!read_name(request, &name)) {
        cn_http_answer_error(request, CN_E_BAD_REQUEST,
                             "the query has %00 or an escape that is not % and two hex digits", 0);
        return;
    }
    client = cn_arena_alloc(&request->arena, sizeof *client);
    *client = (struct client){.feed = feed, .request = request, .needs_all = true, .name = name};
    cn_list_push_back(&feed->clients, &client->link);
    feed->n_clients++;
    request->on_taken = on_taken;
    cn_http_request_hold(request, client, on_gone);
    if (name)
        feed->order.looks_left = 0; /* its model must be among the versions at once */
    /* The first event comes soon, but many new clients do not make more looks than twice the usual
     * number. */
    if (!feed->is_looking)
        cn_timer_set(cn_loop_wheel(feed->loop), &feed->timer,
                     feed->last_tick_ms + feed->shared->config->page_interval_ms / 2);
}

/* --- begin and end */

struct cn_feed *
cn_feed_create(const struct cn_http_shared *shared)
{
    struct cn_feed *feed = cn_alloc(sizeof *feed);

    feed->shared = shared;
    feed->loop = shared->loops[0];
    feed->order.on_done = on_watched;
    feed->server = cn_feed_server(shared->config);
    feed->totals = json_object();
    cn_list_init(&feed->clients);
    cn_timer_init(&feed->timer, on_time);
    if (shared->config->page != CN_PAGE_OFF)
        cn_log_tail_begin();
    return feed;
}

void
cn_feed_end(struct cn_feed *feed)
{
    struct cn_list *node, *next;

    feed->has_ended = true;
    cn_timer_cancel(&feed->timer);
    cn_list_for_each_safe(node, next, &feed->clients)
        end_client(cn_container_of(node, struct client, link));
}

void
cn_feed_destroy(struct cn_feed *feed)
{
    if (!feed)
        return;
    cn_timer_cancel(&feed->timer);
    for (unsigned i = 0; i < feed->n_shown; i++) {
        json_decref(feed->shown[i].about);
        cn_free(feed->shown[i].key);
    }
    cn_watch_order_fini(&feed->order);
    json_decref(feed->findings);
    json_decref(feed->totals);
    json_decref(feed->server);
    cn_free(feed);
}
