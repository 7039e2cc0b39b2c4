/* kserve/json/envelope_json.c - the JSON of a service envelope. Any thread, no state.
 *
 * The body comes from a client and the answers come from a handler, so both are checked: jansson
 * refuses what is not JSON, a key that is there twice, and bytes that are not UTF-8. */
#include "kserve/json/envelope_json.h"

#include <stdlib.h>

json_t *
cn_envelope_open(struct cn_str body, uint32_t max, struct cn_error *err)
{
    json_t *all, *instances;
    json_error_t why;

    all = json_loadb(body.ptr ? body.ptr : "", body.len, JSON_REJECT_DUPLICATES, &why);
    if (!all) {
        cn_fail(err, CN_E_BAD_REQUEST, "the body is not valid JSON: %s (line %d, column %d)",
                why.text, why.line, why.column);
        return NULL;
    }
    instances = json_incref(json_object_get(all, "instances"));
    json_decref(all);
    if (!json_is_array(instances)) {
        json_decref(instances);
        cn_fail(err, CN_E_BAD_REQUEST,
                "the body must be a JSON object with an array \"instances\" (service-envelope)");
        return NULL;
    }
    if (json_array_size(instances) > max) {
        cn_fail(err, CN_E_BAD_REQUEST,
                "the request has %zu instances; the limit is %u (max-request-parts)",
                json_array_size(instances), max);
        json_decref(instances);
        return NULL;
    }
    return instances;
}

char *
cn_envelope_instance_text(const json_t *instances, uint32_t i)
{
    return json_dumps(json_array_get(instances, i), JSON_ENCODE_ANY | JSON_COMPACT);
}

int
cn_envelope_put_answer(struct cn_str answer, bool is_json, struct cn_buf *out, struct cn_error *err)
{
    const char *bytes = answer.ptr ? answer.ptr : "";
    json_t *value = is_json ? json_loadb(bytes, answer.len, JSON_DECODE_ANY, NULL)
                            : json_stringn(bytes, answer.len);
    char *printed;

    if (!value)
        return cn_fail(
            err, CN_E_HANDLER_FAILED, "Prediction failed: %s",
            is_json ? "the answer has content type application/json but is not valid JSON"
                    : "a service-envelope requires the handler to answer with JSON or UTF-8 text");
    if (is_json) {
        cn_buf_append_str(out, answer);
    } else {
        printed = json_dumps(value, JSON_ENCODE_ANY);
        if (!printed)
            out->failed = 1;
        else
            cn_buf_puts(out, printed);
        free(printed);
    }
    json_decref(value);
    return 0;
}
