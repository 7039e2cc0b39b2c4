/* management/repository/repository_poll.c - in poll mode the models are what lies in the store,
 * which is looked at now and then. Loop 0; the disk is read on the file thread.
 *
 * A look compares the stamps of all archives with those of the look before. An archive counts only
 * when two looks found it the same, because it may still be copied. The very first look is
 * different: what lies there at start counts at once. An archive that vanished stays in the list
 * with the stamp 0 until that, too, was seen twice; only then its models are unloaded. So a
 * replacement by deleting and copying unloads nothing.
 *
 * `ordered` is the stamp with which an archive was last ordered to be loaded. One that could not be
 * loaded is therefore tried again only when it has changed.
 */
#include <string.h>

#include "archiver/sign/minisign.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"

#define SETTLE_MS 1000 /* a file that did not change for this time is taken for complete */

struct look {
    struct cn_repository *repository;
    struct cn_file_task task;
    int rc;
    struct cn_error err;
    struct cn_repository_seen *seen;
    uint32_t n;
};

static void set_timer(struct cn_repository *repository);

/* Returns the stamp of the archive, and with trusted keys of its signature, too: an archive that
 * was refused is tried again when its signature comes or changes. */
static uint64_t
stamp_of(const struct cn_repository *repository, const char *path)
{
    uint64_t stamp = cn_model_store_stamp(path);
    struct cn_buf signature;

    if (!repository->management->config->trusted_keys)
        return stamp;
    cn_buf_init(&signature, 0);
    cn_buf_printf(&signature, "%s" CN_SIGN_ENDING "%c", path, '\0');
    stamp += stamp ? cn_model_store_stamp(signature.data) : 0;
    cn_buf_fini(&signature);
    return stamp;
}

static void
work_look(struct cn_file_task *task)
{
    struct look *look = cn_container_of(task, struct look, task);
    const char *store = look->repository->management->config->model_store;
    char **files;
    char *path;
    struct cn_error err;

    look->rc = cn_model_store_list(store, &files, &look->n, &look->err);
    if (look->rc)
        return;
    look->seen = cn_alloc((look->n + 1) * sizeof *look->seen);
    for (uint32_t i = 0; i < look->n; i++) {
        look->seen[i].file = files[i];
        if (cn_model_store_resolve(store, files[i], &path, &err))
            continue;
        look->seen[i].stamp = stamp_of(look->repository, path);
        cn_free(path);
    }
    cn_free(files);
}

static const struct cn_repository_seen *
find(const struct cn_repository_seen *seen, uint32_t n, const char *file)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(seen[i].file, file) == 0)
            return &seen[i];
    return NULL;
}

/* Compares a file as it is now with what the look before found (NULL: it was not there), and orders
 * a load or an unload if it has changed and is at rest. True: look again soon. */
static bool
compare(struct cn_repository *repository, struct cn_repository_seen *now,
        const struct cn_repository_seen *before)
{
    now->ordered = before ? before->ordered : 0;
    if (now->stamp == now->ordered)
        return false;
    if (repository->looked && (!before || before->stamp != now->stamp))
        return true;
    now->ordered = now->stamp;
    if (now->stamp)
        cn_repository_load_file(repository, now->file);
    else
        cn_repository_unload_file(repository, now->file);
    return false;
}

/* Adds archives that are gone, with the stamp 0, until two looks have missed them. */
static void
add_gone(struct look *look, struct cn_repository_seen *before, uint32_t n_before)
{
    struct cn_repository_seen *all = cn_alloc((look->n + n_before + 1) * sizeof *all);
    uint32_t n = look->n;

    memcpy(all, look->seen, n * sizeof *all);
    cn_free(look->seen);
    look->seen = all;
    for (uint32_t i = 0; i < n_before; i++) {
        if (before[i].ordered == 0 || find(look->seen, n, before[i].file))
            continue;
        look->seen[look->n++] = (struct cn_repository_seen){.file = cn_strdup(before[i].file)};
    }
}

static void
forget(struct cn_repository_seen *seen, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cn_free(seen[i].file);
    cn_free(seen);
}

static void
take_look(struct cn_repository *repository, struct look *look)
{
    struct cn_repository_seen *before = repository->seen;
    uint32_t n_before = repository->n_seen;
    bool again = false;

    add_gone(look, before, n_before);
    for (uint32_t i = 0; i < look->n; i++)
        again |= compare(repository, &look->seen[i], find(before, n_before, look->seen[i].file));
    forget(before, n_before);
    repository->seen = look->seen;
    repository->n_seen = look->n;
    repository->looked = true;
    repository->unsettled = again;
}

static void
done_look(struct cn_file_task *task)
{
    struct look *look = cn_container_of(task, struct look, task);
    struct cn_repository *repository = look->repository;
    struct cn_management *management = repository->management;

    if (look->rc)
        cn_log(CN_LOG_WARN, "event=repository_poll_failed reason=\"%.300s\"", look->err.message);
    if (look->rc || atomic_load(&management->draining))
        forget(look->seen, look->n);
    else
        take_look(repository, look);
    cn_free(look);
    set_timer(repository);
    cn_management_op_end(management);
}

static void
poll_now(struct cn_timer *timer)
{
    struct cn_repository *repository = cn_container_of(timer, struct cn_repository, poll_timer);
    struct look *look = cn_alloc(sizeof *look);

    cn_management_op_begin(repository->management);
    look->repository = repository;
    look->task.work = work_look;
    look->task.done = done_look;
    cn_file_thread_run(repository->management->files, &look->task);
}

static void
set_timer(struct cn_repository *repository)
{
    struct cn_management *management = repository->management;
    uint32_t delay_ms = management->config->repository_poll_ms;

    if (repository->unsettled && delay_ms > SETTLE_MS)
        delay_ms = SETTLE_MS;
    if (repository->polling)
        cn_timer_set(cn_loop_wheel(management->home), &repository->poll_timer,
                     cn_loop_now_ms(management->home) + delay_ms);
}

void
cn_repository_started(struct cn_repository *repository)
{
    if (repository->management->config->model_control_mode != CN_CONTROL_POLL)
        return;
    repository->polling = true;
    cn_timer_init(&repository->poll_timer, poll_now);
    poll_now(&repository->poll_timer);
}

void
cn_repository_stop(struct cn_repository *repository)
{
    if (repository->polling)
        cn_timer_cancel(&repository->poll_timer);
    repository->polling = false;
}
