/* management/state/stores.c - the stores in the state folder, as loop 0 sees them: they are listed,
 * watched, removed and accepted. What touches the disk is in store_scan.c and state_store.c, and
 * runs on the file thread.
 *
 * Two things can be wrong with a store in use. It is damaged: a worker found that records are lost
 * and wrote the file DAMAGED into its folder. Or it is missing: somebody deleted or replaced the
 * folder, whose files the workers still have open. The second shows by the inode of the folder,
 * which is remembered when the store is first looked at; a folder that was put back under the same
 * name has another one. Both are reasons to be unhealthy, and both name what the operator must do.
 *
 * A look goes by way of the file thread: on_timer() collects the paths of all versions,
 * watch_work() reads the disk, watch_done() compares. A version that closed meanwhile is skipped.
 * `struct op` is a call of the management API; it lives from op_create() to op_end() and counts as
 * an operation, so a drain waits for it.
 */
#include "management/state/stores.h"

#include <inttypes.h>
#include <string.h>

#include "core/containers/table.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/api/json/json_text.h"
#include "management/management_priv.h"
#include "management/state/clock_watch.h"
#include "management/state/store_scan.h"
#include "metrics/counters/metrics.h"

#define WATCH_EVERY_MS 2000
#define DAMAGED "store_damaged"
#define MISSING "store_missing"

struct cn_stores {
    struct cn_management *management;
    struct cn_timer timer;
    struct cn_file_task task; /* the watch's visit to the file thread */
    struct cn_store_scan watched;
    uint64_t state_inode; /* inode of the state folder at the start */
    bool watching;
};

/* A call of the management API while it waits for the disk. */
struct op {
    struct cn_stores *stores;
    struct cn_file_task task;
    struct cn_store_scan scan;
    char *path, *name;
    bool in_use, counts;
    struct cn_error err;
    cn_stores_done_fn done;
    void *ctx;
};

/* --- which there are */

static void
each_version(struct cn_management *management,
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

/* Makes a table of the versions, also of those that close, by the paths of their stores. With a
 * search through all versions for each store, 10,000 models would occupy the loop. */
static struct cn_table *
make_users(const struct cn_stores *stores)
{
    struct cn_table *users = cn_table_create(store_of);

    each_version(stores->management, note_user, users);
    return users;
}

/* The version that uses the store at `path`; NULL: none. */
static struct cn_version *
user_of(const struct cn_table *users, const char *path)
{
    return cn_table_find(users, cn_str_from(path));
}

/* The end of a store's path, "model/version", by which an operator names the store. */
static const char *
name_of(const char *path)
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
    const char *name = name_of(path);
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
    const char *name = name_of(path);
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
    cn_health_clear(&stores->management->health, DAMAGED, name_of(version->store_dir));
    cn_health_clear(&stores->management->health, MISSING, name_of(version->store_dir));
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
    struct cn_table *users = make_users(stores);

    stores->watching = false;
    for (unsigned i = 0; i < scan->n; i++) {
        const struct cn_store_entry *entry = &scan->entries[i];
        const struct cn_version *version = user_of(users, entry->path);

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
    each_version(management, watch_add, stores);
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

/* --- calls */

static struct op *
op_create(struct cn_stores *stores, const char *model, const char *version, cn_stores_done_fn done,
          void *ctx)
{
    struct op *op = cn_alloc(sizeof *op);
    struct cn_table *users;
    struct cn_buf path;

    op->stores = stores;
    op->done = done;
    op->ctx = ctx;
    op->scan.root = cn_state_dir_path(stores->management->state);
    if (model) {
        cn_buf_init(&path, 0);
        cn_buf_printf(&path, "%s/models/%s/%s", op->scan.root, model, version);
        op->path = cn_buf_take(&path, NULL);
        op->name = cn_strdup(name_of(op->path));
        users = make_users(stores);
        op->in_use = user_of(users, op->path) != NULL;
        cn_table_destroy(users);
    }
    cn_management_op_begin(stores->management);
    return op;
}

/* Answers the call with `value`, which it takes, or, if that is NULL, with op->err. Frees the
 * call. */
static void
op_end(struct op *op, json_t *value)
{
    struct cn_management *management = op->stores->management;

    if (op->done)
        op->done(op->ctx, value, value ? NULL : &op->err);
    else
        json_decref(value);
    cn_store_scan_fini(&op->scan);
    cn_free(op->path);
    cn_free(op->name);
    cn_free(op);
    cn_management_op_end(management);
}

static json_t *
entry_json(const struct cn_table *users, const struct cn_store_entry *entry)
{
    const struct cn_version *user = user_of(users, entry->path);
    json_t *value = json_object();

    json_object_set_new(value, "name", cn_json_text(name_of(entry->path)));
    json_object_set_new(value, "state",
                        json_string(user                  ? "in use"
                                    : entry->is_set_aside ? "set aside"
                                                          : "unused"));
    if (user) {
        json_object_set_new(value, "modelName", cn_json_text(user->about.name));
        json_object_set_new(value, "modelVersion", cn_json_text(user->about.version));
    }
    json_object_set_new(value, "bytes", json_integer((json_int_t)entry->bytes));
    json_object_set_new(value, "sequences",
                        entry->has_sequences ? json_integer((json_int_t)entry->sequences)
                                             : json_null());
    json_object_set_new(value, "damage", entry->report ? cn_json_text(entry->report) : json_null());
    json_object_set_new(value, "path", cn_json_text(entry->path));
    return value;
}

static json_t *
unhealthy_json(struct cn_health *health)
{
    json_t *all = json_array();
    struct cn_list *link;

    cn_list_for_each(link, &health->reasons) {
        struct cn_health_reason *reason = cn_container_of(link, struct cn_health_reason, link);
        json_t *value = json_object();

        json_object_set_new(value, "kind", cn_json_text(reason->kind));
        json_object_set_new(value, "subject", cn_json_text(reason->subject));
        json_object_set_new(value, "text", cn_json_text(reason->text));
        json_array_append_new(all, value);
    }
    return all;
}

/* Reads the disk for a list. Sequences of unused stores are counted by a worker program. For stores
 * in use, the models' own lists show them. */
static void
list_work(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    cn_store_scan_all(&op->scan);
    for (unsigned i = 0; i < op->scan.n; i++)
        if (op->counts && !op->scan.entries[i].in_use)
            cn_store_scan_count(&op->scan.entries[i], op->stores->management->worker_program);
}

/* Counts the stores that no registered version uses, and names them in the log if `logs`. */
static unsigned
tell_unused(struct op *op, const struct cn_table *users, bool logs)
{
    unsigned n = 0;

    for (unsigned i = 0; i < op->scan.n; i++) {
        const struct cn_store_entry *entry = &op->scan.entries[i];

        if (user_of(users, entry->path))
            continue;
        n++;
        if (logs)
            cn_log(CN_LOG_WARN,
                   "event=store_unused store=%s bytes=%" PRIu64
                   " note=\"no registered model uses it; see continuo-ctl store ls and store rm\"",
                   name_of(entry->path), entry->bytes);
    }
    cn_metrics_set(cn_loop_metrics(op->stores->management->home), CN_M_STORES_UNUSED, n);
    return n;
}

static void
list_done(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);
    json_t *value = json_object(), *list = json_array();
    struct cn_table *users = make_users(op->stores);

    tell_unused(op, users, false);
    for (unsigned i = 0; i < op->scan.n; i++)
        json_array_append_new(list, entry_json(users, &op->scan.entries[i]));
    cn_table_destroy(users);
    json_object_set_new(value, "stores", list);
    json_object_set_new(value, "unhealthy", unhealthy_json(&op->stores->management->health));
    op_end(op, value);
}

static void
mark_used(void *ctx, const struct cn_version *version)
{
    struct op *op = ctx;

    if (version->store_dir)
        cn_store_scan_add(&op->scan, version->store_dir);
}

static void
run(struct op *op, void (*work)(struct cn_file_task *task), void (*done)(struct cn_file_task *task))
{
    op->task.work = work;
    op->task.done = done;
    cn_file_thread_run(op->stores->management->files, &op->task);
}

void
cn_stores_list(struct cn_stores *stores, bool count, cn_stores_done_fn done, void *ctx)
{
    struct op *op = op_create(stores, NULL, NULL, done, ctx);

    op->counts = count;

    each_version(stores->management, mark_used, op);
    run(op, list_work, list_done);
}

static void
start_work(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    cn_store_scan_all(&op->scan);
}

static void
start_done(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    struct cn_table *users = make_users(op->stores);

    tell_unused(op, users, true);
    cn_table_destroy(users);
    op_end(op, json_null());
}

void
cn_stores_started(struct cn_stores *stores)
{
    struct op *op = op_create(stores, NULL, NULL, NULL, NULL);

    cn_clock_watch_look(stores->management->home);
    each_version(stores->management, mark_used, op);
    run(op, start_work, start_done);
    cn_timer_set(cn_loop_wheel(stores->management->home), &stores->timer,
                 cn_loop_now_ms(stores->management->home) + WATCH_EVERY_MS);
}

static void
remove_work(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    if (cn_store_inode(op->path) == 0)
        cn_fail(&op->err, CN_E_MODEL_NOT_FOUND,
                "store %s does not exist; continuo-ctl store ls lists the stores", op->name);
    else
        cn_state_dir_remove_store(op->path);
}

static json_t *
status_json(const char *status, const char *name)
{
    json_t *value = json_object();

    json_object_set_new(value, "status", json_string(status));
    json_object_set_new(value, "name", cn_json_text(name));
    return value;
}

static void
remove_done(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    if (!op->err.code)
        cn_log(CN_LOG_INFO, "event=store_removed store=%s", op->name);
    op_end(op, op->err.code ? NULL : status_json("removed", op->name));
}

static bool
is_folder_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/');
}

void
cn_stores_remove(struct cn_stores *stores, const char *model, const char *version,
                 cn_stores_done_fn done, void *ctx)
{
    struct op *op = op_create(stores, model, version, done, ctx);

    if (!is_folder_name(model) || !is_folder_name(version))
        cn_fail(&op->err, CN_E_MODEL_NOT_FOUND, "there is no store %s", op->name);
    else if (op->in_use)
        cn_fail(&op->err, CN_E_CONFLICT,
                "store %s belongs to a registered model; unregister the model, which also deletes "
                "its store",
                op->name);
    if (op->err.code)
        op_end(op, NULL);
    else
        run(op, remove_work, remove_done);
}

static void
accept_work(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);

    if (cn_store_inode(op->path) == 0)
        cn_fail(&op->err, CN_E_MODEL_NOT_FOUND,
                "store %s does not exist; continuo-ctl store ls lists the stores", op->name);
    else
        cn_state_dir_accept_store(op->path, op->stores->management->worker_program, op->in_use,
                                  &op->err);
}

static void
accept_done(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);
    struct cn_table *users = make_users(op->stores);
    struct cn_version *user = user_of(users, op->path);

    if (user)
        cn_stores_look(op->stores, user);
    cn_table_destroy(users);
    op_end(op, op->err.code ? NULL : status_json("accepted", op->name));
}

void
cn_stores_accept(struct cn_stores *stores, const char *model, const char *version,
                 cn_stores_done_fn done, void *ctx)
{
    struct op *op = op_create(stores, model, version, done, ctx);

    if (!is_folder_name(model) || !is_folder_name(version)) {
        cn_fail(&op->err, CN_E_MODEL_NOT_FOUND, "there is no store %s", op->name);
        op_end(op, NULL);
        return;
    }
    run(op, accept_work, accept_done);
}
