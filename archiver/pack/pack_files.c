/* archiver/pack/pack_files.c - collects the files of an archive as torch-model-archiver does.
 * Archiver only.
 *
 * Files that a flag names (handler, model, YAML) land at the root of the archive under their base
 * names. --extra-files is a list of files, patterns and folders, separated by commas; a folder's
 * content lands at the root. Two different files that would get the same name are an error, since
 * one would silently replace the other.
 *
 * Folders whose names begin with a dot, __pycache__ and __MACOSX are left out of folders, because
 * tools put them there. MAR-INF belongs to the archiver. After collecting, the files are sorted by
 * name and their sizes and digests are taken, so that packing the same files gives the same
 * archive. */
#include "archiver/pack/pack_files.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/digest.h"
#include "archiver/archive/python_handler.h"
#include "archiver/onnx/onnx_file.h"
#include "core/memory/mem.h"

struct collector {
    struct cn_pack_files *files;
    cn_config_warn_fn warn;
    void *ctx;
    struct cn_error *err;
    bool listing; /* lists a model's folder: only MAR-INF is left out */
};

/* Is it a handler that is part of TorchServe's worker, so that there is nothing to copy? */
static bool
is_built_in(const char *handler, const char *runtime)
{
    if (strcmp(runtime, "LSP") == 0)
        return strcmp(handler, "BaseHandler") == 0 || strcmp(handler, "TorchScriptHandler") == 0;
    return strncmp(runtime, "python", 6) == 0 && cn_python_handler_is_built_in(handler);
}

void
cn_pack_files_fini(struct cn_pack_files *files)
{
    for (uint32_t i = 0; i < files->n_items; i++) {
        cn_free(files->items[i].name);
        cn_free(files->items[i].source);
    }
    cn_free(files->items);
    memset(files, 0, sizeof(*files));
}

/* Adds a file under this name. The strings stay the caller's. */
static int
add_file(struct collector *c, const char *name, const char *source)
{
    struct cn_pack_files *files = c->files;
    char clean[CN_ARCHIVE_PATH_MAX];
    const char *problem = cn_archive_path_clean(name, clean);

    if (problem != NULL)
        return cn_fail(c->err, CN_E_BAD_REQUEST, "%s %s; rename it", source, problem);
    if (strncasecmp(name, "MAR-INF", 7) == 0 && (name[7] == '/' || name[7] == '\0'))
        return cn_fail(
            c->err, CN_E_BAD_REQUEST,
            "%s would be packed into MAR-INF, which only the archiver writes; leave it out",
            source);
    if (files->n_items == files->cap) {
        uint32_t cap = files->cap ? files->cap * 2 : 16;
        struct cn_pack_file *items = cn_try_realloc(files->items, cap * sizeof(*items));
        if (items == NULL)
            return cn_fail(c->err, CN_E_OUT_OF_MEMORY, "not enough memory for a list of %u files",
                           cap);
        files->items = items;
        files->cap = cap;
    }
    files->items[files->n_items++] =
        (struct cn_pack_file){.name = cn_strdup(name), .source = cn_strdup(source)};
    return 0;
}

/* Adds a file that a flag names. It lands at the root. */
static int
add_named(struct collector *c, const char *path)
{
    struct stat st;

    if (path == NULL)
        return 0;
    if (stat(path, &st) < 0)
        return cn_fail(c->err, CN_E_NOT_FOUND, "File does not exist: %s", path);
    if (!S_ISREG(st.st_mode))
        return cn_fail(c->err, CN_E_BAD_REQUEST, "%s is not a file", path);
    return add_file(c, cn_basename(path), path);
}

static bool
is_left_out(const char *folder)
{
    return folder[0] == '.' || strcmp(folder, "__MACOSX") == 0 ||
           strcmp(folder, "__pycache__") == 0;
}

/* Adds the content of folder `path` under `prefix` ("" or "a/b"). Links are followed, as people
 * expect when they copy a folder; a loop of links ends at the depth limit. */
static int
add_folder(struct collector *c, const char *path, const char *prefix, unsigned depth)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int rc = 0;

    if (folder == NULL)
        return cn_fail_sys(c->err, CN_E_IO, errno, "cannot list folder %s", path);
    if (depth > CN_ARCHIVE_DEPTH_MAX)
        rc = cn_fail(c->err, CN_E_BAD_REQUEST,
                     "%s is nested in more than 32 folders; does a link in it form a loop?", path);
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        char *source, *name;
        struct stat st;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        source = cn_path_join(path, entry->d_name);
        name = prefix[0] ? cn_path_join(prefix, entry->d_name) : cn_strdup(entry->d_name);
        if (stat(source, &st) < 0)
            rc = cn_fail_sys(c->err, CN_E_IO, errno, "cannot read %s", source);
        else if (S_ISREG(st.st_mode))
            rc = add_file(c, name, source);
        else if (S_ISDIR(st.st_mode) && c->listing && strcmp(name, "MAR-INF") == 0)
            rc = 0;
        else if (S_ISDIR(st.st_mode) && (c->listing || !is_left_out(entry->d_name)))
            rc = add_folder(c, source, name, depth + 1);
        else if (!S_ISDIR(st.st_mode))
            rc = cn_fail(c->err, CN_E_BAD_REQUEST, "%s is neither a file nor a folder", source);
        cn_free(source);
        cn_free(name);
    }
    closedir(folder);
    return rc;
}

/* Adds an entry of --extra-files: a file, or everything in a folder. */
static int
add_extra(struct collector *c, const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return add_folder(c, path, "", 0);
    return add_named(c, path);
}

static int
add_pattern(struct collector *c, const char *pattern)
{
    glob_t found;
    struct stat st;
    int rc = 0;

    if (strpbrk(pattern, "*?[]") == NULL || stat(pattern, &st) == 0)
        return add_extra(c, pattern);
    if (glob(pattern, 0, NULL, &found) != 0) {
        char text[512];
        snprintf(text, sizeof(text), "--extra-files: nothing matches %.400s", pattern);
        if (c->warn != NULL)
            c->warn(c->ctx, text);
        return 0;
    }
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
        rc = add_extra(c, found.gl_pathv[i]);
    globfree(&found);
    return rc;
}

static int
add_extras(struct collector *c, const char *list)
{
    char *copy, *rest, *piece;
    int rc = 0;

    if (list == NULL)
        return 0;
    rest = copy = cn_strdup(list);
    while (rc == 0 && (piece = strsep(&rest, ",")) != NULL) {
        char *end;

        piece += strspn(piece, " ");
        for (end = piece + strlen(piece); end > piece && end[-1] == ' ';)
            *--end = '\0';
        if (piece[0] != '\0')
            rc = add_pattern(c, piece);
    }
    cn_free(copy);
    return rc;
}

/* There is a file or folder of this name, but not with the suffix that a handler needs. */
static int
refuse_handler(struct collector *c, const char *handler, bool is_folder)
{
    return is_folder ? cn_fail(c->err, CN_E_BAD_REQUEST,
                               "--handler: %s is a folder; name a file in it, such as "
                               "%s/handler.py",
                               handler, handler)
                     : cn_fail(c->err, CN_E_BAD_REQUEST,
                               "--handler: %s cannot be a handler: the name of one ends with .py, "
                               ".lua or .so (one in C is compiled first)",
                               handler);
}

/* Adds the handler's file. For Python, "dir/handler:entry" means the file dir/handler.py. */
static int
add_handler(struct collector *c, const struct cn_pack_spec *spec, const char *runtime)
{
    const char *handler = spec->handler;
    size_t cap = handler ? strlen(handler) + sizeof(".py") : 0;
    struct stat st;
    char *path;
    int rc;

    if (handler == NULL || is_built_in(handler, runtime))
        return 0;
    if (spec->handler_name != NULL)
        return add_file(c, spec->handler_name, handler);
    path = cn_alloc(cap);
    if (strncmp(runtime, "python", 6) == 0)
        cn_python_handler_file(handler, path, cap);
    else
        snprintf(path, cap, "%s%s", handler,
                 strcmp(runtime, "LSP") == 0 && !cn_has_suffix(handler, ".so") ? ".so" : "");
    rc = strcmp(path, handler) != 0 && stat(path, &st) < 0 && stat(handler, &st) == 0
             ? refuse_handler(c, handler, S_ISDIR(st.st_mode))
             : add_named(c, path);
    cn_free(path);
    return rc;
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(((const struct cn_pack_file *)a)->name, ((const struct cn_pack_file *)b)->name);
}

static bool
same_file(const char *a, const char *b)
{
    struct stat sa, sb;

    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

/* Sorts the files by their names in the archive. If the same file was named twice, one entry of it
 * is kept. Two different files with one name are an error. */
static int
sort_files(struct collector *c)
{
    struct cn_pack_files *files = c->files;
    uint32_t kept = 0;

    if (files->n_items == 0)
        return 0;
    qsort(files->items, files->n_items, sizeof(*files->items), compare_names);
    for (uint32_t i = 1; i < files->n_items; i++) {
        struct cn_pack_file *last = &files->items[kept], *next = &files->items[i];

        if (strcmp(last->name, next->name) != 0) {
            struct cn_pack_file swap = files->items[++kept];
            files->items[kept] = *next;
            *next = swap;
            continue;
        }
        if (!same_file(last->source, next->source))
            return cn_fail(c->err, CN_E_BAD_REQUEST,
                           "%s and %s would both be %s in the archive; "
                           "rename one",
                           last->source, next->source, last->name);
    }
    for (uint32_t i = kept + 1; i < files->n_items; i++) {
        cn_free(files->items[i].name);
        cn_free(files->items[i].source);
    }
    files->n_items = kept + 1;
    return 0;
}

static int
finish(struct collector *c, int rc)
{
    if (rc == 0)
        rc = sort_files(c);
    for (uint32_t i = 0; rc == 0 && i < c->files->n_items; i++) {
        struct cn_pack_file *file = &c->files->items[i];
        rc = cn_digest_file(file->source, 1, file->sha256, &file->bytes, c->err);
    }
    if (rc != 0)
        cn_pack_files_fini(c->files);
    return rc;
}

static bool
has_file(const struct cn_pack_files *files, const char *name)
{
    for (uint32_t i = 0; i < files->n_items; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return true;
    return false;
}

/* Adds a file of weights that an ONNX file names, under the name that the ONNX file gives it. */
static int
add_weights(struct collector *c, const char *model, struct cn_str location)
{
    char *name = cn_strndup(location.ptr, location.len), *dir = cn_strdup(model), *path;
    struct stat st;
    int rc = 0;

    dir[cn_basename(model) - model] = '\0';
    path = cn_path_join(*dir ? dir : ".", name);
    if (has_file(c->files, name))
        rc = 0;
    else if (name[0] == '/' || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        rc = cn_fail(c->err, CN_E_NOT_FOUND,
                     "%s has weights in the file %s, which is not beside it; name it in "
                     "--extra-files, or put it there",
                     model, name);
    else
        rc = add_file(c, name, path);
    cn_free(path);
    cn_free(dir);
    cn_free(name);
    return rc;
}

/* Adds the files in which an ONNX file keeps its weights (external data). */
static int
add_onnx_weights(struct collector *c, const char *model)
{
    struct cn_onnx_file file;
    struct cn_arena arena;
    struct cn_error why;
    struct cn_str bytes;
    int rc = 0;

    if (!model || !cn_has_suffix(model, ".onnx") || cn_onnx_file_map(model, &bytes, &why) != 0)
        return 0;
    cn_arena_init(&arena);
    if (cn_onnx_file_read(model, bytes, &arena, &file, &why) != 0) {
        if (c->warn)
            c->warn(c->ctx, why.message);
        file.n_weights = 0;
    }
    for (uint32_t i = 0; rc == 0 && i < file.n_weights; i++)
        rc = add_weights(c, model, file.weights[i]);
    cn_arena_fini(&arena);
    cn_onnx_file_unmap(bytes);
    return rc;
}

int
cn_pack_files_collect(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
                      struct cn_pack_files *out, struct cn_error *err)
{
    struct collector c = {.files = out, .warn = warn, .ctx = ctx, .err = err};
    int rc;

    memset(out, 0, sizeof(*out));
    rc = add_named(&c, spec->model_file);
    if (rc == 0)
        rc = add_named(&c, spec->serialized_file);
    if (rc == 0)
        rc = add_handler(&c, spec, spec->runtime);
    if (rc == 0)
        rc = add_extras(&c, spec->extra_files);
    if (rc == 0)
        rc = add_onnx_weights(&c, spec->serialized_file);
    if (rc == 0)
        rc = add_named(&c, spec->requirements_file);
    if (rc == 0)
        rc = add_named(&c, spec->config_file);
    return finish(&c, rc);
}

int
cn_pack_files_list(const char *dir, struct cn_pack_files *out, struct cn_error *err)
{
    struct collector c = {.files = out, .err = err, .listing = true};

    memset(out, 0, sizeof(*out));
    return finish(&c, add_folder(&c, dir, "", 0));
}
