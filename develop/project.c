/* develop/project.c - the folder of a model, and how it is packed. One thread.
 *
 * A folder is a model by the names of its files: handler.lua, handler.py or handler.so is the
 * handler; model.pt, model.pt2 or model.onnx is a model for its runtime; model-config.yaml has the
 * settings. build.sh runs first, because it may make one of these files. Whatever else lies in the
 * folder is packed as an extra file, except what is only for the author (left_out), sources in C,
 * hidden files and archives. A path to a file instead of a folder chooses that file. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/system/program_path.h"
#include "develop/develop.h"

/* In the order in which they are looked for. */
static const char *const handlers[] = {"handler.lua", "handler.py", "handler.so"};
static const char *const models[] = {"model.pt", "model.pt2", "model.onnx"};
/* What a folder has for its author and not for the server. */
static const char *const left_out[] = {"model-config.yaml", "test.yaml", "README.md", "build.sh",
                                       "make_model.py"};

static bool
has_suffix(const char *name, const char *suffix)
{
    size_t len = strlen(name), n = strlen(suffix);

    return len > n && strcmp(name + len - n, suffix) == 0;
}

static bool
is_there(const char *dir, const char *name)
{
    char path[PATH_MAX + NAME_MAX + 2];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The first of the names that is there, or "". */
static void
find_first(const char *dir, const char *const *names, size_t n, char out[NAME_MAX + 1])
{
    out[0] = '\0';
    for (size_t i = 0; i < n && !out[0]; i++)
        if (is_there(dir, names[i]))
            snprintf(out, NAME_MAX + 1, "%s", names[i]);
}

/* Tells build.sh where the header for C handlers is: in ../include of an installation, or in the
 * source tree of a build. */
static void
set_include(void)
{
    static const char *const places[] = {"../include", "../../../include"};
    char program[PATH_MAX], path[PATH_MAX + 64];
    struct cn_error err;

    if (getenv("CONTINUO_INCLUDE") || cn_program_path("", program, sizeof program, &err))
        return;
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/continuo/handler.h", program, places[i]);
        if (access(path, R_OK) == 0) {
            snprintf(path, sizeof path, "%s/%s", program, places[i]);
            setenv("CONTINUO_INCLUDE", path, 1);
            return;
        }
    }
}

static int
build(const struct cn_project *project, struct cn_error *err)
{
    const char *const argv[] = {"./build.sh", NULL};
    int status;

    set_include();
    if (chdir(project->dir) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot enter %.300s", project->dir);
    status = cn_develop_run(NULL, argv, false);
    return status == 0 ? 0
                       : cn_fail(err, CN_E_BAD_REQUEST, "%s/build.sh ended with status %d",
                                 project->name, status);
}

int
cn_project_open(const char *path, struct cn_project *out, struct cn_error *err)
{
    struct stat st;
    char *slash;
    int rc = 0;

    memset(out, 0, sizeof *out);
    if (!realpath(path, out->dir) || stat(out->dir, &st) < 0)
        return cn_fail_sys(err, CN_E_NOT_FOUND, errno, "cannot read %.300s", path);
    slash = strrchr(out->dir, '/');
    if (S_ISREG(st.st_mode) && slash > out->dir) {
        const char *file = slash + 1;
        const bool model =
            has_suffix(file, ".pt") || has_suffix(file, ".pt2") || has_suffix(file, ".onnx");

        snprintf(model ? out->serialized : out->handler, NAME_MAX + 1, "%.*s", NAME_MAX, file);
        *slash = '\0';
        slash = strrchr(out->dir, '/');
    }
    snprintf(out->name, sizeof out->name, "%.*s", CN_DEVELOP_NAME_MAX, slash + 1);
    out->has_config = is_there(out->dir, "model-config.yaml");
    out->has_build = is_there(out->dir, "build.sh");
    if (out->has_build)
        rc = build(out, err);
    if (rc == 0 && !out->handler[0] && !out->serialized[0]) {
        find_first(out->dir, handlers, 3, out->handler);
        find_first(out->dir, models, 3, out->serialized);
    }
    if (rc == 0 && !out->handler[0] && !out->serialized[0])
        rc = cn_fail(err, CN_E_NOT_FOUND,
                     "%.300s has no model: it needs handler.lua, handler.py, handler.so, model.pt, "
                     "model.pt2 or model.onnx; continuo new makes a folder to begin with",
                     out->dir);
    return rc;
}

/* Is it a file that the model needs beside its handler? */
static bool
is_extra(const struct cn_project *project, const char *name)
{
    if (name[0] == '.' || has_suffix(name, ".c") || has_suffix(name, "~") ||
        has_suffix(name, ".mar") || strchr(name, ',') || strcmp(name, project->handler) == 0 ||
        strcmp(name, project->serialized) == 0 || strcmp(name, "__pycache__") == 0)
        return false;
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (strcmp(name, left_out[i]) == 0)
            return false;
    return true;
}

static void
list_extras(const struct cn_project *project, struct cn_buf *out)
{
    DIR *dir = opendir(project->dir);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (is_there(project->dir, entry->d_name) && is_extra(project, entry->d_name))
            cn_buf_printf(out, "%s%s/%s", out->len ? "," : "", project->dir, entry->d_name);
    if (dir)
        closedir(dir);
    cn_buf_append(out, "", 1);
}

int
cn_project_pack(const struct cn_project *project, const char *store, unsigned number,
                struct cn_error *err)
{
    char version[16], file[PATH_MAX + 300], config[PATH_MAX + 32], serialized[PATH_MAX + 300];
    char to[PATH_MAX + 200], from[PATH_MAX + 200];
    const char *argv[20];
    struct cn_buf extras;
    size_t n = 0;
    int status;

    cn_buf_init(&extras, 0);
    list_extras(project, &extras);
    snprintf(version, sizeof version, "%u", number);
    snprintf(file, sizeof file, "%s/%s", project->dir, project->handler);
    snprintf(serialized, sizeof serialized, "%s/%s", project->dir, project->serialized);
    snprintf(config, sizeof config, "%s/model-config.yaml", project->dir);
#define ADD(text) argv[n++] = (text)
    ADD("continuo-archiver");
    ADD("--model-name");
    ADD(project->name);
    ADD("--version");
    ADD(version);
    ADD("--export-path");
    ADD(store);
    ADD("--force");
    if (project->handler[0])
        ADD("--handler"), ADD(file);
    if (project->serialized[0])
        ADD("--serialized-file"), ADD(serialized);
    if (project->has_config)
        ADD("--config-file"), ADD(config);
    if (extras.len > 1)
        ADD("--extra-files"), ADD(extras.data);
#undef ADD
    argv[n] = NULL;
    status = cn_develop_run("continuo-archiver", argv, true);
    cn_buf_fini(&extras);
    if (status)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s was not packed", project->name);
    snprintf(from, sizeof from, "%s/%s.mar", store, project->name);
    snprintf(to, sizeof to, "%s/%s-%u.mar", store, project->name, number);
    if (rename(from, to) < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot rename to %.300s", to);
    return 0;
}
