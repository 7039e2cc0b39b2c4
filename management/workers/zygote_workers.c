/* management/workers/zygote_workers.c - workers that are forked from a process that has their model
 * loaded.
 *
 * For the supervisor a zygote is a worker, started and watched in the same way, but it takes no
 * jobs. A worker that wants a process orders one from it. An order lives until the zygote
 * has answered it, even if its worker no longer waits: then the process that comes is killed.
 *
 * Until the first load is done, orders wait for the zygote, because the workers themselves would
 * load no faster; if that load fails, it has failed for all of them. A zygote that dies later is
 * started again, and workers start without it meanwhile.
 *
 * The children of a zygote are the server's own children (worker/process/fork.h), so for a worker
 * nothing else differs. All of this is on the model queue's loop
 * (docs/decisions/0014-workers-are-forked-from-a-zygote.md).
 */
#include <stdio.h>
#include <sys/wait.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/workers/supervisor_priv.h"

/* A fork takes milliseconds, or seconds on a machine that stalls. */
#define FORK_GRACE_MS 5000

struct cn_fork_order {
    struct cn_list link;
    struct cn_worker_process
        *worker;            /* NULL: the worker no longer waits, but the zygote was asked */
    struct cn_spawned ours; /* our ends, open once the order was sent */
    bool sent;
};

static struct cn_fork_order *
order_of(struct cn_list *node)
{
    return cn_container_of(node, struct cn_fork_order, link);
}

/* Frees an order and returns the worker that waited for it, or NULL. */
static struct cn_worker_process *
order_free(struct cn_fork_order *order)
{
    struct cn_worker_process *worker = order->worker;

    if (worker)
        worker->order = NULL;
    cn_spawn_close(&order->ours);
    cn_list_remove(&order->link);
    cn_free(order);
    return worker;
}

/* Sends an order. False: no descriptors could be opened. If the zygote takes no order, its link is
 * lost, and cn_zygote_end() follows. */
static bool
send_order(struct cn_worker_process *zygote, struct cn_fork_order *order)
{
    struct cn_spawn_ends theirs;
    struct cn_error err;
    char label[400];

    if (cn_spawn_open(&order->ours, &theirs, &err))
        return false;
    cn_worker_label(order->worker, label, sizeof label);
    order->sent = cn_worker_link_send_fork(zygote->link, cn_str_from(label), theirs.fds);
    cn_spawn_close_ends(&theirs);
    if (order->sent)
        cn_worker_arm(zygote, FORK_GRACE_MS);
    return true;
}

bool
cn_zygote_order(struct cn_worker_process *zygote, struct cn_worker_process *worker)
{
    struct cn_fork_order *order;
    bool ready = zygote->state == CN_WORKER_READY && !zygote->lost && !zygote->exited;

    if (!ready && (zygote->ever_loaded || zygote->state == CN_WORKER_STOPPING))
        return false;
    order = cn_alloc(sizeof *order);
    order->worker = worker;
    order->ours = (struct cn_spawned){.pid_fd = -1, .socket_fd = -1, .stderr_fd = -1};
    cn_list_init(&order->link);
    cn_list_push_back(&zygote->orders, &order->link);
    worker->order = order;
    if (!ready || send_order(zygote, order))
        return true;
    order_free(order);
    return false;
}

void
cn_zygote_forget(struct cn_worker_process *worker)
{
    struct cn_fork_order *order = worker->order;

    if (!order)
        return;
    worker->order = NULL;
    order->worker = NULL;
    if (!order->sent)
        order_free(order);
}

void
cn_zygote_begin(struct cn_worker_process *zygote)
{
    struct cn_list *node, *tmp;

    cn_list_for_each_safe(node, tmp, &zygote->orders)
        if (!send_order(zygote, order_of(node)))
            cn_worker_start_alone(order_free(order_of(node)));
}

/* Is the pid a child of ours, and a new one? A zygote's memory may have been overwritten by a
 * handler, so the pid that it sends could be any process, also the worker of another model, which
 * would then be limited and killed in the place of this one. */
static bool
is_new_child(pid_t pid)
{
    siginfo_t info;

    return !cn_spawn_is_watched(pid) &&
           waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void
give_process(struct cn_worker_process *zygote, struct cn_fork_order *order, pid_t pid)
{
    struct cn_spawned process = order->ours;
    struct cn_worker_process *worker;
    struct cn_error err;

    order->ours = (struct cn_spawned){.pid_fd = -1, .socket_fd = -1, .stderr_fd = -1};
    worker = order_free(order);
    if (cn_spawn_adopt(&process, pid, &err)) {
        cn_log(CN_LOG_WARN, "event=fork_failed model=%s zygote=%d reason=\"%s\"",
               zygote->spec->about->name, (int)zygote->pid, err.message);
        cn_spawn_close(&process);
        if (worker)
            cn_worker_start_alone(worker);
    } else if (worker && !worker->spec->held) {
        cn_worker_take_process(worker, &process);
    } else {
        cn_spawn_kill(process.pid_fd);
        cn_spawn_wait(process.pid_fd);
        cn_spawn_close(&process);
        if (worker)
            cn_worker_start_alone(worker); /* later */
    }
}

void
cn_zygote_on_forked(struct cn_worker_process *zygote, const struct cn_forked *forked)
{
    struct cn_fork_order *order = order_of(zygote->orders.next);
    char quoted[300];
    struct cn_worker_process *worker;

    cn_assert(!cn_list_empty(&zygote->orders) && order->sent); /* the link counts the FORK frames */
    if (zygote->state == CN_WORKER_READY)
        cn_timer_cancel(&zygote->timer);
    if (forked->pid && is_new_child((pid_t)forked->pid)) {
        give_process(zygote, order, (pid_t)forked->pid);
    } else {
        cn_log(CN_LOG_WARN, "event=fork_failed model=%s zygote=%d pid=%u reason=%s",
               zygote->spec->about->name, (int)zygote->pid, forked->pid,
               cn_log_quote(forked->message.ptr, forked->message.len, quoted, sizeof quoted));
        worker = order_free(order);
        if (worker)
            cn_worker_start_alone(worker);
    }
    if (zygote->state == CN_WORKER_READY && !cn_list_empty(&zygote->orders))
        cn_worker_arm(zygote, FORK_GRACE_MS);
}

void
cn_zygote_end(struct cn_worker_process *zygote)
{
    struct cn_worker_process *worker;

    while (!cn_list_empty(&zygote->orders)) {
        worker = order_free(order_of(zygote->orders.next));
        if (!worker)
            continue;
        if (zygote->ever_loaded || zygote->state == CN_WORKER_STOPPING)
            cn_worker_start_alone(worker);
        else
            cn_worker_start_failed(worker, zygote->last_exit);
    }
}
