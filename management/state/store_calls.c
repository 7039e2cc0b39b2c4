/* management/state/store_calls.c - the management API's calls for stores: they are listed, removed
 * and accepted. On loop 0, with visits to the file thread.
 *
 * `struct op` is such a call while it waits for the disk; it lives from op_create() to op_end() and
 * counts as an operation, so a drain waits for it. */
#include <inttypes.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/api/json/json_text.h"
#include "management/state/clock_watch.h"
#include "management/state/stores_priv.h"
#include "metrics/counters/metrics.h"

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
        op->name = cn_strdup(cn_stores_name(op->path));
        users = cn_stores_users(stores);
        op->in_use = cn_stores_user(users, op->path) != NULL;
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
    const struct cn_version *user = cn_stores_user(users, entry->path);
    json_t *value = json_object();

    json_object_set_new(value, "name", cn_json_text(cn_stores_name(entry->path)));
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

        if (cn_stores_user(users, entry->path))
            continue;
        n++;
        if (logs)
            cn_log(CN_LOG_WARN,
                   "event=store_unused store=%s bytes=%" PRIu64
                   " note=\"no registered model uses it; see continuo-ctl store ls and store rm\"",
                   cn_stores_name(entry->path), entry->bytes);
    }
    cn_metrics_set(cn_loop_metrics(op->stores->management->home), CN_M_STORES_UNUSED, n);
    return n;
}

static void
list_done(struct cn_file_task *task)
{
    struct op *op = cn_container_of(task, struct op, task);
    json_t *value = json_object(), *list = json_array();
    struct cn_table *users = cn_stores_users(op->stores);

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

    cn_stores_each_version(stores->management, mark_used, op);
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

    struct cn_table *users = cn_stores_users(op->stores);

    tell_unused(op, users, true);
    cn_table_destroy(users);
    op_end(op, json_null());
}

void
cn_stores_started(struct cn_stores *stores)
{
    struct op *op = op_create(stores, NULL, NULL, NULL, NULL);

    cn_clock_watch_look(stores->management->home);
    cn_stores_each_version(stores->management, mark_used, op);
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
    else if (!atomic_load(&stores->management->started))
        cn_fail(&op->err, CN_E_CONFLICT,
                "the server is still starting, and store %s may be of a model that it has not "
                "registered yet; try again when it has started",
                op->name);
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
    struct cn_table *users = cn_stores_users(op->stores);
    struct cn_version *user = cn_stores_user(users, op->path);

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
