/* cn_fuzz: core management */
/* tests/fuzz/page_token_fuzz.c - any bytes as the token with which a list of sequences goes on. An
 * accepted token is written and read again as the same place. */
#include <jansson.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "management/api/json/sequence_json.h"
#include "proto/message.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *token = cn_strndup((const char *)bytes, len);
    char id[CN_SEQUENCE_ID_MAX], again[CN_SEQUENCE_ID_MAX];
    uint32_t worker, worker_again;
    size_t id_len, again_len;
    struct cn_error err = {0};
    json_t *json;

    if (cn_page_token_parse(token, &worker, id, &id_len, &err) != 0) {
        cn_assert(err.code == CN_E_BAD_REQUEST);
    } else {
        json = cn_page_token_json(worker, (struct cn_str){id, id_len});
        cn_assert(json && json_is_string(json));
        cn_assert(cn_page_token_parse(json_string_value(json), &worker_again, again, &again_len,
                                      &err) == 0);
        cn_assert(worker == worker_again && id_len == again_len && !memcmp(id, again, id_len));
        json_decref(json);
    }
    cn_free(token);
    return 0;
}
