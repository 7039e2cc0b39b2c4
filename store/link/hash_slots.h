/* store/link/hash_slots.h - the hash slots of a cluster: which slot a key is in, and
 * which server has which slot, as the servers say. Any thread; no connection.
 *
 * A cluster divides all keys among 16384 slots, and each slot belongs to one primary. */
#ifndef CN_STORE_LINK_HASH_SLOTS_H
#define CN_STORE_LINK_HASH_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "store/link/hiredis_library.h"

#define CN_HASH_SLOTS 16384

/* The slot of a key. If the key has a text in braces, only that text counts. */
uint16_t cn_hash_slot_of(struct cn_str key);

/* A primary that has a slot. */
struct cn_hash_slot_owner {
    char host[256];
    uint16_t port; /* 0: nobody has the slot */
};

/* Takes the reply to CLUSTER SLOTS: sets owners[i] for each of the n slots. `origin` is the host of
 * the server that replied, because it may leave out its own name. False: it is not such a reply,
 * and `owners` is not changed; or none of these slots has an owner. */
bool cn_hash_slots_take(const redisReply *reply, const char *origin, const uint16_t *slots,
                        uint32_t n, struct cn_hash_slot_owner *owners);

/* The error with which a server of a cluster says that another one has the key. */
struct cn_redirect {
    bool ask; /* only this command goes there, behind ASKING: the slot is moving */
    struct cn_hash_slot_owner to;
};
/* Reads "MOVED SLOT HOST:PORT" or "ASK SLOT HOST:PORT". False: it is another error. */
bool cn_hash_slot_redirect(struct cn_str error, const char *origin, struct cn_redirect *out);

#endif
