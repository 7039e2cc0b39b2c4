/* cn_fuzz: core store */
/* tests/fuzz/valkey_words_fuzz.c - what the server of a shared store says, which hiredis has taken
 * out of its replies: the bytes of an entry, the text of INFO, and a message of a Sentinel.
 *
 * Everything that is read lies within the bytes.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "store/link/fitness.h"
#include "store/link/sentinel.h"
#include "store/valkey/valkey_priv.h"
#include "tests/fuzz/fuzz.h"

static void
check_within(struct cn_str part, struct cn_str all)
{
    cn_assert(part.len <= all.len);
    cn_assert(part.len == 0 || (part.ptr >= all.ptr && part.ptr + part.len <= all.ptr + all.len));
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const fields[] = {"redis_version", "role", "maxmemory_policy", ""};
    const struct cn_str text = {(const char *)bytes, len};
    struct cn_store_seen seen;
    struct cn_error err = {0};
    struct cn_str value;

    if (cn_valkey_take_stamp(text, &seen, &value, &err) == 0)
        check_within(value, text);
    else
        cn_assert(err.code == CN_E_STATE_DAMAGED || err.code == CN_E_STATE_STORE);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        value = cn_valkey_info_field(text, fields[i]);
        check_within(value, text);
        cn_assert(value.len == 0 || !memchr(value.ptr, '\n', value.len));
    }
    cn_assert(!cn_sentinel_is_about(text, "mymaster") || len > strlen("mymaster"));
    return 0;
}
