/* archiver/import/import.c - makes archives of a model in a Triton repository. Archiver only.
 *
 *   MODEL/config.pbtxt, MODEL/1/handler.lua, MODEL/2/..., MODEL/initial_state/...
 *
 * Each version that the configuration's version_policy chooses is packed: its files, initial_state,
 * and the configuration as YAML. So one folder may become several archives, named after model and
 * version. The model itself is not converted:
 *
 *   backend python       1/model.py runs in the user's interpreter (python/continuo/triton). The
 *                        archive has the model's folder as it is, without other versions
 *   backend onnxruntime  1/model.onnx runs without a handler (handlers/onnx)
 *   others               need a handler of ours in the folder, or given with --handler
 *
 * Settings that could not be carried over are reported one by one; the caller prints them. */
#include "archiver/import/import.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/archive_path.h"
#include "archiver/import/import_yaml.h"
#include "archiver/pack/pack.h"
#include "config/model/model_io.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define VERSIONS_MAX 1000
#define YAML_NAME "model-config.yaml"

struct import {
    const struct cn_import_spec *spec;
    const struct cn_import_events *events;
    char *pbtxt; /* path of the configuration */
    struct cn_arena arena;
    struct cn_buf bytes, yaml;
    const struct cn_pbtxt *config;
    char *model;
    uint64_t versions[VERSIONS_MAX]; /* those to pack, ascending */
    uint32_t n_versions;
    struct cn_error *err;
};

/* --- the configuration --- */

static int
read_config(struct import *import)
{
    FILE *file;

    import->pbtxt = cn_path_join(import->spec->dir, "config.pbtxt");
    file = fopen(import->pbtxt, "rbe");
    if (!file)
        return cn_fail_sys(import->err, CN_E_NOT_FOUND, errno,
                           "%s; give the folder of a model in a Triton repository", import->pbtxt);
    while (!feof(file) && !ferror(file) && import->bytes.len <= CN_PBTXT_MAX_BYTES) {
        char *at = cn_buf_reserve(&import->bytes, 65536);

        if (!at)
            break;
        import->bytes.len += fread(at, 1, 65536, file);
    }
    if (ferror(file) || import->bytes.failed) {
        fclose(file);
        return cn_fail(import->err, CN_E_IO, "cannot read %s", import->pbtxt);
    }
    fclose(file);
    return cn_pbtxt_parse(import->pbtxt, cn_buf_str(&import->bytes), &import->arena,
                          (struct cn_pbtxt **)&import->config, import->err);
}

/* Returns the text of a field, or NULL if it is not there or empty. */
static const char *
text_of(const struct cn_pbtxt *config, const char *name)
{
    const struct cn_pbtxt *field = cn_pbtxt_get(config, name);

    return field && field->kind == CN_PBTXT_STRING && field->text.len ? field->text.ptr : NULL;
}

static void
on_lost(void *ctx, const char *path, unsigned line, const char *note)
{
    const struct import *import = ctx;
    struct cn_buf buf;
    char *text;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s:%u: %s is not carried over: %s", import->pbtxt, line, path, note);
    text = cn_buf_take(&buf, NULL);
    if (text)
        import->events->on_lost(import->events->ctx, text);
    cn_free(text);
}

/* Makes the YAML, and checks that the server would accept it, with its tensors. */
static int
make_yaml(struct import *import, enum cn_import_kind kind)
{
    const bool has_input = cn_pbtxt_get(import->config, "input") != NULL;
    struct cn_yaml_doc *doc;
    struct cn_model_io *io;
    int rc;

    if (kind != CN_IMPORT_HANDLER && (!has_input || !cn_pbtxt_get(import->config, "output")))
        return cn_fail(import->err, CN_E_INVALID_MODEL,
                       "%s lists no %s: add the model's inputs and outputs, because Continuo does "
                       "not complete a configuration by itself (%s)",
                       import->pbtxt, has_input ? "output" : "input",
                       kind == CN_IMPORT_ONNX ? "continuo-archiver suggest MODEL.onnx shows them"
                                              : "auto_complete_config is not called");
    rc = cn_import_yaml(import->pbtxt, import->config, kind, import->spec->dir, &import->yaml,
                        on_lost, import, import->err);
    if (rc == 0)
        rc = cn_yaml_parse(YAML_NAME, cn_buf_str(&import->yaml), &doc, import->err);
    if (rc != 0)
        return rc;
    rc = cn_model_io_parse(doc, &io, import->err);
    cn_yaml_destroy(doc);
    if (rc == 0)
        cn_model_io_unref(io);
    return rc;
}

/* --- versions --- */

static int
compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* A version is a folder whose name is a number above 0 and nothing else. */
static bool
read_version(const char *name, uint64_t *out)
{
    char again[24];

    *out = strtoull(name, NULL, 10);
    snprintf(again, sizeof(again), "%" PRIu64, *out);
    return *out > 0 && strcmp(again, name) == 0;
}

static int
list_versions(struct import *import)
{
    DIR *folder = opendir(import->spec->dir);
    struct dirent *entry;
    uint64_t number;

    if (!folder)
        return cn_fail_sys(import->err, CN_E_IO, errno, "cannot list folder %s", import->spec->dir);
    while ((entry = readdir(folder)) != NULL && import->n_versions < VERSIONS_MAX)
        if (read_version(entry->d_name, &number))
            import->versions[import->n_versions++] = number;
    closedir(folder);
    qsort(import->versions, import->n_versions, sizeof(*import->versions), compare_numbers);
    if (import->n_versions == 0)
        return cn_fail(import->err, CN_E_NOT_FOUND, "%s has no version folder (1, 2, ...)",
                       import->spec->dir);
    return 0;
}

static bool
is_listed(const struct cn_pbtxt *specific, uint64_t version)
{
    for (const struct cn_pbtxt *one = specific->first; one; one = one->next)
        if (cn_str_eq(one->name, CN_STR("versions")) && one->kind == CN_PBTXT_NUMBER &&
            strtoull(one->text.ptr, NULL, 10) == version)
            return true;
    return false;
}

/* Keeps the versions that version_policy chooses: all, specific { versions } or
 * latest { num_versions }. Without a policy, only the last version is kept. */
static void
choose_versions(struct import *import)
{
    const struct cn_pbtxt *policy = cn_pbtxt_get(import->config, "version_policy"), *specific;
    const struct cn_pbtxt *latest, *number;
    uint64_t wanted = 1;
    uint32_t kept = 0;

    if (policy && cn_pbtxt_get(policy, "all"))
        return;
    specific = policy ? cn_pbtxt_get(policy, "specific") : NULL;
    latest = policy ? cn_pbtxt_get(policy, "latest") : NULL;
    number = latest ? cn_pbtxt_get(latest, "num_versions") : NULL;
    if (number && number->kind == CN_PBTXT_NUMBER)
        wanted = strtoull(number->text.ptr, NULL, 10);
    for (uint32_t i = 0; i < import->n_versions; i++)
        if (specific ? is_listed(specific, import->versions[i])
                     : import->n_versions - i <= (wanted ? wanted : 1))
            import->versions[kept++] = import->versions[i];
    import->n_versions = kept;
}

/* --- packing --- */

/* Returns the path of the file in the version's folder, which the caller frees, or NULL if there is
 * no such file. */
static char *
file_in(const char *folder, const char *name)
{
    char *path = cn_path_join(folder, name);

    if (access(path, R_OK) == 0)
        return path;
    cn_free(path);
    return NULL;
}

/* The model of one version. */
struct found {
    enum cn_import_kind kind;
    char *path; /* path of the handler, the model.py or the ONNX file; freed with cn_free() */
};

static const char *
backend_of(const struct import *import)
{
    const char *backend = text_of(import->config, "backend");
    const char *platform = text_of(import->config, "platform");

    if (!backend && platform && strcmp(platform, "onnxruntime_onnx") == 0)
        return "onnxruntime";
    return backend ? backend : platform ? platform : "";
}

/* Finds the file that the configuration names, or `otherwise`, in the version's folder. A file of
 * ONNX may lie in a folder of the same name, beside its weights. */
static int
find_named(const struct import *import, const char *folder, const char *otherwise,
           struct found *out)
{
    const char *named = text_of(import->config, "default_model_filename");
    const char *name = named ? named : otherwise;
    struct stat st;
    char *inner;

    out->path = file_in(folder, name);
    if (!out->path)
        return cn_fail(import->err, CN_E_NOT_FOUND,
                       "%s/%s does not exist; name the file in default_model_filename, or give a "
                       "handler with --handler",
                       folder, name);
    if (out->kind == CN_IMPORT_ONNX && stat(out->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        inner = file_in(out->path, name);
        if (!inner)
            return cn_fail(import->err, CN_E_NOT_FOUND, "%s is a folder and has no file %s",
                           out->path, name);
        cn_free(out->path);
        out->path = inner;
    }
    return 0;
}

/* Finds the model. The first of these counts: the handler of --handler; the file that the
 * configuration names, if the backend is one of our runtimes; a handler of ours in the version's
 * folder, whatever the backend is; the backend's own file, if models of that backend run here. */
static int
find_model(const struct import *import, const char *folder, struct found *out)
{
    static const char *const ours[] = {"handler.lua", "handler.py", "handler.so"};
    const char *backend = backend_of(import);

    *out = (struct found){.kind = CN_IMPORT_HANDLER};
    if (import->spec->handler) {
        out->path = cn_strdup(import->spec->handler);
        return 0;
    }
    if (strcmp(backend, "lua") == 0 || strcmp(backend, "c") == 0)
        return find_named(import, folder, backend[0] == 'c' ? ours[2] : ours[0], out);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if ((out->path = file_in(folder, ours[i])) != NULL)
            return 0;
    if (strcmp(backend, "python") == 0) {
        out->kind = CN_IMPORT_PYTHON;
        return find_named(import, folder, "model.py", out);
    }
    if (strcmp(backend, "onnxruntime") == 0) {
        out->kind = CN_IMPORT_ONNX;
        return find_named(import, folder, "model.onnx", out);
    }
    return cn_fail(import->err, CN_E_INVALID_MODEL,
                   "%s: the backend %s is not supported; models of the backends python and "
                   "onnxruntime run as they are, and for others write a handler in Python, Lua or "
                   "C (docs/handlers.md) and put it into %s as handler.py, handler.lua or "
                   "handler.so, or give it with --handler",
                   import->pbtxt, *backend ? backend : "\"\"", folder);
}

/* Makes a link in the folder `staging` to an entry of `folder`. The packer follows it. */
static int
stage_entry(const struct import *import, const char *folder, const char *name, const char *staging)
{
    char *from = cn_path_join(folder, name), *to = cn_path_join(staging, name);
    char *real = realpath(from, NULL);
    int rc = 0;

    if (!real || symlink(real, to) < 0)
        rc = cn_fail_sys(import->err, CN_E_IO, errno, "cannot copy %s", from);
    free(real); /* realpath's */
    cn_free(from);
    cn_free(to);
    return rc;
}

/* Is this entry of the model's folder left out of an archive of one version? */
static bool
is_left_out(const char *name, const char *version, const char *environment)
{
    uint64_t number;

    return name[0] == '.' || (read_version(name, &number) && strcmp(name, version) != 0) ||
           (environment && strcmp(cn_basename(environment), name) == 0);
}

/* Lays out the model's folder as it is, without other versions: a model.py finds its files by paths
 * that begin at this folder. The packed environment that it may have is left out. */
static int
stage_all(const struct import *import, const char *version, const char *staging)
{
    char *environment = cn_import_environment(import->config, import->spec->dir);
    DIR *list = opendir(import->spec->dir);
    struct dirent *entry;
    int rc =
        list ? 0
             : cn_fail_sys(import->err, CN_E_IO, errno, "cannot list folder %s", import->spec->dir);

    while (rc == 0 && (entry = readdir(list)) != NULL)
        if (!is_left_out(entry->d_name, version, environment))
            rc = stage_entry(import, import->spec->dir, entry->d_name, staging);
    if (list)
        closedir(list);
    cn_free(environment);
    return rc;
}

/* Makes links to the files of the version's folder that go into the archive beside the model and
 * the YAML. */
static int
stage(const struct import *import, const char *folder, const char *model, const char *staging)
{
    DIR *list = opendir(folder);
    struct dirent *entry;
    int rc = 0;

    if (!list)
        return cn_fail_sys(import->err, CN_E_IO, errno, "cannot list folder %s", folder);
    while (rc == 0 && (entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, cn_basename(model)) != 0)
            rc = stage_entry(import, folder, entry->d_name, staging);
    closedir(list);
    return rc;
}

static int
stage_initial_state(const struct import *import, const char *staging)
{
    char *from = cn_path_join(import->spec->dir, "initial_state");
    char *to = cn_path_join(staging, "initial_state"), *real = realpath(from, NULL);
    int rc = 0;

    if (real && symlink(real, to) < 0)
        rc = cn_fail_sys(import->err, CN_E_IO, errno, "cannot copy %s", from);
    free(real);
    cn_free(from);
    cn_free(to);
    return rc;
}

static int
write_yaml(const struct import *import, const char *path)
{
    FILE *file = fopen(path, "wbe");
    size_t written;

    if (!file)
        return cn_fail_sys(import->err, CN_E_IO, errno, "cannot write %s", path);
    written = fwrite(import->yaml.data, 1, import->yaml.len, file);
    if (fclose(file) != 0 || written != import->yaml.len)
        return cn_fail(import->err, CN_E_IO, "cannot write %s", path);
    return 0;
}

/* Returns the archive's name, which the caller frees with cn_free(). If there are several versions,
 * it is NAME-VERSION, so that their archives do not overwrite each other. */
static char *
file_name(const struct import *import, const char *version, bool is_last)
{
    struct cn_buf name;

    cn_buf_init(&name, 0);
    cn_buf_puts(&name, import->model);
    if (import->n_versions > 1 && !(is_last && import->spec->last_has_name))
        cn_buf_printf(&name, "-%s", version);
    return cn_buf_take(&name, NULL);
}

/* Fills the staging folder with links to what goes into the archive, besides the YAML. */
static int
stage_version(const struct import *import, const char *version, const struct found *found,
              const char *staging)
{
    char *folder;
    int rc;

    if (mkdir(staging, 0700) < 0)
        return cn_fail_sys(import->err, CN_E_IO, errno, "cannot make folder %s", staging);
    if (found->kind == CN_IMPORT_PYTHON)
        return stage_all(import, version, staging);
    folder = cn_path_join(import->spec->dir, version);
    rc = stage(import, folder, found->path, staging);
    cn_free(folder);
    return rc ? rc : stage_initial_state(import, staging);
}

/* Packs a version. `home` is a folder of our own in which the YAML and the links are made. */
static int
pack_staged(struct import *import, const char *version, bool is_last, const struct found *found,
            const char *home)
{
    char *staging = cn_path_join(home, "files"), *yaml = cn_path_join(home, YAML_NAME);
    char *name = file_name(import, version, is_last);
    char *place = cn_path_join(version, cn_basename(found->path));
    struct cn_pack_spec spec = {.model_name = import->model,
                                .version = version,
                                .config_file = yaml,
                                .extra_files = staging,
                                .export_path = import->spec->export_path,
                                .file_name = name,
                                .format = import->spec->format,
                                .force = import->spec->force};
    struct cn_pack_result result = {0};
    int rc;

    if (found->kind == CN_IMPORT_ONNX) {
        spec.serialized_file = found->path;
        spec.runtime = "onnx";
    } else {
        spec.handler = found->path;
    }
    if (found->kind == CN_IMPORT_PYTHON) {
        spec.handler_name = place;
        spec.runtime = "python";
    }
    rc = stage_version(import, version, found, staging);
    if (rc == 0)
        rc = write_yaml(import, yaml);
    if (rc == 0)
        rc = cn_pack(&spec, import->events->on_warning, import->events->ctx, &result, import->err);
    if (rc == 0)
        import->events->on_archive(import->events->ctx, import->model, version, result.path);
    cn_free(result.path);
    cn_free(place);
    cn_free(name);
    cn_free(staging);
    cn_free(yaml);
    return rc;
}

/* Finds the model of a version. The caller frees found->path. */
static int
find_version(const struct import *import, uint64_t number, char version[24], struct found *found)
{
    char *folder;
    int rc;

    snprintf(version, 24, "%" PRIu64, number);
    folder = cn_path_join(import->spec->dir, version);
    rc = find_model(import, folder, found);
    cn_free(folder);
    return rc;
}

static int
pack_version(struct import *import, uint64_t number, bool is_last)
{
    const char *tmp = getenv("TMPDIR");
    struct found found;
    char version[24], *home;
    int rc = find_version(import, number, version, &found);

    if (rc != 0) {
        cn_free(found.path);
        return rc;
    }
    home = cn_path_join(tmp && *tmp ? tmp : "/tmp", "continuo-import-XXXXXX");
    if (!mkdtemp(home)) {
        rc = cn_fail_sys(import->err, CN_E_IO, errno, "cannot make folder %s", home);
    } else {
        rc = pack_staged(import, version, is_last, &found, home);
        cn_archive_remove_dir(home); /* the links, not what they lead to */
    }
    cn_free(home);
    cn_free(found.path);
    return rc;
}

static int
run(struct import *import)
{
    const char *name;
    struct found found;
    char version[24], *real;
    int rc = read_config(import);

    if (rc == 0)
        rc = list_versions(import);
    if (rc != 0)
        return rc;
    choose_versions(import);
    if (import->n_versions == 0)
        return cn_fail(import->err, CN_E_NOT_FOUND,
                       "%s: version_policy selects none of the existing versions", import->pbtxt);
    /* One YAML for all versions: they have the same configuration, and usually the same backend. */
    rc = find_version(import, import->versions[import->n_versions - 1], version, &found);
    cn_free(found.path);
    if (rc == 0)
        rc = make_yaml(import, found.kind);
    if (rc != 0)
        return rc;
    real = realpath(import->spec->dir, NULL);
    name = text_of(import->config, "name");
    import->model = cn_strdup(name ? name : cn_basename(real ? real : import->spec->dir));
    free(real);
    for (uint32_t i = import->n_versions; rc == 0 && i-- > 0;) /* the default version first */
        rc = pack_version(import, import->versions[i], i + 1 == import->n_versions);
    return rc;
}

int
cn_import(const struct cn_import_spec *spec, const struct cn_import_events *events,
          struct cn_error *err)
{
    struct import import = {.spec = spec, .events = events, .err = err};
    int rc;

    cn_arena_init(&import.arena);
    cn_buf_init(&import.bytes, 0);
    cn_buf_init(&import.yaml, 0);
    rc = run(&import);
    cn_free(import.pbtxt);
    cn_free(import.model);
    cn_buf_fini(&import.bytes);
    cn_buf_fini(&import.yaml);
    cn_arena_fini(&import.arena);
    return rc;
}
