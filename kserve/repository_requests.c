/* kserve/repository_requests.c - the bodies of load and unload requests, and entries of the
 * repository index. No state.
 *
 * A load request may bring a configuration as JSON text (parameter config), which replaces the
 * model's own. Triton also accepts whole files (file:...); these are refused, because a model comes
 * from an archive with digests. The texts of errors are Triton's, whose clients show them to
 * people. */
#include "kserve/repository_requests.h"

#include "kserve/infer_answer.h"
#include "kserve/json/json_words.h"

/* Finds the member "parameters" of the body; NULL with rc 0: there is none. The caller frees
 * `root`. */
static int
read_parameters(struct cn_str body, json_t **root, json_t **parameters, struct cn_error *err)
{
    int rc;

    *root = *parameters = NULL;
    if (body.len == 0)
        return 0;
    if ((rc = cn_v2_json_load(body, root, err)))
        return rc;
    *parameters = json_object_get(*root, "parameters");
    if (!json_is_object(*root) || (*parameters && !json_is_object(*parameters))) {
        json_decref(*root);
        *root = NULL;
        return cn_fail(err, CN_E_INTERNAL,
                       "Unable to parse 'parameters': attempt to access JSON non-object as object");
    }
    return 0;
}

int
cn_v2_check_load_parameter(struct cn_str name, struct cn_error *err)
{
    if (cn_str_eq(name, CN_STR("config")))
        return 0;
    if (name.len >= 5 && memcmp(name.ptr, "file:", 5) == 0)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "parameter '%.*s': files cannot be sent with a load request; put the "
                       "archive into the model store",
                       CN_STR_ARG(name));
    return cn_fail(err, CN_E_INTERNAL, "unexpected error on creating Triton parameter");
}

int
cn_v2_read_load(struct cn_str body, struct cn_arena *arena, struct cn_str *config,
                struct cn_error *err)
{
    json_t *root, *parameters, *value;
    const char *key;
    int rc = read_parameters(body, &root, &parameters, err);

    *config = CN_STR("");
    json_object_foreach(parameters, key, value)
    {
        if (!rc)
            rc = cn_v2_check_load_parameter(cn_str_from(key), err);
        if (!rc && !cn_v2_json_is_string(value))
            rc = cn_fail(err, CN_E_INTERNAL,
                         "Unable to parse '%s': attempt to access JSON non-string as string", key);
        if (!rc)
            *config = cn_arena_str(arena, cn_v2_json_text(value));
    }
    json_decref(root);
    return rc;
}

int
cn_v2_read_unload(struct cn_str body, struct cn_error *err)
{
    json_t *root, *parameters, *value;
    int rc = read_parameters(body, &root, &parameters, err);

    value = json_object_get(parameters, "unload_dependents");
    if (!rc && value && !json_is_boolean(value))
        rc = cn_fail(err, CN_E_INTERNAL,
                     "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as "
                     "boolean");
    json_decref(root);
    return rc;
}

void
cn_v2_write_index_entry(const char *name, const char *version, const char *state,
                        const char *reason, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(cn_str_from(name), out);
    if (version) {
        cn_buf_puts(out, ",\"version\":");
        cn_v2_write_text(cn_str_from(version), out);
    }
    if (state)
        cn_buf_printf(out, ",\"state\":\"%s\"", state);
    if (reason && *reason) {
        cn_buf_puts(out, ",\"reason\":");
        cn_v2_write_text(cn_str_from(reason), out);
    }
    cn_buf_puts(out, "}");
}
