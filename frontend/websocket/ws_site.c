/* frontend/websocket/ws_site.c - who has which stream; tickets.
 *
 * A new stream takes its sequence from an older one, which may be on another loop, so its key is
 * posted to all loops with a serial number: of two that are opened at once, the later one stays.
 *
 * Each loop changes its own site only, so the streams and the table of sequences need no lock. All
 * loops share the serial number, which is an atomic counter, and the tickets, which have a lock.
 *
 * A ticket is 128 random bits, written as 32 hexadecimal digits. A page gets one over HTTP and puts
 * it into the URL of its WebSocket, because browsers cannot set headers there. It opens one stream
 * and then is used up, so a URL that ends up in a log is worth nothing. */
#include "frontend/websocket/ws_site.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/loop/loop.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "frontend/http/http_listener.h"
#include "frontend/websocket/ws_deflate.h"
#include "frontend/websocket/ws_stream.h"
#include "metrics/counters/metrics.h"

/* The slots are searched from the first to the last. That is cheap enough for 1024 slots, which are
 * looked at only when a stream is opened, and a fixed number of them bounds the memory that callers
 * can take. */
struct ticket {
    uint64_t random[2];
    uint64_t ends_ms; /* 0: free */
    struct cn_ws_ticket_client client;
};

struct cn_ws_hub {
    unsigned n_loops;
    struct cn_ws_site **sites; /* of each loop; NULL: it has none */
    atomic_uint_fast64_t serial;
    pthread_mutex_t lock;
    struct ticket tickets[CN_WS_TICKETS_MAX];
};

struct cn_ws_hub *
cn_ws_hub_create(unsigned n_loops)
{
    struct cn_ws_hub *hub = cn_alloc(sizeof(*hub));

    hub->n_loops = n_loops;
    hub->sites = cn_alloc(sizeof(struct cn_ws_site *) * n_loops);
    atomic_init(&hub->serial, 0);
    pthread_mutex_init(&hub->lock, NULL);
    return hub;
}

void
cn_ws_hub_destroy(struct cn_ws_hub *hub)
{
    if (!hub)
        return;
    pthread_mutex_destroy(&hub->lock);
    cn_free(hub->sites);
    cn_free(hub);
}

static struct cn_str
key_of(const void *item)
{
    return ((const struct cn_ws_stream *)item)->key;
}

struct cn_ws_site *
cn_ws_site_create(struct cn_http_listener *listener)
{
    struct cn_ws_site *site = cn_alloc(sizeof(*site));
    struct cn_ws_hub *hub = listener->shared->streams;

    site->listener = listener;
    cn_list_init(&site->streams);
    site->by_sequence = cn_table_create(key_of);
    hub->sites[cn_loop_index(listener->loop)] = site;
    return site;
}

void
cn_ws_site_destroy(struct cn_ws_site *site)
{
    if (!site)
        return;
    cn_assert(cn_list_empty(&site->streams));
    cn_table_destroy(site->by_sequence);
    cn_ws_deflate_destroy(site->deflate);
    cn_free(site->scratch);
    cn_buf_fini(&site->message);
    cn_free(site);
}

void
cn_ws_site_leave(struct cn_ws_site *site)
{
    struct cn_list *node, *tmp;

    site->leaving = true;
    cn_list_for_each_safe(node, tmp, &site->streams)
        cn_ws_stream_leave(cn_container_of(node, struct cn_ws_stream, link));
}

/* --- taking over */

struct takeover {
    struct cn_msg msg;
    struct cn_ws_site *site;
    uint64_t serial;
    struct cn_str key;
    char bytes[];
};

/* Closes the site's stream of that sequence, if it is older. */
static void
take_from(struct cn_ws_site *site, struct cn_str key, uint64_t serial)
{
    struct cn_ws_stream *older = cn_table_find(site->by_sequence, key);

    if (!older || older->serial > serial)
        return;
    cn_table_remove(site->by_sequence, key);
    older->is_listed = false;
    cn_metrics_add(cn_loop_metrics(site->listener->loop), CN_M_STREAM_TAKEOVERS, 1);
    cn_ws_stream_taken_over(older);
}

static void
on_takeover(struct cn_msg *msg)
{
    struct takeover *takeover = cn_container_of(msg, struct takeover, msg);

    take_from(takeover->site, takeover->key, takeover->serial);
    cn_free(takeover);
}

/* Tells the other loops that this stream has the sequence now. The message has a copy of the key,
 * since the stream may be gone before it arrives. Loops without a site, whose listeners serve no
 * streams, are left out. */
static void
tell_others(struct cn_ws_site *site, const struct cn_ws_stream *stream)
{
    struct cn_ws_hub *hub = site->listener->shared->streams;

    for (unsigned i = 0; i < hub->n_loops; i++) {
        struct takeover *takeover;

        if (!hub->sites[i] || hub->sites[i] == site)
            continue;
        takeover = cn_alloc(sizeof(*takeover) + stream->key.len);
        memcpy(takeover->bytes, stream->key.ptr, stream->key.len);
        takeover->key = (struct cn_str){takeover->bytes, stream->key.len};
        takeover->serial = stream->serial;
        takeover->site = hub->sites[i];
        takeover->msg.fn = on_takeover;
        cn_loop_post(hub->sites[i]->listener->loop, &takeover->msg);
    }
}

/* Suppose two streams of one sequence are opened at the same time, on loops 1 and 2, with serials 7
 * and 8. Loop 2 gets the message of 7, finds its own stream newer and keeps it; loop 1 gets the
 * message of 8 and closes 7. So one of them stays, whichever message comes first. */
void
cn_ws_site_add(struct cn_ws_site *site, struct cn_ws_stream *stream)
{
    struct cn_metrics *metrics = cn_loop_metrics(site->listener->loop);

    stream->serial = atomic_fetch_add(&site->listener->shared->streams->serial, 1) + 1;
    cn_list_push_back(&site->streams, &stream->link);
    site->n_streams++;
    cn_metrics_add(metrics, CN_M_STREAMS, 1);
    cn_metrics_add(metrics, CN_M_STREAMS_OPENED, 1);
    if (!stream->key.len)
        return;
    take_from(site, stream->key, stream->serial);
    cn_table_insert(site->by_sequence, stream);
    stream->is_listed = true;
    tell_others(site, stream);
}

void
cn_ws_site_remove(struct cn_ws_site *site, struct cn_ws_stream *stream)
{
    if (stream->is_listed)
        cn_table_remove(site->by_sequence, stream->key);
    stream->is_listed = false;
    cn_list_remove(&stream->link);
    site->n_streams--;
    cn_metrics_sub(cn_loop_metrics(site->listener->loop), CN_M_STREAMS, 1);
}

/* --- tickets */

int
cn_ws_ticket_make(struct cn_ws_hub *hub, uint64_t now_ms, uint64_t lifetime_ms,
                  const struct cn_ws_ticket_client *client, char out[CN_WS_TICKET_BYTES],
                  struct cn_error *err)
{
    struct ticket *found = NULL;

    pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < CN_WS_TICKETS_MAX && !found; i++)
        if (hub->tickets[i].ends_ms <= now_ms)
            found = &hub->tickets[i];
    if (found) {
        cn_random_bytes(found->random, sizeof(found->random));
        found->ends_ms = now_ms + lifetime_ms;
        found->client = *client;
        snprintf(out, CN_WS_TICKET_BYTES, "%016llx%016llx", (unsigned long long)found->random[0],
                 (unsigned long long)found->random[1]);
    }
    pthread_mutex_unlock(&hub->lock);
    return found ? 0
                 : cn_fail(err, CN_E_TOO_MANY_CALLS,
                           "%d tickets for streams are not used yet; use them, or wait until they "
                           "expire",
                           CN_WS_TICKETS_MAX);
}

/* Reads a ticket's number. */
static bool
read_ticket(struct cn_str text, uint64_t random[2])
{
    random[0] = random[1] = 0;
    if (text.len != 32)
        return false;
    for (size_t i = 0; i < 32; i++) {
        const int digit = cn_hex_digit(text.ptr[i]);

        if (digit < 0)
            return false;
        random[i / 16] = random[i / 16] << 4 | (uint64_t)digit;
    }
    return true;
}

int
cn_ws_ticket_use(struct cn_ws_hub *hub, uint64_t now_ms, struct cn_str ticket,
                 struct cn_ws_ticket_client *client, struct cn_error *err)
{
    uint64_t random[2];
    bool found = false;

    if (read_ticket(ticket, random)) {
        pthread_mutex_lock(&hub->lock);
        for (size_t i = 0; i < CN_WS_TICKETS_MAX; i++) { /* all of them: always the same time */
            struct ticket *each = &hub->tickets[i];
            const bool same = ((each->random[0] ^ random[0]) | (each->random[1] ^ random[1])) == 0;

            if (same && each->ends_ms > now_ms) {
                found = true;
                each->ends_ms = 0;
                *client = each->client;
            }
        }
        pthread_mutex_unlock(&hub->lock);
    }
    return found ? 0
                 : cn_fail(err, CN_E_TOKEN,
                           "the ticket is unknown, used or expired; get a new one from this server "
                           "with POST /v1/streams/tickets");
}
