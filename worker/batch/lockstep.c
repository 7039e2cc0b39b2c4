/* worker/batch/lockstep.c - splits a batch when clients and worker are in lockstep (decision 0020).
 * Owned by the worker's one thread. Switched by the tuning `lockstep`.
 *
 * Clients that were all answered at once send their next steps at once, so that from then on server
 * and worker only ever wait for each other. If a large batch saves the handler nothing, half of the
 * rows are taken instead: while these are answered and their clients' next steps are read, the
 * other half runs. From then on two groups of clients alternate.
 *
 * A worker that does not poll (--busy-wait 0) splits nothing: each half costs a commit and two
 * wake-ups of threads that sleep, which is more than the alternation gains. */
#include "core/tuning/tuning.h"
#include "worker/worker_priv.h"

/* A batch that is cut in two has at least this number of rows in each half: fewer are not worth a
 * commit and a wake-up of their own. */
#define FEW_ROWS 8u

/* Was a row of this sequence in the last batch? It compares hashes only, which is good enough for a
 * guess. */
static bool
just_ran(const struct cn_batch *batch, uint32_t id_hash)
{
    uint32_t i = id_hash & batch->seen_mask;

    for (; batch->seen[i].stamp == batch->stamp; i = (i + 1) & batch->seen_mask)
        if (batch->seen[i].hash == id_hash)
            return true;
    return false;
}

/* Are clients and worker in lockstep: did all clients wait for the last batch, and then the worker
 * for all clients? It is so if the worker had to wait, and the newest row is of a sequence that was
 * in the last batch: then no other row is on its way. */
static bool
in_lockstep(const struct cn_worker *worker)
{
    const struct cn_pending *last;

    if (!worker->channel.waited || cn_list_empty(&worker->pending))
        return false;
    last = cn_container_of(worker->pending.prev, struct cn_pending, link);
    return last->row && (last->row->flags & CN_ROW_STATEFUL) && !last->stream &&
           just_ran(&worker->batch, last->id_hash);
}

uint32_t
cn_lockstep_rows(const struct cn_worker *worker)
{
    const uint32_t most = worker->load.batch_size;
    const struct cn_list *link;
    uint32_t waiting = 0;

    if (!cn_tuned(CN_TUNING_LOCKSTEP) || worker->channel.busy_wait.limit_us == 0 ||
        !worker->rt->runs_rows_apart || !in_lockstep(worker))
        return most;
    cn_list_for_each(link, &worker->pending)
        waiting++;
    waiting = (waiting + 1) / 2;
    waiting = waiting < FEW_ROWS ? FEW_ROWS : waiting;
    return waiting < most ? waiting : most;
}
