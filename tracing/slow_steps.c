/* tracing/slow_steps.c - a ring of slow steps behind one lock. Any thread.
 *
 * `seen` counts the slow steps since the start, so the next one goes to place seen % length. While
 * nothing is kept, the limit is the largest number, and so the comparison in cn_step_is_slow() is
 * all that a step costs.
 */
#include "tracing/slow_steps.h"

#include <pthread.h>
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"

atomic_uint_least64_t cn_slow_threshold_us_ = UINT64_MAX;

static struct {
    pthread_mutex_t lock;
    struct cn_slow_step *places;
    uint32_t length, n; /* n: how many places are in use */
    uint64_t seen;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
cn_slow_steps_start(uint32_t length, uint64_t threshold_us)
{
    pthread_mutex_lock(&slow.lock);
    slow.length = length;
    slow.n = 0;
    slow.seen = 0;
    slow.places = length ? cn_alloc(sizeof(*slow.places) * length) : NULL;
    pthread_mutex_unlock(&slow.lock);
    atomic_store(&cn_slow_threshold_us_, length ? threshold_us : UINT64_MAX);
}

void
cn_slow_steps_stop(void)
{
    atomic_store(&cn_slow_threshold_us_, UINT64_MAX);
    pthread_mutex_lock(&slow.lock);
    cn_free(slow.places);
    slow.places = NULL;
    slow.length = slow.n = 0;
    pthread_mutex_unlock(&slow.lock);
}

/* Copies a text and cuts what does not fit. */
static void
copy(char *to, size_t room, struct cn_str text)
{
    const size_t len = text.len < room ? text.len : room - 1;

    if (len)
        memcpy(to, text.ptr, len);
    to[len] = '\0';
}

void
cn_slow_steps_put(const struct cn_ended_step *step)
{
    struct cn_slow_step *place;

    pthread_mutex_lock(&slow.lock);
    if (slow.length) {
        place = &slow.places[slow.seen++ % slow.length];
        place->serial = slow.seen;
        place->ended_wall_ms = cn_wall_ms();
        place->times = *step->times;
        place->step = step->step;
        place->error_code = step->error_code;
        copy(place->model, sizeof(place->model), cn_str_from(step->model));
        copy(place->version, sizeof(place->version), cn_str_from(step->version));
        copy(place->request_id, sizeof(place->request_id), step->request_id);
        copy(place->sequence, sizeof(place->sequence), cn_sequence_id_shown(step->sequence_id));
        slow.n += slow.n < slow.length;
    }
    pthread_mutex_unlock(&slow.lock);
}

uint32_t
cn_slow_steps_read(struct cn_arena *arena, struct cn_slow_step **out, uint64_t *seen)
{
    uint32_t n;

    pthread_mutex_lock(&slow.lock);
    n = slow.n;
    *seen = slow.seen;
    *out = cn_arena_alloc(arena, sizeof(**out) * (n + 1));
    for (uint32_t i = 0; i < n; i++)
        (*out)[i] = slow.places[(slow.seen - 1 - i) % slow.length];
    pthread_mutex_unlock(&slow.lock);
    return n;
}

void
cn_slow_steps_clear(void)
{
    pthread_mutex_lock(&slow.lock);
    slow.n = 0;
    slow.seen = 0;
    pthread_mutex_unlock(&slow.lock);
}

static uint64_t
between(uint64_t from, uint64_t to)
{
    return from && to > from ? to - from : 0;
}

struct cn_step_phases
cn_step_phases(const struct cn_step_times *times)
{
    const uint64_t left_queue = times->sent_us ? times->sent_us : times->done_us;

    return (struct cn_step_phases){
        .total_us = between(times->arrived_us, times->done_us),
        .queue_us = between(times->arrived_us, left_queue),
        .worker_us = between(times->sent_us, times->n_calls ? times->handler_us : times->done_us),
        .handler_us = between(times->handler_us, times->handled_us),
        .commit_us = between(times->handled_us, times->called_us),
    };
}
