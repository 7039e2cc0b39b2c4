/* management/repository/triton_repository.c - a Triton model repository becomes the model store.
 *
 * Each model's folder is packed into archives below the state folder (archiver/import), which is
 * what `continuo-archiver import` does by hand. From there on nothing in the server knows about the
 * repository, which itself is only read.
 *
 * An archive is first made in a folder `.fresh-XXXXXX`. If its bytes are those of the archive that
 * is already there, the old file stays with its times, so its stamp does not change and a load does
 * nothing. Otherwise a rename puts the new one in its place. A model that cannot be packed is
 * refused with the reason, and the others are served.
 */
#include "management/repository/triton_repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/archive_path.h"
#include "archiver/import/import.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "management/repository/repository.h"

#define MODELS_MAX 100000 /* bound for one repository */

/* One model while it is packed. */
struct packing {
    const char *store, *fresh; /* folder of the archives; folder of those that were just made */
    struct cn_imported *out;   /* NULL: the caller does not want a list */
    struct cn_error *err;
    int rc;
};

/* --- what is told */

static void
log_text(enum cn_log_level level, const char *event, const char *text)
{
    char quoted[CN_ERROR_MESSAGE_MAX];

    cn_log(level, "event=%s text=%s", event,
           cn_log_quote(text, strlen(text), quoted, sizeof(quoted)));
}

static void
on_lost(void *ctx, const char *text)
{
    (void)ctx;
    log_text(CN_LOG_INFO, "model_field_ignored", text);
}

static void
on_warning(void *ctx, const char *text)
{
    (void)ctx;
    log_text(CN_LOG_WARN, "model_warning", text);
}

/* --- archives */

/* Have the two files the same bytes? */
static bool
is_same(const char *one, const char *other)
{
    FILE *files[2] = {fopen(one, "rbe"), fopen(other, "rbe")};
    char bytes[2][16384];
    size_t n = 0;
    bool same = files[0] && files[1];

    do {
        if (!same)
            break;
        n = fread(bytes[0], 1, sizeof(bytes[0]), files[0]);
        same = fread(bytes[1], 1, sizeof(bytes[1]), files[1]) == n &&
               memcmp(bytes[0], bytes[1], n) == 0;
    } while (same && n > 0);
    for (int i = 0; i < 2; i++)
        if (files[i])
            fclose(files[i]);
    return same;
}

static void
add_model(struct cn_imported *out, const char *model, const char *file)
{
    struct cn_model_arg *more = cn_alloc((out->n_models + 1) * sizeof(*more));

    if (out->n_models)
        memcpy(more, out->models, out->n_models * sizeof(*more));
    cn_free(out->models);
    out->models = more;
    more[out->n_models++] =
        (struct cn_model_arg){.name = cn_strdup(model), .file = cn_strdup(file)};
}

static void
on_archive(void *ctx, const char *model, const char *version, const char *path)
{
    struct packing *packing = ctx;
    const char *file = cn_basename(path);
    char *place = cn_path_join(packing->store, file);

    if (is_same(path, place))
        unlink(path);
    else if (rename(path, place) < 0)
        packing->rc =
            cn_fail_sys(packing->err, CN_E_IO, errno, "cannot move %s to %s", path, place);
    cn_log(CN_LOG_INFO, "event=model_imported model=%s version=%s archive=%s", model, version,
           file);
    if (packing->out)
        add_model(packing->out, model, file);
    cn_free(place);
}

static int
pack(const char *dir, const char *store, struct cn_imported *out, struct cn_error *err)
{
    char *fresh = cn_path_join(store, ".fresh-XXXXXX");
    struct packing packing = {.store = store, .fresh = fresh, .out = out, .err = err};
    const struct cn_import_events events = {
        .ctx = &packing, .on_archive = on_archive, .on_lost = on_lost, .on_warning = on_warning};
    struct cn_import_spec spec = {
        .dir = dir, .export_path = fresh, .format = CN_PACK_TGZ, .last_has_name = true};
    int rc;

    if (!mkdtemp(fresh)) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make folder %s", fresh);
    } else {
        rc = cn_import(&spec, &events, err);
        cn_archive_remove_dir(fresh);
    }
    cn_free(fresh);
    return rc ? rc : packing.rc;
}

/* --- the repository */

/* Has the folder a configuration, or a model that runs here as it is? Triton can complete the
 * configuration of some models without a file. Here such a model is refused with a message. */
static bool
is_model(const char *repository, const char *name)
{
    static const char *const signs[] = {"config.pbtxt", "1/model.py", "1/model.onnx"};
    char *dir = cn_path_join(repository, name);
    bool is = false;

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]) && !is; i++) {
        char *path = cn_path_join(dir, signs[i]);

        is = access(path, F_OK) == 0;
        cn_free(path);
    }
    cn_free(dir);
    return is;
}

static void
refuse(struct cn_imported *out, const char *dir, const char *model, const char *reason)
{
    struct cn_not_imported *more = cn_alloc((out->n_refused + 1) * sizeof(*more));
    char quoted[CN_ERROR_MESSAGE_MAX];

    if (out->n_refused)
        memcpy(more, out->refused, out->n_refused * sizeof(*more));
    cn_free(out->refused);
    out->refused = more;
    more[out->n_refused++] =
        (struct cn_not_imported){.model = cn_strdup(model), .reason = cn_strdup(reason)};
    cn_log(CN_LOG_WARN,
           "event=model_not_imported model=%s reason=%s hint=\"continuo-archiver import %s "
           "--handler FILE --export-path DIR makes an archive from it with your own handler\"",
           model, cn_log_quote(reason, strlen(reason), quoted, sizeof(quoted)), dir);
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the folders that may be models, sorted by name. */
static int
list(const char *repository, char ***names, uint32_t *n, struct cn_error *err)
{
    DIR *folder = opendir(repository);
    struct dirent *entry;
    uint32_t room = 0;

    *names = NULL;
    *n = 0;
    if (!folder)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "--model-repository %s", repository);
    while ((entry = readdir(folder)) != NULL && *n < MODELS_MAX) {
        if (entry->d_name[0] == '.' || !is_model(repository, entry->d_name))
            continue;
        if (*n == room) {
            char **more = cn_alloc((room = room ? 2 * room : 16) * sizeof(*more));

            if (*n)
                memcpy(more, *names, *n * sizeof(*more));
            cn_free(*names);
            *names = more;
        }
        (*names)[(*n)++] = cn_strdup(entry->d_name);
    }
    closedir(folder);
    if (*n)
        qsort(*names, *n, sizeof(**names), compare_names);
    return 0;
}

/* Removes archives of models that are no longer in the repository, and what a killed import
 * left. */
static void
remove_others(const struct cn_imported *out)
{
    DIR *folder = opendir(out->store);
    struct dirent *entry;

    while (folder && (entry = readdir(folder)) != NULL) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        char *path = cn_path_join(out->store, entry->d_name);

        for (uint32_t i = 0; i < out->n_models && !known; i++)
            known = strcmp(out->models[i].file, entry->d_name) == 0;
        if (!known && unlink(path) < 0)
            cn_archive_remove_dir(path);
        cn_free(path);
    }
    if (folder)
        closedir(folder);
}

static int
make_store(const struct cn_server_config *config, struct cn_imported *out, struct cn_error *err)
{
    if (config->model_store)
        return cn_fail(err, CN_E_CONFIG,
                       "--model-store and --model-repository cannot be combined: name either a "
                       "folder of archives or a Triton model repository");
    if (config->model_control_mode == CN_CONTROL_POLL)
        return cn_fail(err, CN_E_CONFIG,
                       "--model-control-mode poll needs --model-store; a Triton model repository "
                       "is read only at start, and in mode explicit at each load");
    out->store = cn_path_join(config->state_dir, "imported");
    if ((mkdir(config->state_dir, 0700) < 0 && errno != EEXIST) ||
        (mkdir(out->store, 0700) < 0 && errno != EEXIST))
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make folder %s", out->store);
    return 0;
}

/* Turns --models into archives. X means all versions of model X, and NAME=X serves them under that
 * name. A word that is not the name of a model in the repository stays as it is. Without --models
 * all models are loaded, but none in explicit mode. */
static void
choose(const struct cn_server_config *config, struct cn_imported *out)
{
    struct cn_imported chosen = {.n_models = 0};

    if (config->n_models == 0 && config->model_control_mode == CN_CONTROL_NONE)
        return;
    for (uint32_t i = 0; i < config->n_models; i++) {
        const struct cn_model_arg *arg = &config->models[i];
        const bool all = !arg->name && strcmp(arg->file, "all") == 0;
        uint32_t found = 0;

        for (uint32_t j = 0; j < out->n_models; j++) {
            if (!all && strcmp(out->models[j].name, arg->file) != 0)
                continue;
            add_model(&chosen, arg->name ? arg->name : out->models[j].name, out->models[j].file);
            found++;
        }
        if (!found && !all)
            add_model(&chosen, arg->name ? arg->name : arg->file, arg->file);
    }
    for (uint32_t i = 0; i < out->n_models; i++) {
        cn_free(out->models[i].name);
        cn_free(out->models[i].file);
    }
    cn_free(out->models);
    out->models = chosen.models;
    out->n_models = chosen.n_models;
}

int
cn_import_all(const struct cn_server_config *config, struct cn_imported *out, struct cn_error *err)
{
    char **names = NULL;
    uint32_t n = 0;
    int rc = make_store(config, out, err);

    if (!rc)
        rc = list(config->model_repository, &names, &n, err);
    for (uint32_t i = 0; i < n; i++) {
        char *dir = cn_path_join(config->model_repository, names[i]);
        struct cn_error why;

        if (pack(dir, out->store, out, &why))
            refuse(out, dir, names[i], why.message);
        cn_free(dir);
        cn_free(names[i]);
    }
    cn_free(names);
    if (rc)
        return rc;
    remove_others(out);
    choose(config, out);
    return 0;
}

void
cn_imported_fini(struct cn_imported *imported)
{
    for (uint32_t i = 0; i < imported->n_models; i++) {
        cn_free(imported->models[i].name);
        cn_free(imported->models[i].file);
    }
    for (uint32_t i = 0; i < imported->n_refused; i++) {
        cn_free(imported->refused[i].model);
        cn_free(imported->refused[i].reason);
    }
    cn_free(imported->models);
    cn_free(imported->refused);
    cn_free(imported->store);
    memset(imported, 0, sizeof(*imported));
}

int
cn_import_again(const char *repository, const char *store, const char *model, struct cn_error *err)
{
    char *dir;
    int rc;

    if (model[0] == '\0' || model[0] == '.' || strchr(model, '/') || !is_model(repository, model))
        return cn_fail(err, CN_E_NOT_FOUND, "%s has no folder %s", repository, model);
    dir = cn_path_join(repository, model);
    rc = pack(dir, store, NULL, err);
    cn_free(dir);
    return rc;
}
