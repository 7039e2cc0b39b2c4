/* archiver/archive/manifest.c - reads and prints MAR-INF/MANIFEST.json, the table of contents of an
 * archive. Any thread.
 *
 * The format is TorchServe's, with two members added. `files` maps each path in the archive to its
 * sha256, by which verify.c finds changed, missing and added files. Archives of TorchServe's own
 * archiver do not have it, and are accepted without that check. `python` says which versions of
 * Python the handler needs. Unknown members are ignored, so that archives of newer archivers can be
 * read.
 *
 * A manifest comes from outside. Its size and its number of files are bounded, duplicate keys are
 * refused (two readers could see two different manifests), and a path must be in its plain form:
 * relative, without "..", "." or doubled slashes (archive_path.c). */
#include "archiver/archive/manifest.h"

#include <jansson.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/python_handler.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"

/* A manifest of FILES_MAX files with names of usual length is smaller; a larger one is taken for an
 * attack. */
#define JSON_MAX (16u << 20)
#define FILES_MAX 100000

static const char *const runtimes[] = {"lua", "c", "torch", "onnx", "python", "python3", "LSP"};

/* Copies the string at `key`, if there is one. An empty string is an error, and so is a path
 * (`is_path`) that is not in its plain form. Control characters are refused, because the strings
 * are shown on terminals, which obey them. */
static int
take_string(const char *name, const json_t *object, const char *prefix, const char *key, char **out,
            bool is_path, struct cn_error *err)
{
    const json_t *value = json_object_get(object, key);
    const char *text;

    if (value == NULL || json_is_null(value))
        return 0;
    text = json_string_value(value);
    if (text == NULL || text[0] == '\0')
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: %s%s must be a string that is not empty", name,
                       prefix, key);
    if (!cn_utf8_is_printable(cn_str_from(text)))
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: %s%s has a control character", name, prefix,
                       key);
    if (is_path && !cn_archive_path_ok(text))
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "%s: %s%s \"%.200s\" is not a plain path inside the "
                       "archive",
                       name, prefix, key, text);
    *out = cn_strdup(text);
    return 0;
}

static int
take_model(const char *name, const json_t *model, struct cn_manifest *out, struct cn_error *err)
{
    const struct {
        const char *key;
        char **to;
        bool is_path;
    } keys[] = {
        {"modelName", &out->model_name, false},
        {"modelVersion", &out->model_version, false},
        {"handler", &out->handler, true},
        {"serializedFile", &out->serialized_file, true},
        {"modelFile", &out->model_file, true},
        {"requirementsFile", &out->requirements_file, true},
        {"configFile", &out->config_file, true},
    };

    if (model == NULL)
        return 0;
    if (!json_is_object(model))
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: model must be an object", name);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int rc = take_string(name, model, "model.", keys[i].key, keys[i].to, keys[i].is_path, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Takes "sha256:<64 hex>" and returns the digits in lower case, or NULL if the text has another
 * form. */
static char *
take_digest(const json_t *value)
{
    const char *text = json_string_value(value);
    char *digits;

    if (text == NULL || strncmp(text, "sha256:", 7) != 0 || strlen(text) != 7 + 64 ||
        text[7 + strspn(text + 7, "0123456789abcdefABCDEF")] != '\0')
        return NULL;
    digits = cn_strdup(text + 7);
    for (char *c = digits; *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'F')
            *c = (char)(*c + 'a' - 'A');
    }
    return digits;
}

static int
take_files(const char *name, json_t *files, struct cn_manifest *out, struct cn_error *err)
{
    const char *path;
    json_t *value;

    if (files == NULL)
        return 0;
    if (!json_is_object(files) || json_object_size(files) == 0)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "%s: files must be an object that names each file "
                       "and its \"sha256:<64 hex digits>\"",
                       name);
    if (json_object_size(files) > FILES_MAX)
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: files has more than %d entries", name,
                       FILES_MAX);
    out->files = cn_alloc(json_object_size(files) * sizeof(*out->files));
    json_object_foreach(files, path, value)
    {
        char *digest = take_digest(value);

        if (digest == NULL)
            return cn_fail(err, CN_E_INVALID_MODEL,
                           "%s: files: \"%.200s\" has no \"sha256:<64 hex "
                           "digits>\"",
                           name, path);
        if (!cn_archive_path_ok(path) || strcmp(path, CN_MANIFEST_PATH) == 0) {
            cn_free(digest);
            return cn_fail(err, CN_E_INVALID_MODEL,
                           "%s: files: \"%.200s\" is not a plain path "
                           "inside the archive",
                           name, path);
        }
        out->files[out->n_files++] = (struct cn_manifest_file){cn_strdup(path), digest};
    }
    return 0;
}

static int
check_python(const char *name, const struct cn_manifest *manifest, struct cn_error *err)
{
    const char *problem = manifest->python ? cn_python_constraint_problem(manifest->python) : NULL;

    return problem ? cn_fail(err, CN_E_INVALID_MODEL,
                             "%s: python \"%.200s\" is not a constraint of versions such as "
                             "\">=3.9,<3.14\": %s",
                             name, manifest->python, problem)
                   : 0;
}

static int
check_runtime(const char *name, const struct cn_manifest *manifest, struct cn_error *err)
{
    if (manifest->runtime == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
        if (strcmp(manifest->runtime, runtimes[i]) == 0)
            return 0;
    }
    return cn_fail(
        err, CN_E_INVALID_MODEL,
        "%s: unknown runtime \"%.64s\"; known are lua, c, torch, onnx, python and python3 "
        "(and LSP, TorchServe's runtime for handlers in C++)",
        name, manifest->runtime);
}

int
cn_manifest_parse(const char *name, struct cn_str json, struct cn_manifest *out,
                  struct cn_error *err)
{
    json_error_t problem;
    json_t *root;
    int rc;

    memset(out, 0, sizeof(*out));
    if (json.len > JSON_MAX)
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: %zu bytes; at most %u are allowed", name,
                       json.len, JSON_MAX);
    root = json_loadb(json.len ? json.ptr : "", json.len, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        return cn_fail(err, CN_E_INVALID_MODEL, "%s:%d:%d: %s", name, problem.line, problem.column,
                       problem.text);
    if (!json_is_object(root)) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s: must be a JSON object", name);
        goto free_json;
    }
    rc = take_string(name, root, "", "createdOn", &out->created_on, false, err);
    if (rc == 0)
        rc = take_string(name, root, "", "runtime", &out->runtime, false, err);
    if (rc == 0)
        rc = take_string(name, root, "", "archiverVersion", &out->archiver_version, false, err);
    if (rc == 0)
        rc = take_string(name, root, "", "python", &out->python, false, err);
    if (rc == 0)
        rc = check_python(name, out, err);
    if (rc == 0)
        rc = take_model(name, json_object_get(root, "model"), out, err);
    if (rc == 0)
        rc = take_files(name, json_object_get(root, "files"), out, err);
    if (rc == 0)
        rc = check_runtime(name, out, err);
free_json:
    json_decref(root);
    if (rc != 0)
        cn_manifest_fini(out);
    return rc;
}

static void
put_string(json_t *object, const char *key, const char *text)
{
    if (text != NULL)
        json_object_set_new(object, key, json_string(text));
}

void
cn_manifest_print(const struct cn_manifest *manifest, struct cn_buf *out)
{
    json_t *root = json_object(), *model = json_object(), *files;
    char *text;

    put_string(root, "createdOn", manifest->created_on);
    put_string(root, "runtime", manifest->runtime);
    put_string(model, "modelName", manifest->model_name);
    put_string(model, "serializedFile", manifest->serialized_file);
    put_string(model, "handler", manifest->handler);
    put_string(model, "modelFile", manifest->model_file);
    put_string(model, "modelVersion", manifest->model_version);
    put_string(model, "requirementsFile", manifest->requirements_file);
    put_string(model, "configFile", manifest->config_file);
    json_object_set_new(root, "model", model);
    put_string(root, "archiverVersion", manifest->archiver_version);
    put_string(root, "python", manifest->python);
    if (manifest->n_files > 0) {
        files = json_object();
        for (uint32_t i = 0; i < manifest->n_files; i++) {
            char digest[7 + 64 + 1];
            snprintf(digest, sizeof(digest), "sha256:%.64s", manifest->files[i].sha256);
            json_object_set_new(files, manifest->files[i].path, json_string(digest));
        }
        json_object_set_new(root, "files", files);
    }
    text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
    if (text != NULL)
        cn_buf_puts(out, text);
    else
        out->failed = 1;
    free(text);
    json_decref(root);
}

void
cn_manifest_fini(struct cn_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->n_files; i++) {
        cn_free(manifest->files[i].path);
        cn_free(manifest->files[i].sha256);
    }
    cn_free(manifest->files);
    cn_free(manifest->python);
    cn_free(manifest->created_on);
    cn_free(manifest->runtime);
    cn_free(manifest->archiver_version);
    cn_free(manifest->model_name);
    cn_free(manifest->model_version);
    cn_free(manifest->handler);
    cn_free(manifest->serialized_file);
    cn_free(manifest->model_file);
    cn_free(manifest->requirements_file);
    cn_free(manifest->config_file);
    memset(manifest, 0, sizeof(*manifest));
}

/* Finds out which runtime is needed. The manifest's `runtime` is not reliable, because
 * torch-model-archiver writes "python" by default. So a handler's suffix counts more, and a model
 * without a handler is ONNX or TorchScript, by the suffix of its serialized file. */
const char *
cn_manifest_runtime(const struct cn_manifest *manifest)
{
    const char *said = manifest->runtime ? manifest->runtime : "python";

    if (manifest->handler == NULL && manifest->serialized_file != NULL)
        return cn_has_suffix(manifest->serialized_file, ".onnx") ? "onnx" : "torch";
    if (manifest->handler != NULL && cn_has_suffix(manifest->handler, ".lua"))
        return "lua";
    if (manifest->handler != NULL && cn_has_suffix(manifest->handler, ".so") &&
        strcmp(said, "LSP") != 0)
        return "c";
    return said;
}
