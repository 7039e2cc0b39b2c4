/* archiver/program/inspect.c - continuo-archiver inspect and verify: show and check archives as the
 * server would read them. Archiver only.
 *
 * Both unpack the archive into a temporary folder with the server's own code, so that all of its
 * checks are made: paths, sizes, digests. The folder is removed in any case. `inspect` prints the
 * manifest, the files and the model's YAML; `verify` prints one line for each archive, and goes on
 * after one that is bad. With --trusted-keys it verifies the archives' signatures first. The exit
 * status is that of the last bad one.
 *
 * An archive may come from anybody. Its YAML is shown without control characters, which a terminal
 * would obey. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "archiver/archive/archive_path.h"
#include "archiver/archive/digest.h"
#include "archiver/pack/pack_files.h"
#include "archiver/program/subcommands.h"
#include "config/model/model_config.h"
#include "core/memory/mem.h"

/* An archive that was unpacked to be looked at. */
struct opened {
    char temp[64];
    char *dir;
    struct cn_manifest manifest;
};

static int
open_archive(const char *path, const char *trusted_keys, struct opened *out, struct cn_error *err)
{
    struct cn_archive_limits limits = cn_archive_default_limits;
    const char *tmp = getenv("TMPDIR");
    char *dest;
    int rc;

    if (tmp == NULL || tmp[0] != '/' || strlen(tmp) > 30)
        tmp = "/tmp";
    snprintf(out->temp, sizeof(out->temp), "%s/continuo-archiver-XXXXXX", tmp);
    if (mkdtemp(out->temp) == NULL)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make a folder in %s", tmp);
    dest = cn_path_join(out->temp, "model");
    limits.trusted_keys = trusted_keys;
    rc = cn_archive_unpack(path, dest, &limits, &out->manifest, &out->dir, err);
    cn_free(dest);
    if (rc != 0)
        cn_archive_remove_dir(out->temp);
    return rc;
}

static void
close_archive(struct opened *opened)
{
    cn_archive_remove_dir(opened->temp);
    cn_manifest_fini(&opened->manifest);
    cn_free(opened->dir);
}

static char *
config_path(const struct opened *opened)
{
    return opened->manifest.config_file ? cn_path_join(opened->dir, opened->manifest.config_file)
                                        : NULL;
}

static const char *
or_none(const char *text)
{
    return text ? text : "-";
}

static void
show_config(const struct opened *opened)
{
    char *path = config_path(opened), line[512];
    FILE *file = path ? fopen(path, "re") : NULL;
    bool start = true;

    if (file != NULL) {
        printf("config:   %s\n", opened->manifest.config_file);
        while (fgets(line, sizeof(line), file) != NULL) {
            /* The text comes from outside, so control characters are replaced. */
            for (char *c = line; *c != '\0'; c++)
                *c = ((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f ? ' ' : *c;
            printf("%s%s", start ? "  " : "", line);
            start = strchr(line, '\n') != NULL;
        }
        if (!start)
            putchar('\n');
        fclose(file);
    }
    cn_free(path);
}

static void
show_text(const struct opened *opened, const struct cn_pack_files *files)
{
    const struct cn_manifest *m = &opened->manifest;

    printf("name:     %s\nversion:  %s\nhandler:  %s\nruntime:  %s\ncreated:  %s\n"
           "archiver: %s\nfiles:    %" PRIu32 "%s\n",
           or_none(m->model_name), or_none(m->model_version), or_none(m->handler),
           cn_manifest_runtime(m), or_none(m->created_on), or_none(m->archiver_version),
           files->n_items,
           m->n_files ? ", as listed in the manifest" : "; the manifest lists no digests");
    for (uint32_t i = 0; i < files->n_items; i++)
        printf("  %12" PRIu64 "  %s  %s\n", files->items[i].bytes, files->items[i].sha256,
               files->items[i].name);
    show_config(opened);
}

/* The YAML reader limits the depth. */
static json_t *
yaml_to_json(const struct cn_yaml *node)
{
    json_t *out;

    switch (node->kind) {
    case CN_YAML_NULL:
        return json_null();
    case CN_YAML_BOOL:
        return json_boolean(node->boolean);
    case CN_YAML_INT:
        return json_integer(node->integer);
    case CN_YAML_FLOAT:
        out = json_real(node->number); /* NULL if JSON cannot express it: .inf */
        return out ? out : json_stringn(node->text.ptr, node->text.len);
    case CN_YAML_STRING:
        out = json_stringn(node->text.ptr, node->text.len);
        return out ? out : json_null();
    case CN_YAML_LIST:
        out = json_array();
        for (uint32_t i = 0; i < node->n_items; i++)
            json_array_append_new(out, yaml_to_json(node->items[i]));
        return out;
    case CN_YAML_MAP:
        out = json_object();
        for (uint32_t i = 0; i < node->n_items; i++) /* arena strings end with a NUL */
            json_object_set_new(out, node->items[i]->key.ptr, yaml_to_json(node->items[i]));
        return out;
    }
    return json_null();
}

static json_t *
config_json(const struct opened *opened)
{
    char *path = config_path(opened);
    struct cn_yaml_doc *doc = NULL;
    json_t *out = NULL;

    if (path != NULL && cn_yaml_parse_file(path, &doc, NULL) == 0)
        out = yaml_to_json(cn_yaml_root(doc));
    cn_yaml_destroy(doc);
    cn_free(path);
    return out ? out : json_null();
}

static void
show_json(const char *path, const struct opened *opened, const struct cn_pack_files *files)
{
    json_t *root = json_object(), *list = json_array();
    struct cn_buf manifest;

    cn_buf_init(&manifest, 0);
    cn_manifest_print(&opened->manifest, &manifest);
    json_object_set_new(root, "archive", json_string(path));
    json_object_set_new(root, "runtime", json_string(cn_manifest_runtime(&opened->manifest)));
    json_object_set_new(root, "manifest", json_loadb(manifest.data, manifest.len, 0, NULL));
    for (uint32_t i = 0; i < files->n_items; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "path", files->items[i].name,
                                              "bytes", (json_int_t)files->items[i].bytes, "sha256",
                                              files->items[i].sha256));
    json_object_set_new(root, "files", list);
    json_object_set_new(root, "config", config_json(opened));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(root);
    cn_buf_fini(&manifest);
}

static int
failed(const struct cn_error *err)
{
    fprintf(stderr, "continuo-archiver: error: %s\n", err->message);
    return CN_EXIT_FAILED;
}

int
cn_archiver_inspect(int argc, char **argv)
{
    struct cn_pack_files files;
    struct opened opened = {0};
    struct cn_error err = {0};
    const char *path = NULL;
    bool json = false;
    int rc;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' || path != NULL)
            path = ""; /* wrong */
        else
            path = argv[i];
    }
    if (path == NULL || path[0] == '\0') {
        fputs("usage: continuo-archiver inspect [--json] ARCHIVE\n", stderr);
        return CN_EXIT_USAGE;
    }
    if (open_archive(path, NULL, &opened, &err) != 0)
        return failed(&err);
    rc = cn_pack_files_list(opened.dir, &files, &err);
    if (rc == 0) {
        if (json)
            show_json(path, &opened, &files);
        else
            show_text(&opened, &files);
        cn_pack_files_fini(&files);
    }
    close_archive(&opened);
    return rc ? failed(&err) : 0;
}

struct archive_warned {
    const char *path, *runtime;
};

static void
warn(void *ctx, const char *line)
{
    const struct archive_warned *archive = ctx;

    if (cn_model_config_warning_concerns(line, archive->runtime))
        fprintf(stderr, "%s: warning: %s\n", archive->path, line);
}

static int
verify_one(const char *path, const char *trusted_keys)
{
    struct opened opened = {0};
    struct cn_model_config config;
    struct cn_error err = {0};
    const char *runtime;
    char *yaml;
    int rc;

    if (open_archive(path, trusted_keys, &opened, &err) != 0)
        return failed(&err);
    yaml = config_path(&opened);
    cn_model_config_init(&config);
    runtime = cn_manifest_runtime(&opened.manifest);
    rc = yaml ? cn_model_config_load(&config, yaml, opened.manifest.config_file, true, warn,
                                     &(struct archive_warned){path, runtime}, &err)
              : 0;
    if (rc == 0 && strcmp(runtime, "LSP") == 0)
        fprintf(stderr,
                "%s: warning: handler %s needs the runtime LSP, TorchServe's for handlers in C++; "
                "continuo runs %s.so if it is written in C with continuo's header\n",
                path, opened.manifest.handler, opened.manifest.handler);
    if (rc == 0)
        printf("%s: good (%s %s, %s%s)\n", path, or_none(opened.manifest.model_name),
               or_none(opened.manifest.model_version),
               opened.manifest.n_files ? "digests match" : "no digests",
               trusted_keys ? ", signed by a trusted key" : "");
    cn_free(yaml);
    close_archive(&opened);
    if (rc != 0)
        fprintf(stderr, "continuo-archiver: error: %s: %s\n", path, err.message);
    return rc ? CN_EXIT_FAILED : 0;
}

int
cn_archiver_verify(int argc, char **argv)
{
    const char *trusted_keys = NULL;
    int worst = 0, first = 0;

    if (argc > 1 && strcmp(argv[0], "--trusted-keys") == 0) {
        trusted_keys = argv[1];
        first = 2;
    } else if (argc > 0 && strncmp(argv[0], "--trusted-keys=", 15) == 0) {
        trusted_keys = argv[0] + 15;
        first = 1;
    }
    if (first >= argc || argv[first][0] == '-') {
        fputs("usage: continuo-archiver verify [--trusted-keys FILE] ARCHIVE ...\n", stderr);
        return CN_EXIT_USAGE;
    }
    for (int i = first; i < argc; i++) {
        int rc = verify_one(argv[i], trusted_keys);
        worst = rc ? rc : worst;
    }
    return worst;
}
