/* worker/worker_stats.c - STATS: what the worker tells the server of its memory, its work and its
 * store. Owned by the worker's one thread. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/time/clock.h"
#include "worker/worker_priv.h"

/* Resident memory, from the second number of /proc/self/statm. */
static uint64_t
rss_bytes(void)
{
    char text[128];
    unsigned long total, resident;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (sscanf(text, "%lu %lu", &total, &resident) != 2)
        return 0;
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t
cn_worker_busy_us(const struct cn_worker *worker)
{
    const uint64_t all_us = cn_cpu_us(), waited_us = worker->channel.waited_us;

    return all_us > waited_us + worker->busy_us ? all_us - waited_us : worker->busy_us;
}

/* What a shared store has done since the last STATS. */
static void
put_store_stats(struct cn_worker *worker, struct cn_store_stats *out)
{
    const struct cn_store_activity *now = cn_store_activity(worker->states.store);
    struct cn_store_activity *told = &worker->told;

    if (!now)
        return;
    out->shared = true;
    out->connected = now->connected;
    out->since_wall_ms = now->since_wall_ms;
    out->conflicts = now->conflicts - told->conflicts;
    out->reloads = worker->reloads;
    worker->reloads = 0;
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++)
        out->trips[i] = now->trips[i] - told->trips[i];
    for (unsigned i = 0; i < CN_ROWS_VALUES; i++)
        out->commits[i] = now->commits[i] - told->commits[i];
    snprintf(out->last_error, sizeof(out->last_error), "%s", now->last_error);
    *told = *now;
}

int
cn_worker_send_stats(struct cn_worker *worker, struct cn_error *err)
{
    const uint64_t busy_us = cn_worker_busy_us(worker);
    struct cn_worker_stats stats = {
        .rss_bytes = rss_bytes(),
        .batches = worker->batches,
        .rows = worker->rows,
        .streams = cn_streams_count(&worker->streams),
        .busy_us = busy_us - worker->busy_us,
    };

    if (worker->stateful) {
        stats.cached_sequences = cn_lru_count(worker->states.lru);
        stats.cached_bytes = cn_lru_bytes(worker->states.lru);
        stats.stored_sequences = cn_store_count(worker->states.store);
        stats.stored_bytes = cn_store_bytes(worker->states.store);
        put_store_stats(worker, &stats.store);
    }
    if (worker->rt->ops->report)
        worker->rt->ops->report(worker->rt);
    worker->busy_us = busy_us;
    worker->stats_due = false;
    worker->stats_sent_ms = cn_now_ms();
    cn_frame_put_stats(&worker->channel.out, &stats);
    return cn_channel_flush(&worker->channel, err);
}
