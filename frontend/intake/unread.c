/* frontend/intake/unread.c - a list of unread answers for each loop, and one sum. Any thread may
 * read the sum, and how long the oldest answer of a loop has waited; everything else belongs to the
 * loop.
 *
 * The loop that passes the limit must not simply drop answers of its own. Clients that read nothing
 * could fill the limit on one loop, and then every large answer of the other loops would be
 * dropped, however fast it is read. So the loop that has the oldest answer gets a message, and
 * until that has arrived, the limit may be passed by an eighth. */
#include "frontend/intake/unread.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "core/loop/loop.h"
#include "metrics/counters/metrics.h"

#define LOOPS_MAX 64 /* of the option --loops */

struct place {
    struct cn_list list;
    struct cn_loop *_Atomic loop;
    _Atomic uint64_t oldest; /* `since` of the first answer of the list; 0: it is empty */
    struct cn_msg msg;       /* asks the loop to drop its oldest answers */
    atomic_bool asked;       /* the message is on its way */
};

static _Atomic uint64_t sum, limit = UINT64_MAX, last_since;
static struct place places[LOOPS_MAX];

static void on_asked(struct cn_msg *msg);

static struct place *
place_of(struct cn_loop *loop)
{
    struct place *place = &places[cn_loop_index(loop) % LOOPS_MAX];

    if (atomic_load_explicit(&place->loop, memory_order_relaxed) == loop)
        return place;
    cn_list_init(&place->list);
    place->msg.fn = on_asked;
    atomic_store(&place->asked, false);
    atomic_store(&place->loop, loop);
    return place;
}

static struct cn_unread *
oldest_of(const struct place *place)
{
    return cn_list_empty(&place->list) ? NULL
                                       : cn_container_of(place->list.next, struct cn_unread, link);
}

static void
note_oldest(struct place *place)
{
    const struct cn_unread *oldest = oldest_of(place);

    atomic_store_explicit(&place->oldest, oldest ? oldest->since : 0, memory_order_release);
}

void
cn_unread_set_limit(uint64_t bytes)
{
    atomic_store(&limit, bytes);
}

void
cn_unread_sub(struct cn_loop *loop, struct cn_unread *unread, size_t bytes)
{
    if (bytes >= unread->bytes) {
        cn_unread_done(loop, unread);
        return;
    }
    unread->bytes -= bytes;
    if (!unread->since)
        return;
    atomic_fetch_sub_explicit(&sum, bytes, memory_order_relaxed);
    cn_metrics_sub(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, bytes);
}

void
cn_unread_done(struct cn_loop *loop, struct cn_unread *unread)
{
    const size_t bytes = unread->bytes;

    unread->bytes = 0;
    if (!unread->since)
        return;
    unread->since = 0;
    atomic_fetch_sub_explicit(&sum, bytes, memory_order_relaxed);
    cn_metrics_sub(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, bytes);
    cn_list_remove(&unread->link);
    note_oldest(place_of(loop));
}

/* The loop with the oldest answer of all; NULL: nothing waits. */
static struct place *
find_oldest(void)
{
    struct place *found = NULL;
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < LOOPS_MAX; i++) {
        const uint64_t oldest = atomic_load_explicit(&places[i].oldest, memory_order_acquire);

        if (oldest != 0 && oldest < least) {
            least = oldest;
            found = &places[i];
        }
    }
    return found;
}

/* Drops answers of the loop, or asks another one, as long as too many bytes wait. */
static void
keep_limit(struct cn_loop *loop, struct place *own)
{
    const uint64_t allowed = atomic_load_explicit(&limit, memory_order_relaxed);
    uint64_t now;

    while ((now = atomic_load_explicit(&sum, memory_order_relaxed)) > allowed) {
        struct place *place = find_oldest();
        struct cn_unread *oldest = oldest_of(own);

        if (place && place != own) {
            if (!atomic_exchange(&place->asked, true))
                cn_loop_post(atomic_load(&place->loop), &place->msg);
            if (now - allowed <= allowed / 8)
                return;
        }
        if (!oldest)
            return;
        cn_unread_done(loop, oldest);
        cn_metrics_add(cn_loop_metrics(loop), CN_M_UNREAD_CUT, 1);
        oldest->drop(oldest);
    }
}

static void
on_asked(struct cn_msg *msg)
{
    struct place *place = cn_container_of(msg, struct place, msg);

    atomic_store(&place->asked, false);
    keep_limit(atomic_load(&place->loop), place);
}

void
cn_unread_add(struct cn_loop *loop, struct cn_unread *unread, size_t bytes)
{
    struct place *place;

    unread->bytes += bytes;
    if (unread->bytes < CN_UNREAD_LEAST && !unread->since)
        return;
    place = place_of(loop);
    if (!unread->since) {
        unread->since = atomic_fetch_add_explicit(&last_since, 1, memory_order_relaxed) + 1;
        cn_list_push_back(&place->list, &unread->link);
        note_oldest(place);
        bytes = unread->bytes; /* what came before was too little to be counted */
    }
    atomic_fetch_add_explicit(&sum, bytes, memory_order_relaxed);
    cn_metrics_add(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, bytes);
    keep_limit(loop, place);
}
