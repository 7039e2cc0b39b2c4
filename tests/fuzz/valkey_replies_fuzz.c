/* cn_fuzz: core store */
/* tests/fuzz/valkey_replies_fuzz.c - what a server or Sentinel sends, of any bytes.
 *
 * hiredis reads the bytes; each reply goes to the functions that take replies apart. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "store/link/fitness.h"
#include "store/link/sentinel.h"
#include "tests/fuzz/fuzz.h"

static void
take(const redisReply *reply)
{
    char host[256] = "";
    uint16_t port = 0;
    struct cn_str text = cn_valkey_text(reply), value;

    if (cn_sentinel_take_address(reply, host, &port))
        cn_assert(host[0] && port && strlen(host) < sizeof(host));
    cn_sentinel_is_about(text, "mymaster");
    (void)cn_sentinel_take_replicas(reply);
    value = cn_valkey_info_field(text, "role");
    cn_assert(value.len <= text.len);
    cn_valkey_is_error(reply, "NOAUTH");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_hiredis *lib;
    redisReader *reader;
    void *reply = NULL;

    if (cn_hiredis_open(&lib, NULL) != 0)
        return 0;
    reader = lib->create();
    if (reader && lib->feed(reader, (const char *)data, size) == REDIS_OK) {
        while (lib->reply(reader, &reply) == REDIS_OK && reply) {
            take(reply);
            lib->free_reply(reply);
        }
    }
    if (reader)
        lib->destroy(reader);
    return 0;
}
