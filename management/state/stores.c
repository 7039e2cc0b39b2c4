/* management/state/stores.c - the stores in the state folder, as loop 0 sees them: what is wrong
 * with those in use, and the watch that finds it. The calls of the management API are in
 * store_calls.c. What touches the disk is in store_scan.c and state_store.c, and runs on the file
 * thread.
 *
 * Two things can be wrong with a store in use. It is damaged: a worker found that records are lost
 * and wrote the file DAMAGED into its folder. Or it is missing: somebody deleted or replaced the
 * folder, whose files the workers still have open. The second shows by the inode of the folder,
 * which is remembered when the store is first looked at; a folder that was put back under the same
 * name has another one. Both are reasons to be unhealthy, and both name what the operator must do.
 *
 * A look goes by way of the file thread: on_timer() collects the paths of all versions,
 * watch_work() reads the disk, watch_done() compares. A version that closed meanwhile is skipped.
 */
#include "management/state/stores.h"

#include <inttypes.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/state/clock_watch.h"
#include "management/state/stores_priv.h"
#include "metrics/counters/metrics.h"

#define DAMAGED "store_damaged"
#define MISSING "store_missing"

/* --- which there are */

void
cn_stores_each_version(struct cn_management *management,
                       void (*fn)(void *ctx, const struct cn_version *version), void *ctx)
{
    struct cn_list *model, *version;

    cn_list_for_each(model, cn_registry_models(management->registry)) {
        struct cn_model *of = cn_container_of(model, struct cn_model, link);

        cn_list_for_each(version, &of->versions)
            fn(ctx, cn_container_of(version, struct cn_version, link));
    }
    cn_list_for_each(version, cn_registry_closing(management->registry))
        fn(ctx, cn_container_of(version, struct cn_version, link));
}

static struct cn_str
store_of(const void *item)
{
    return cn_str_from(((const struct cn_version *)item)->store_dir);
}

static void
note_user(void *ctx, const struct cn_version *version)
{
    if (version->store_dir)
        cn_table_put(ctx, (struct cn_version *)version);
}

struct cn_table *
cn_stores_users(const struct cn_stores *stores)
{
    struct cn_table *users = cn_table_create(store_of);

    cn_stores_each_version(stores->management, note_user, users);
    return users;
}

struct cn_version *
cn_stores_user(const struct cn_table *users, const char *path)
{
    return cn_table_find(users, cn_str_from(path));
}

const char *
cn_stores_name(const char *path)
{
    const char *at = strrchr(path, '/');

    while (at > path && *--at != '/')
        continue;
    return *at == '/' ? at + 1 : at;
}

/* --- what is wrong */

/* Updates the metrics that count damaged and missing stores. */
static void
show_figures(struct cn_stores *stores)
{
    struct cn_metrics *metrics = cn_loop_metrics(stores->management->home);
    uint64_t damaged = 0, missing = 0;
    struct cn_list *link;

    cn_list_for_each(link, &stores->management->health.reasons) {
        struct cn_health_reason *reason = cn_container_of(link, struct cn_health_reason, link);

        damaged += strcmp(reason->kind, DAMAGED) == 0;
        missing += strcmp(reason->kind, MISSING) == 0;
    }
    cn_metrics_set(metrics, CN_M_STORES_DAMAGED, damaged);
    cn_metrics_set(metrics, CN_M_STORES_MISSING, missing);
}

static void
set_reason(struct cn_stores *stores, const char *kind, const char *name, const char *text)
{
    char quoted[2048];

    if (cn_health_set(&stores->management->health, kind, name, text))
        cn_log(CN_LOG_ERROR, "event=%s store=%s reason=%s", kind, name,
               cn_log_quote(text, strlen(text), quoted, sizeof quoted));
}

/* Sets or clears the reason "damaged" of a store, with a sentence for the operator. */
static void
tell_damage(struct cn_stores *stores, const char *path, const struct cn_store_entry *entry)
{
    const char *name = cn_stores_name(path);
    struct cn_buf text;
    char *said;

    if (!entry->report) {
        if (cn_health_clear(&stores->management->health, DAMAGED, name))
            cn_log(CN_LOG_INFO, "event=store_accepted store=%s", name);
        return;
    }
    cn_buf_init(&text, 0);
    if (entry->suspect)
        cn_buf_puts(
            &text,
            "the newest state of some sequences may be lost, and it is not known of which ones");
    else
        cn_buf_printf(&text, "the newest state of %" PRIu64 " sequence%s is lost", entry->lost,
                      entry->lost == 1 ? "" : "s");
    cn_buf_printf(
        &text,
        ": %s; restore the folder %s from a backup with the server stopped, or accept the "
        "loss: continuo-ctl store accept %s",
        entry->report, path, name);
    said = cn_buf_take(&text, NULL);
    set_reason(stores, DAMAGED, name, said);
    cn_free(said);
}

/* Sets or clears the reason "missing" of a store. */
static void
tell_missing(struct cn_stores *stores, const char *path, bool missing)
{
    const char *name = cn_stores_name(path);
    struct cn_buf text;
    char *said;

    if (!missing) {
        cn_health_clear(&stores->management->health, MISSING, name);
        return;
    }
    cn_buf_init(&text, 0);
    cn_buf_printf(
        &text,
        "the folder %s was deleted or replaced while the server runs: the workers still use the "
        "deleted files, and all steps since then are lost when the workers end; export what you "
        "need (continuo-ctl seq export), then stop the server and restore the folder",
        path);
    said = cn_buf_take(&text, NULL);
    set_reason(stores, MISSING, name, said);
    cn_free(said);
}

void
cn_stores_look(struct cn_stores *stores, struct cn_version *version)
{
    struct cn_store_entry entry = {.path = version->store_dir};

    if (!version->store_dir)
        return;
    if (version->store_inode == 0)
        version->store_inode = cn_store_inode(version->store_dir);
    cn_store_read_report(&entry);
    tell_damage(stores, version->store_dir, &entry);
    cn_free(entry.report);
    show_figures(stores);
}

void
cn_stores_forget(struct cn_stores *stores, const struct cn_version *version)
{
    if (!version->store_dir)
        return;
    cn_health_clear(&stores->management->health, DAMAGED, cn_stores_name(version->store_dir));
    cn_health_clear(&stores->management->health, MISSING, cn_stores_name(version->store_dir));
    show_figures(stores);
}

/* --- the watch */

static void
watch_work(struct cn_file_task *task)
{
    struct cn_stores *stores = cn_container_of(task, struct cn_stores, task);

    cn_store_scan_look(&stores->watched);
}

static void
watch_done(struct cn_file_task *task)
{
    struct cn_stores *stores = cn_container_of(task, struct cn_stores, task);
    struct cn_store_scan *scan = &stores->watched;
    struct cn_table *users = cn_stores_users(stores);

    stores->watching = false;
    for (unsigned i = 0; i < scan->n; i++) {
        const struct cn_store_entry *entry = &scan->entries[i];
        const struct cn_version *version = cn_stores_user(users, entry->path);

        if (!version || version->phase != CN_VERSION_UP)
            continue; /* it closed meanwhile, or is still being registered */
        tell_damage(stores, entry->path, entry);
        tell_missing(stores, entry->path,
                     scan->state_inode != stores->state_inode ||
                         (version->store_inode && entry->inode != version->store_inode));
    }
    show_figures(stores);
    cn_table_destroy(users);
    cn_store_scan_fini(scan);
}

static void
watch_add(void *ctx, const struct cn_version *version)
{
    struct cn_stores *stores = ctx;

    if (version->phase == CN_VERSION_UP && version->store_dir)
        cn_store_scan_add(&stores->watched, version->store_dir);
}

static void
on_timer(struct cn_timer *timer)
{
    struct cn_stores *stores = cn_container_of(timer, struct cn_stores, timer);
    struct cn_management *management = stores->management;

    if (atomic_load(&management->draining))
        return;
    cn_timer_set(cn_loop_wheel(management->home), timer,
                 cn_loop_now_ms(management->home) + WATCH_EVERY_MS);
    cn_clock_watch_look(management->home);
    if (stores->watching)
        return;
    stores->watching = true;
    stores->watched = (struct cn_store_scan){.root = cn_state_dir_path(management->state)};
    cn_stores_each_version(management, watch_add, stores);
    cn_file_thread_run(management->files, &stores->task);
}

/* --- begin and end */

struct cn_stores *
cn_stores_create(struct cn_management *management)
{
    struct cn_stores *stores = cn_alloc(sizeof *stores);

    stores->management = management;
    cn_timer_init(&stores->timer, on_timer);
    stores->task.work = watch_work;
    stores->task.done = watch_done;
    stores->state_inode = cn_store_inode(cn_state_dir_path(management->state));
    return stores;
}

void
cn_stores_destroy(struct cn_stores *stores)
{
    if (!stores)
        return;
    cn_timer_cancel(&stores->timer);
    cn_store_scan_fini(&stores->watched);
    cn_free(stores);
}
