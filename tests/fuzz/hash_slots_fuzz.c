/* cn_fuzz: core config store */
/* tests/fuzz/hash_slots_fuzz.c - what a server of a cluster says about slots, of any bytes: replies
 * to CLUSTER SLOTS as hiredis reads them, and the same bytes as the error with which a server names
 * another one.
 *
 * Besides memory errors: an owner that was read has a host and a port, and a reply that is refused
 * changes nothing. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "store/link/hash_slots.h"
#include "tests/fuzz/fuzz.h"

#define N 5

static void
check(const redisReply *reply)
{
    static const uint16_t slots[N] = {0, 1, 5460, 5461, 16383};
    struct cn_hash_slot_owner owners[N];
    bool taken;
    unsigned known = 0;

    memset(owners, 0, sizeof(owners));
    for (unsigned i = 0; i < N; i++)
        strcpy(owners[i].host, "before");
    taken = cn_hash_slots_take(reply, "asked", slots, N, owners);
    for (unsigned i = 0; i < N; i++) {
        cn_assert(memchr(owners[i].host, '\0', sizeof(owners[i].host)));
        cn_assert(owners[i].port == 0 || (taken && owners[i].host[0]));
        cn_assert(taken || strcmp(owners[i].host, "before") == 0);
        known += owners[i].port != 0;
    }
    cn_assert(!taken || known > 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_hiredis *lib;
    const struct cn_str text = {(const char *)data, size};
    struct cn_redirect to;
    redisReader *reader;
    void *reply = NULL;

    cn_hash_slot_of(text);
    if (cn_hash_slot_redirect(text, "asked", &to))
        cn_assert(to.to.host[0] && to.to.port && strlen(to.to.host) < sizeof(to.to.host));
    if (cn_hiredis_open(&lib, NULL) != 0)
        return 0; /* the rest needs hiredis */
    reader = lib->create();
    if (lib->feed(reader, text.ptr, text.len) == REDIS_OK)
        while (lib->reply(reader, &reply) == REDIS_OK && reply) {
            check(reply);
            lib->free_reply(reply);
        }
    lib->destroy(reader);
    return 0;
}
