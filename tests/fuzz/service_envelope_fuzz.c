/* cn_fuzz: core kserve */
/* tests/fuzz/service_envelope_fuzz.c - any bytes as the body of a service envelope, and as the
 * answer of a handler that is put into one.
 *
 * Besides memory errors: each instance is JSON again, a refusal says why, and an answer that was
 * put into {"predictions": [...]} is exactly one value of it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "kserve/json/envelope_json.h"
#include "tests/fuzz/fuzz.h"

#define INSTANCES_MAX 16

static void
open_body(struct cn_str body)
{
    struct cn_error err = {0};
    json_t *instances = cn_envelope_open(body, INSTANCES_MAX, &err), *again;

    if (!instances) {
        cn_assert(err.code == CN_E_BAD_REQUEST && err.message[0]);
        return;
    }
    cn_assert(json_array_size(instances) <= INSTANCES_MAX);
    for (uint32_t i = 0; i < json_array_size(instances); i++) {
        char *text = cn_envelope_instance_text(instances, i);

        cn_assert(text);
        again = json_loads(text, JSON_DECODE_ANY, NULL);
        cn_assert(again && json_equal(again, json_array_get(instances, i)));
        json_decref(again);
        free(text);
    }
    json_decref(instances);
}

static void
put_answer(struct cn_str answer, bool is_json)
{
    struct cn_error err = {0};
    json_error_t why;
    struct cn_buf out;
    json_t *all;

    cn_buf_init(&out, 0);
    cn_buf_puts(&out, "{\"predictions\": [");
    if (cn_envelope_put_answer(answer, is_json, &out, &err)) {
        cn_assert(err.code == CN_E_HANDLER_FAILED && err.message[0]);
    } else {
        cn_buf_puts(&out, "]}");
        cn_assert(!out.failed);
        all = json_loadb(out.data, out.len, JSON_ALLOW_NUL, &why);
        /* an answer may be nested as deep as jansson allows, and the envelope adds two levels */
        cn_assert(all || json_error_code(&why) == json_error_stack_overflow);
        cn_assert(!all || json_array_size(json_object_get(all, "predictions")) == 1);
        json_decref(all);
    }
    cn_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_str text = {(const char *)data, size};

    open_body(text);
    put_answer(text, true);
    put_answer(text, false);
    return 0;
}
