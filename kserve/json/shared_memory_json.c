/* kserve/json/shared_memory_json.c - reads and writes the JSON of shared memory requests. Any
 * thread, no state. */
#include <inttypes.h>

#include "kserve/infer_answer.h"
#include "kserve/json/json_words.h"
#include "kserve/shared_memory.h"

/* Reads the members of a register request. */
static int
take(const json_t *root, struct cn_arena *arena, struct cn_shm_status *out, struct cn_error *err)
{
    const json_t *key, *offset, *bytes;

    if (!json_is_object(root))
        return cn_fail(err, CN_E_INTERNAL,
                       "failed to parse the request JSON buffer: the document is not an object");
    key = json_object_get(root, "key");
    offset = json_object_get(root, "offset");
    bytes = json_object_get(root, "byte_size");
    if (!key)
        return cn_fail(err, CN_E_BAD_REQUEST, "Shared memory register request has no 'key' field");
    if (!cn_v2_json_is_string(key))
        return cn_fail(err, CN_E_INTERNAL,
                       "Unable to parse 'key': attempt to access JSON non-string as string");
    if (!bytes)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Shared memory register request has no 'byte_size' field");
    if ((offset && !cn_v2_json_uint(offset, &out->offset)) || !cn_v2_json_uint(bytes, &out->bytes))
        return cn_fail(err, CN_E_INTERNAL,
                       "Unable to parse 'offset' or 'byte_size': attempt to access JSON "
                       "non-unsigned-integer as unsigned-integer");
    out->key = cn_arena_str(arena, cn_v2_json_text(key));
    return 0;
}

int
cn_shm_read_register(struct cn_str body, struct cn_arena *arena, struct cn_shm_status *out,
                     struct cn_error *err)
{
    json_t *root;
    int rc;

    *out = (struct cn_shm_status){.offset = 0};
    if ((rc = cn_v2_json_load(body, &root, err)))
        return rc;
    rc = take(root, arena, out, err);
    json_decref(root);
    return rc;
}

void
cn_shm_write_status(const struct cn_shm_status *regions, uint32_t n, struct cn_buf *out)
{
    cn_buf_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        cn_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        cn_v2_write_text(regions[i].name, out);
        cn_buf_puts(out, ",\"key\":");
        cn_v2_write_text(regions[i].key, out);
        cn_buf_printf(out, ",\"offset\":%" PRIu64 ",\"byte_size\":%" PRIu64 "}", regions[i].offset,
                      regions[i].bytes);
    }
    cn_buf_puts(out, "]");
}
