/* store/shared_link.h - the server's own connection to the shared store, for what the nodes tell
 * each other. The states of sequences do not pass through it: each worker has a connection of its
 * own for those.
 *
 * Every call waits for at most the link's timeout, and connects first if there is no connection. A
 * link may be used by one thread at a time. */
#ifndef CN_STORE_SHARED_LINK_H
#define CN_STORE_SHARED_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

struct cn_shared_link;

/* Makes a link, and does not connect yet. CN_E_CONFIG: the URL is wrong. CN_E_STATE_STORE: hiredis
 * is not installed. Close it with cn_shared_link_close. */
int cn_shared_link_open(const char *url, uint32_t timeout_ms, struct cn_shared_link **out,
                        struct cn_error *err);
/* NULL is allowed. */
void cn_shared_link_close(struct cn_shared_link *link);
/* Sets the longest wait of the calls that follow. */
void cn_shared_link_hurry(struct cn_shared_link *link, uint32_t timeout_ms);

/* What the store's server says about itself. For a cluster the numbers are those of all primaries
 * together; one of them is taken for the version, and max_bytes is 0 if one of them has no
 * limit. */
#define CN_SHARED_REPLICAS_MAX 16
struct cn_shared_facts {
    char version[32];               /* of the server's program */
    uint64_t used_bytes, max_bytes; /* max_bytes: 0: there is no limit */
    uint64_t commands_per_s;
    bool has_aof; /* it keeps an append-only file */
    /* appendfsync; of a cluster's servers "everysec" if one of them says so. "": the user of the
     * URL may not ask. */
    char fsync[16];
    uint32_t n_replicas; /* those below, at most CN_SHARED_REPLICAS_MAX */
    struct {
        char address[280];
        bool online;
        uint64_t lag_bytes; /* how far it is behind the primary */
        uint32_t lag_s;     /* seconds since its last message */
    } replicas[CN_SHARED_REPLICAS_MAX];
};
/* Asks the primary, or all primaries of a cluster, about themselves and their replicas. */
int cn_shared_link_facts(struct cn_shared_link *link, struct cn_shared_facts *out,
                         struct cn_error *err);
/* Reads the answer to the command INFO. */
void cn_shared_facts_read(struct cn_str info, struct cn_shared_facts *out);

#endif
