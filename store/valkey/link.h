/* store/valkey/link.h - a connection to the shared store's primary, made when it is needed and made
 * again when it was lost or another server has become the primary. Every wait has a deadline.
 * A link belongs to one thread: in a worker to its only one, in the server to the thread for the
 * list of nodes or to the one for the models of all nodes. */
#ifndef CN_STORE_VALKEY_LINK_H
#define CN_STORE_VALKEY_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "store/shared_store.h"
#include "store/valkey/sentinel.h"
#include "store/valkey/valkey_wire.h"

#define CN_VALKEY_HOSTS_MAX 8
#define CN_VALKEY_DIGEST_LEN 40 /* the SHA-1 of a script in hexadecimal digits */

struct cn_valkey_link {
    struct cn_shared_options options; /* with strings of its own */
    struct cn_shared_tls tls;
    struct cn_shared_host hosts[CN_VALKEY_HOSTS_MAX];
    struct cn_valkey_wire wire; /* to the primary */
    struct cn_sentinel sentinel;
    const char *script; /* loaded into each server that it connects to; or NULL */
    char digest[CN_VALKEY_DIGEST_LEN + 1];
    bool waits_for_disk;     /* durability power: each trip ends with WAITAOF */
    uint32_t host;           /* the one that was the primary last */
    uint64_t failed_us;      /* when the last call failed; 0: it succeeded */
    struct cn_error failure; /* why */
};

/* Copies the options. CN_E_STATE_STORE: hiredis is not installed. Call cn_valkey_link_fini in all
 * cases. */
int cn_valkey_link_init(struct cn_valkey_link *link, const struct cn_shared_options *options,
                        const char *script, struct cn_error *err);
void cn_valkey_link_fini(struct cn_valkey_link *link);

/* Returns the deadline of a call that begins now, as cn_now_us() counts. */
uint64_t cn_valkey_deadline_us(const struct cn_valkey_link *link);
/* Returns when there is a connection to a primary that is fit for states. After a wait in vain,
 * calls fail at once for a tenth of a second, so that the calls of one batch do not wait one after
 * the other. Errors are those of cn_shared_store_open. */
int cn_valkey_link_ready(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err);
/* Forgets the connection. The next call makes a new one. */
void cn_valkey_link_drop(struct cn_valkey_link *link);

/* Calls cn_wire_talk on the connection to the primary. */
int cn_valkey_talk(struct cn_valkey_link *link, cn_valkey_reply_fn on_reply, void *ctx,
                   uint64_t deadline_us, struct cn_error *err);
/* Loads the script into the server, and notes its digest. */
int cn_valkey_load_script(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err);

/* Begins a command of n words; cn_valkey_word appends each of them. */
static inline void
cn_valkey_command(struct cn_valkey_link *link, uint32_t n)
{
    cn_wire_command(&link->wire, n);
}

static inline void
cn_valkey_word(struct cn_valkey_link *link, struct cn_str word)
{
    cn_wire_word(&link->wire, word);
}

#endif
