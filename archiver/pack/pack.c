/* archiver/pack/pack.c - packs a model archive: checks what is to be packed, then writes it.
 * Archiver only, one thread.
 *
 * All checks come before the first byte is written: the name and the version, which become part of
 * URLs and paths; the model's YAML, which is read as the server will read it; the files, which
 * pack_files.c collects with their digests; and the manifest, which is parsed again after it was
 * printed. So whatever this program packs, the server can load, as far as that can be known without
 * running the handler.
 *
 * An archive is written under a temporary name in the same folder and renamed into place, so that a
 * server that watches its model store never sees half of one. The folder format cannot be renamed
 * over a folder that exists; there the files are written one by one and the manifest comes last.
 *
 * The same input always gives the same bytes, on each machine and at each time: the files are in
 * order of their names, all times are 1980, and SOURCE_DATE_EPOCH alone sets the manifest's date. A
 * digest of the archive therefore says whether two archives are the same model. */
#include "archiver/pack/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/archive_path.h"
#include "archiver/archive/digest.h"
#include "archiver/archive/manifest.h"
#include "archiver/archive/python_handler.h"
#include "archiver/pack/pack_files.h"
#include "archiver/pack/pack_write.h"
#include "core/memory/mem.h"

/* 1 January 1980; with the real time, no two archives would be the same. */
#define DEFAULT_EPOCH 315532800

static int
check_name(const char *name, struct cn_error *err)
{
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-.";

    if (name[0] == '\0' || strchr("_-.", name[0]) != NULL || name[strspn(name, chars)] != '\0')
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Model name contains special characters. The allowed "
                       "regular expression filter for model name is: "
                       "^[A-Za-z0-9][A-Za-z0-9_\\-.]*$");
    if (strlen(name) > 200)
        return cn_fail(err, CN_E_BAD_REQUEST, "Model name is longer than 200 characters");
    return 0;
}

static int
check_version(const char *version, struct cn_error *err)
{
    char clean[CN_ARCHIVE_PATH_MAX];

    if (version[0] == '\0' || strchr(version, '/') != NULL || strlen(version) > 200 ||
        cn_archive_path_clean(version, clean) != NULL)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "--version: \"%.64s\" must be 1 to 200 characters "
                       "without / or control characters, as it becomes part of URLs",
                       version);
    return 0;
}

/* Is it a TorchScript or ONNX model that needs no handler? Then --handler is not required. Without
 * --runtime, the suffix of the model's file decides. */
bool
cn_pack_is_model(const struct cn_pack_spec *spec)
{
    if (spec->handler != NULL || spec->serialized_file == NULL)
        return false;
    if (spec->runtime != NULL)
        return strcmp(spec->runtime, "torch") == 0 || strcmp(spec->runtime, "onnx") == 0;
    return cn_has_suffix(spec->serialized_file, ".pt") ||
           cn_has_suffix(spec->serialized_file, ".pt2") ||
           cn_has_suffix(spec->serialized_file, ".jit") ||
           cn_has_suffix(spec->serialized_file, ".onnx");
}

static const char *
runtime_of(const struct cn_pack_spec *spec)
{
    if (spec->runtime != NULL)
        return spec->runtime;
    if (cn_pack_is_model(spec))
        return cn_has_suffix(spec->serialized_file, ".onnx") ? "onnx" : "torch";
    return cn_has_suffix(spec->handler, ".lua")  ? "lua"
           : cn_has_suffix(spec->handler, ".so") ? "c"
                                                 : "python";
}

struct warner {
    const struct cn_pack_spec *spec;
    cn_config_warn_fn warn;
    void *ctx;
};

static void
warn_of_yaml(void *ctx, const char *line)
{
    const struct warner *warner = ctx;

    if (warner->warn && cn_model_config_warning_concerns(line, runtime_of(warner->spec)))
        warner->warn(warner->ctx, line);
}

static int
check_yaml(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    struct warner warner = {spec, warn, ctx};
    struct cn_model_config config;
    struct stat st;

    if (spec->config_file == NULL)
        return 0;
    if (stat(spec->config_file, &st) < 0)
        return cn_fail(err, CN_E_NOT_FOUND, "File does not exist: %s", spec->config_file);
    cn_model_config_init(&config);
    return cn_model_config_load(&config, spec->config_file, spec->config_file, !spec->no_check,
                                warn_of_yaml, &warner, err);
}

static int
check_python(const struct cn_pack_spec *spec, struct cn_error *err)
{
    const char *problem = spec->python ? cn_python_constraint_problem(spec->python) : NULL;

    if (problem)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "--python: \"%.200s\" is not a constraint of versions such as "
                       "\">=3.9,<3.14\": %s",
                       spec->python, problem);
    if (spec->python && strncmp(runtime_of(spec), "python", 6) != 0)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "--python: the handler runs in the runtime %s and needs no Python; leave "
                       "the flag out",
                       runtime_of(spec));
    return 0;
}

static int
created_on(char out[32], struct cn_error *err)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t when = DEFAULT_EPOCH;
    struct tm parts;

    if (epoch != NULL && epoch[0] != '\0') {
        char *end;
        long long value;

        errno = 0;
        value = strtoll(epoch, &end, 10);
        if (*end != '\0' || errno != 0 || value < 0 || value > 253402300799) /* year 9999 */
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "SOURCE_DATE_EPOCH: \"%.64s\" is not a number of "
                           "seconds since 1970",
                           epoch);
        when = (time_t)value;
    }
    gmtime_r(&when, &parts);
    strftime(out, 32, "%d/%m/%Y %H:%M:%S", &parts);
    return 0;
}

static char *
base_copy(const char *path)
{
    return path ? cn_strdup(cn_basename(path)) : NULL;
}

static int
make_manifest(const struct cn_pack_spec *spec, const struct cn_pack_files *files,
              struct cn_buf *out, struct cn_error *err)
{
    char when[32];
    struct cn_manifest manifest = {0}, again;
    int rc = created_on(when, err);

    if (rc != 0)
        return rc;
    manifest.created_on = cn_strdup(when);
    manifest.runtime = cn_strdup(runtime_of(spec));
    manifest.archiver_version = cn_strdup(CN_VERSION);
    manifest.model_name = cn_strdup(spec->model_name);
    manifest.model_version = cn_strdup(spec->version);
    manifest.handler =
        spec->handler_name ? cn_strdup(spec->handler_name) : base_copy(spec->handler);
    manifest.serialized_file = base_copy(spec->serialized_file);
    manifest.model_file = base_copy(spec->model_file);
    manifest.python = spec->python ? cn_strdup(spec->python) : NULL;
    manifest.requirements_file = base_copy(spec->requirements_file);
    manifest.config_file = base_copy(spec->config_file);
    if (files->n_items > 0)
        manifest.files = cn_alloc(files->n_items * sizeof(*manifest.files));
    for (uint32_t i = 0; i < files->n_items; i++)
        manifest.files[manifest.n_files++] = (struct cn_manifest_file){
            cn_strdup(files->items[i].name), cn_strdup(files->items[i].sha256)};
    cn_manifest_print(&manifest, out);
    cn_manifest_fini(&manifest);
    /* A manifest that a server would refuse must not be packed, such as one with the handler
     * "dir/..:f". */
    rc = cn_manifest_parse("the manifest", cn_buf_str(out), &again, err);
    if (rc == 0)
        cn_manifest_fini(&again);
    return rc;
}

/* Makes the export folder if it is missing, and warns that it did. */
static int
prepare_export_path(const char *path, cn_config_warn_fn warn, void *ctx, struct cn_error *err)
{
    struct stat st;
    char *copy, text[512];
    int rc = 0;

    if (*path == '\0')
        return cn_fail(err, CN_E_BAD_REQUEST, "Given export-path is empty. Point to a folder.");
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0
                                   : cn_fail(err, CN_E_BAD_REQUEST,
                                             "Given export-path %s is not a "
                                             "directory. Point to a valid export-path directory.",
                                             path);
    copy = cn_strdup(path);
    for (char *c = copy + 1; rc == 0; c++) {
        char kept = *c;

        if (kept != '/' && kept != '\0')
            continue;
        *c = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make export folder %s", copy);
        *c = kept;
        if (kept == '\0')
            break;
    }
    cn_free(copy);
    snprintf(text, sizeof(text), "export folder %.400s did not exist and was made", path);
    if (rc == 0 && warn != NULL)
        warn(ctx, text);
    return rc;
}

static int
pack_to_file(const struct cn_pack_spec *spec, const struct cn_pack_files *files,
             struct cn_str manifest, struct cn_pack_result *result, struct cn_error *err)
{
    char *temp = cn_alloc(strlen(result->path) + 16);
    mode_t mask = umask(0);
    int fd, rc;

    umask(mask);
    sprintf(temp, "%s.tmp-XXXXXX", result->path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", result->path);
        goto free_name;
    }
    rc = cn_pack_write_archive(fd, spec->format, spec->model_name, files, manifest, err);
    if (rc == 0 && fchmod(fd, 0666 & ~mask) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot set the mode of %s", temp);
    if (close(fd) < 0 && rc == 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", result->path);
    if (rc == 0)
        rc = cn_digest_file(temp, 0, result->sha256, &result->bytes, err);
    if (rc == 0 && rename(temp, result->path) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot rename to %s", result->path);
    if (rc != 0)
        unlink(temp);
free_name:
    cn_free(temp);
    return rc;
}

static int
pack_to_folder(const struct cn_pack_files *files, struct cn_str manifest,
               const struct cn_pack_result *result, struct cn_error *err)
{
    bool made = mkdir(result->path, 0755) == 0;
    int rc;

    if (!made && errno != EEXIST)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make folder %s", result->path);
    rc = cn_pack_write_folder(result->path, files, manifest, err);
    if (rc != 0 && made)
        cn_archive_remove_dir(result->path);
    return rc;
}

static int
write_out(const struct cn_pack_spec *spec, const struct cn_pack_files *files,
          struct cn_str manifest, struct cn_pack_result *result, struct cn_error *err)
{
    static const char *const suffixes[] = {".mar", ".mar", ".tar.gz", ""};
    struct cn_buf path;
    struct stat st;
    int rc;

    cn_buf_init(&path, 0);
    if (spec->export_path != NULL)
        cn_buf_printf(&path, "%s/", spec->export_path);
    cn_buf_printf(&path, "%s%s", spec->file_name ? spec->file_name : spec->model_name,
                  suffixes[spec->format]);
    result->path = cn_buf_take(&path, NULL);
    if (!spec->force && lstat(result->path, &st) == 0)
        rc = cn_fail(err, CN_E_CONFLICT,
                     "%s already exists. Please specify --force/-f option to "
                     "overwrite the model archive output file. See -h/--help for more details.",
                     result->path);
    else if (spec->format == CN_PACK_FOLDER)
        rc = pack_to_folder(files, manifest, result, err);
    else
        rc = pack_to_file(spec, files, manifest, result, err);
    if (rc != 0) {
        cn_free(result->path);
        result->path = NULL;
    }
    return rc;
}

int
cn_pack(const struct cn_pack_spec *given, cn_config_warn_fn warn, void *ctx,
        struct cn_pack_result *result, struct cn_error *err)
{
    struct cn_pack_spec spec = *given;
    struct cn_pack_files files;
    struct cn_buf manifest;
    int rc;

    memset(result, 0, sizeof(*result));
    spec.runtime = runtime_of(given);
    if ((rc = check_name(spec.model_name, err)) != 0 ||
        (rc = check_version(spec.version, err)) != 0 || (rc = check_python(&spec, err)) != 0 ||
        (rc = check_yaml(&spec, warn, ctx, err)) != 0 ||
        (rc = prepare_export_path(spec.export_path ? spec.export_path : ".", warn, ctx, err)) !=
            0 ||
        (rc = cn_pack_files_collect(&spec, warn, ctx, &files, err)) != 0)
        return rc;
    cn_buf_init(&manifest, 0);
    rc = make_manifest(&spec, &files, &manifest, err);
    if (rc == 0)
        rc = write_out(&spec, &files, cn_buf_str(&manifest), result, err);
    cn_buf_fini(&manifest);
    cn_pack_files_fini(&files);
    return rc;
}
