/* cn_fuzz: core store */
/* tests/fuzz/valkey_replies_fuzz.c - what a server or Sentinel sends, of any bytes.
 *
 * hiredis reads the bytes; each reply goes to the functions that take replies apart. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "store/link/fitness.h"
#include "store/link/replica_count.h"
#include "store/link/sentinel.h"
#include "tests/fuzz/fuzz.h"

static void
take_views(const redisReply *reply)
{
    struct cn_replica_views views = {.sentinels = 1};
    bool settled;

    (void)cn_replica_views_take_primary(&views, reply);
    cn_replica_views_take_replicas(&views, reply);
    cn_assert(views.counted.n <= views.known.n);
    cn_assert(cn_replica_views_wanted(&views, &views.known, 0, &settled) > 0);
}

static void
take(const redisReply *reply)
{
    struct cn_valkey_server server = {0};
    char host[256] = "";
    uint16_t port = 0;
    struct cn_str text = cn_valkey_text(reply), value;

    if (cn_sentinel_take_address(reply, host, &port))
        cn_assert(host[0] && port && strlen(host) < sizeof(host));
    cn_sentinel_is_about(text, "mymaster");
    (void)cn_sentinel_take_replicas(reply);
    (void)cn_sentinel_is_about_replica(CN_STR("+sdown"), text, "mymaster");
    take_views(reply);
    cn_valkey_take_history(&server, text);
    cn_assert(server.confirming.n <= server.replicas_online);
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
