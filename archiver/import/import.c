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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/archive_path.h"
#include "archiver/import/import_priv.h"
#include "archiver/pack/pack.h"
#include "config/model/model_io.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define YAML_NAME "model-config.yaml"

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

/* --- packing --- */

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

    return name[0] == '.' ||
           (cn_import_version_number(name, &number) && strcmp(name, version) != 0) ||
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
stage_version(const struct import *import, const char *version, const struct import_model *found,
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
pack_staged(struct import *import, const char *version, bool is_last,
            const struct import_model *found, const char *home)
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

static int
pack_version(struct import *import, uint64_t number, bool is_last)
{
    const char *tmp = getenv("TMPDIR");
    struct import_model found;
    char version[24], *home;
    int rc = cn_import_find_model(import, number, version, &found);

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
    struct import_model found;
    char version[24], *real;
    int rc = read_config(import);

    if (rc == 0)
        rc = cn_import_list_versions(import);
    if (rc != 0)
        return rc;
    cn_import_choose_versions(import);
    if (import->n_versions == 0)
        return cn_fail(import->err, CN_E_NOT_FOUND,
                       "%s: version_policy selects none of the existing versions", import->pbtxt);
    /* One YAML for all versions: they have the same configuration, and usually the same backend. */
    rc = cn_import_find_model(import, import->versions[import->n_versions - 1], version, &found);
    cn_free(found.path);
    if (rc == 0)
        rc = make_yaml(import, found.kind);
    if (rc != 0)
        return rc;
    real = realpath(import->spec->dir, NULL);
    name = cn_import_text(import->config, "name");
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
