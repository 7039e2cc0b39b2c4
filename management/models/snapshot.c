/* management/models/snapshot.c - composes a configuration snapshot on loop 0 and writes it on the
 * file thread.
 *
 * A snapshot's name is a time, and the newest name counts at the next start. A name that would not
 * be the newest (the clock went back, or two were made within a millisecond) becomes the successor
 * of the newest one.
 *
 * Only one snapshot of a change is written at a time. A change that comes meanwhile sets
 * `snapshot_again`, and one more is written afterwards, however many changes came. A caller whose
 * change must be on the disk before it is answered waits in one of two lists: `snapshot_waits` for
 * the one that is being written, if that has the change already, or `snapshot_waits_next` for the
 * one after it. A snapshot that cannot be written is logged, and the callers are answered all the
 * same: serving goes on.
 */
#include "management/models/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "core/time/clock.h"
#include "management/management_priv.h"
#include "management/models/download.h"
#include "management/repository/find_archive.h"
#include "torchserve/settings/properties.h"
#include "torchserve/settings/torchserve_config.h"

#define DIGITS 17 /* yyyyMMddHHmmssSSS */

struct snapshot {
    struct cn_management *management;
    struct cn_file_task task;
    const char *kind; /* "startup", "snapshot", "shutdown" */
    uint64_t wall_ms;
    json_t *models;
    uint32_t n_models;
    bool is_change; /* of a change, or of the start: it counts as management->snapshot_busy */
    char name[40];  /* 20261121073025123-startup.cfg */
    struct cn_error err;
};

/* --- restoring */

int
cn_snapshot_check(const struct cn_server_config *config, struct cn_error *err)
{
    for (uint32_t i = 0; i < config->n_restored; i++) {
        const struct cn_model_settings *model = &config->restored[i];
        struct cn_archive_wanted wanted = {
            .config = config, .url = model->mar_name, .is_operators = true};
        struct cn_error unread;
        char *path = NULL;

        if (cn_model_store_is_remote(config->model_store) || cn_download_is_url(model->mar_name))
            continue; /* it is downloaded if it is not here */
        if (cn_find_archive(&wanted, &path, &unread))
            return cn_fail(err, CN_E_CONFIG,
                           "Model archive file for model :%s, version :%s not found in model "
                           "store (%s); start with --ncs to ignore the snapshot",
                           model->name, model->version, model->mar_name);
        cn_free(path);
    }
    return 0;
}

/* --- what stands in it (loop 0) */

/* Returns the word by which the next start finds the model. For an archive that was downloaded it
 * is the file's name in the model store, otherwise what the registration named. */
static const char *
mar_name(const struct cn_model_about *about)
{
    const char *slash = about->archive ? strrchr(about->archive, '/') : NULL;

    return slash ? slash + 1 : about->url;
}

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
show_version(const struct cn_version *version)
{
    const struct cn_model_config *config = &version->about.config;
    json_t *out = json_object();

    put(out, "defaultVersion", json_boolean(version == version->model->default_version));
    put(out, "marName", json_string(mar_name(&version->about)));
    put(out, "minWorkers", json_integer(version->min_workers));
    put(out, "maxWorkers", json_integer(version->max_workers));
    put(out, "batchSize", json_integer(config->batch_size));
    put(out, "maxBatchDelay", json_integer(config->max_batch_delay_ms));
    put(out, "responseTimeout", json_integer(config->response_timeout_s));
    put(out, "startupTimeout", json_integer(config->startup_timeout_s));
    put(out, "runtimeType", json_string(version->about.runtime));
    return out;
}

static json_t *
show_models(struct cn_management *management, uint32_t *count)
{
    json_t *out = json_object();
    struct cn_list *model_node, *node;

    *count = 0;
    cn_list_for_each(model_node, cn_registry_models(management->registry)) {
        struct cn_model *model = cn_container_of(model_node, struct cn_model, link);
        json_t *versions = json_object();

        cn_list_for_each(node, &model->versions) {
            struct cn_version *version = cn_container_of(node, struct cn_version, link);

            if (version->phase != CN_VERSION_UP)
                continue;
            put(versions, version->about.version, show_version(version));
            ++*count;
        }
        put(out, model->name, versions);
    }
    return out;
}

/* --- the file (file thread) */

static int
make_dirs(const char *dir)
{
    char path[4096];
    char *slash;

    if (strlen(dir) >= sizeof path)
        return ENAMETOOLONG;
    strcpy(path, dir);
    for (slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return errno;
        *slash = '/';
    }
    return mkdir(path, 0755) < 0 && errno != EEXIST ? errno : 0;
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names of the snapshots in the folder, oldest first. */
static uint32_t
list_snapshots(const char *dir, char ***names)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    uint32_t n = 0;

    *names = NULL;
    while (listing && (entry = readdir(listing))) {
        char **more;

        if (!cn_snapshot_is_name(entry->d_name))
            continue;
        more = cn_try_realloc(*names, (n + 1) * sizeof **names);
        if (!more)
            break;
        *names = more;
        more[n++] = cn_strdup(entry->d_name);
    }
    if (listing)
        closedir(listing);
    if (n)
        qsort(*names, n, sizeof **names, compare_names);
    return n;
}

/* Chooses the name, in local time as TorchServe does, because the two may share a folder. */
static void
choose_name(struct snapshot *snapshot, const char *newest)
{
    time_t seconds = (time_t)(snapshot->wall_ms / 1000);
    char stamp[32], last[DIGITS + 1] = "";
    struct tm when;

    localtime_r(&seconds, &when);
    strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &when);
    snprintf(stamp + 14, sizeof stamp - 14, "%03u", (unsigned)(snapshot->wall_ms % 1000));
    if (newest) {
        memcpy(last, newest, DIGITS);
        if (strcmp(stamp, last) <= 0)
            snprintf(stamp, sizeof stamp, "%017llu", strtoull(last, NULL, 10) + 1);
    }
    snprintf(snapshot->name, sizeof snapshot->name, "%.17s-%s.cfg", stamp, snapshot->kind);
}

static void
compose(const struct snapshot *snapshot, struct cn_buf *out)
{
    json_t *root = json_object();
    char *text;

    put(root, "name", json_string(snapshot->name));
    put(root, "modelCount", json_integer(snapshot->n_models));
    put(root, "created", json_integer((json_int_t)snapshot->wall_ms));
    json_object_set(root, "models", snapshot->models);
    text = json_dumps(root, JSON_COMPACT);
    cn_assert(text !=
              NULL); /* all names are UTF-8, which was checked when the models were loaded */
    cn_buf_puts(out, "#Saving snapshot\n");
    cn_buf_puts(out, snapshot->management->config->snapshot_text);
    cn_property_print("model_snapshot", text, out);
    free(text);
    json_decref(root);
}

/* Writes the file atomically, because the next start reads the newest one. It has the settings, and
 * so may have passwords, which only the server's user may read. */
static int
write_file(const char *path, struct cn_str text)
{
    char fresh[4200];

    snprintf(fresh, sizeof fresh, "%s.new", path);
    return cn_write_file_atomically(path, fresh, 0600, text.ptr, text.len);
}

static void
work_write(struct cn_file_task *task)
{
    struct snapshot *snapshot = cn_container_of(task, struct snapshot, task);
    const struct cn_server_config *config = snapshot->management->config;
    const char *dir = config->snapshot_dir;
    char path[4160], **names = NULL;
    struct cn_buf text;
    uint32_t i, n = 0;
    int failed = make_dirs(dir);

    cn_buf_init(&text, 0);
    if (!failed) {
        n = list_snapshots(dir, &names);
        choose_name(snapshot, n ? names[n - 1] : NULL);
        compose(snapshot, &text);
        snprintf(path, sizeof path, "%s/%s", dir, snapshot->name);
        failed = write_file(path, cn_buf_str(&text));
    }
    if (failed)
        cn_fail_sys(&snapshot->err, CN_E_IO, failed, "cannot write a snapshot into %s", dir);
    for (i = 0; i < n; i++) {
        if (!failed && i + config->snapshots_kept <= n) {
            snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            unlink(path);
        }
        cn_free(names[i]);
    }
    cn_free(names);
    cn_buf_fini(&text);
}

static void write_snapshot(struct cn_management *management, const char *kind, bool is_change);

static void
end_waits(struct cn_list *waits)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(waits))) {
        struct cn_snapshot_wait *wait = cn_container_of(node, struct cn_snapshot_wait, link);

        wait->done(wait);
    }
}

/* A snapshot of a change or of the start is written. Callers that wait for the next one go on
 * waiting. */
static void
written(struct cn_management *management)
{
    struct cn_list waits;

    cn_list_init(&waits);
    cn_list_splice_back(&waits, &management->snapshot_waits);
    cn_list_splice_back(&management->snapshot_waits, &management->snapshot_waits_next);
    management->snapshot_busy = false;
    if (management->snapshot_again && !atomic_load(&management->draining))
        write_snapshot(management, "snapshot", true);
    else
        cn_list_splice_back(&waits, &management->snapshot_waits);
    end_waits(&waits);
}

static void
done_write(struct cn_file_task *task)
{
    struct snapshot *snapshot = cn_container_of(task, struct snapshot, task);
    struct cn_management *management = snapshot->management;
    char reason[CN_ERROR_MESSAGE_MAX];

    /* Serving goes on; the log says what is lost. */
    if (snapshot->err.code)
        cn_log(CN_LOG_WARN, "event=snapshot_failed reason=%s",
               cn_log_quote(snapshot->err.message, strlen(snapshot->err.message), reason,
                            sizeof reason));
    if (snapshot->is_change)
        written(management);
    json_decref(snapshot->models);
    cn_free(snapshot);
    cn_management_op_end(management);
}

static void
write_snapshot(struct cn_management *management, const char *kind, bool is_change)
{
    struct snapshot *snapshot;

    if (!management->config->snapshot_dir)
        return;
    snapshot = cn_alloc(sizeof *snapshot);
    cn_management_op_begin(management);
    snapshot->management = management;
    snapshot->kind = kind;
    snapshot->wall_ms = cn_wall_ms();
    snapshot->models = show_models(management, &snapshot->n_models);
    snapshot->is_change = is_change;
    if (is_change) {
        management->snapshot_busy = true;
        management->snapshot_again = false;
    }
    snapshot->task.work = work_write;
    snapshot->task.done = done_write;
    cn_file_thread_run(management->files, &snapshot->task);
}

/* --- when */

void
cn_snapshot_started(struct cn_management *management)
{
    write_snapshot(management, "startup", true);
}

void
cn_snapshot_changed(struct cn_management *management)
{
    if (!atomic_load_explicit(&management->started, memory_order_relaxed) ||
        atomic_load(&management->draining))
        return;
    if (management->snapshot_busy)
        management->snapshot_again = true; /* written when that one is done */
    else
        write_snapshot(management, "snapshot", true);
}

void
cn_snapshot_wait(struct cn_management *management, struct cn_snapshot_wait *wait)
{
    cn_list_init(&wait->link);
    if (!management->snapshot_busy)
        wait->done(wait);
    else if (management->snapshot_again)
        cn_list_push_back(&management->snapshot_waits_next, &wait->link);
    else
        cn_list_push_back(&management->snapshot_waits, &wait->link);
}

void
cn_snapshot_stopping(struct cn_management *management)
{
    if (atomic_load_explicit(&management->started, memory_order_relaxed))
        write_snapshot(management, "shutdown", false);
}
