/* store/shared_store.h - opens the store that several nodes share: a Valkey or Redis server, one
 * primary with or without replicas, or a cluster of several primaries. store/store.h says what can
 * be done with a store.
 *
 * Every call that needs the server waits for at most timeout_ms. A connection that is lost is made
 * again by the next call, and what was not confirmed is sent again; the server sees by the number
 * of the write that it has it already. One thread. */
#ifndef CN_STORE_SHARED_STORE_H
#define CN_STORE_SHARED_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/state_store_url.h"
#include "core/errors/error.h"
#include "store/store.h"

struct cn_shared_host {
    const char *host; /* a name or an address */
    uint16_t port;
};

/* TLS: files in PEM, and what the server's certificate must be for; "" for none of them. */
struct cn_shared_tls {
    const char *ca;                /* authorities that are trusted; "": those of the system */
    const char *certificate, *key; /* of this node */
    const char *name;              /* the name in the server's certificate; "": the host's */
};

struct cn_shared_options {
    const struct cn_shared_host *hosts; /* the primary is used, wherever it stands in the list */
    uint32_t n_hosts;                   /* at least 1 */
    const char *master; /* not "": the hosts are Sentinels, and the primary has this name there */
    bool cluster;       /* the hosts are some of a cluster's servers, which know the others */
    const struct cn_shared_tls *tls;      /* NULL: connections are not encrypted */
    const char *user, *password;          /* "" for none */
    const char *prefix, *model, *version; /* all keys begin with these three */
    uint32_t timeout_ms;                  /* the longest wait of one call */
    /* How many replicas must have a commit before it counts. CN_REPLICAS_ALL: every one that the
     * Sentinels could make the primary, and at least one; only with `master`. */
    uint32_t replicas;
    bool power; /* the primary must have written it to its disk, too */
    /* NULL, or an open store with the same options, which is closed after this one. The two count
     * their activity together. This one does not check the layout again, and connects when it is
     * first used. */
    struct cn_store *beside;
};

/* Connects to the store, waiting for at most timeout_ms, and checks that it is fit for states. The
 * strings of `options` are copied. `out` is freed with cn_store_close. CN_E_STORE_UNREACHABLE: no
 * host answers as a primary. CN_E_STATE_STORE: the client library is missing, the password is
 * wrong, or the server would lose states, because it evicts keys or, with `power`, does not sync
 * them. No message has the password. */
int cn_shared_store_open(const struct cn_shared_options *options, struct cn_store **out,
                         struct cn_error *err);

/* What is left of a model version in a shared store. */
struct cn_shared_removal {
    uint64_t removed, left; /* entries: sequences, and tombstones of ended ones */
    bool in_use;            /* a worker of some node has been there in the last seconds */
};

/* Counts the entries of a model version that no node serves, and with `removes` removes some of
 * them: at most 256 of each bucket, and no further ones after a second. So the caller repeats this
 * until nothing is left; then the other keys of the model version are gone, too. A call that fails
 * may have removed some. CN_E_CONFLICT: a node serves the model version, and nothing was removed.
 * Other errors are those of cn_shared_store_open. */
int cn_shared_store_remove(const struct cn_shared_options *options, bool removes,
                           struct cn_shared_removal *out, struct cn_error *err);

#endif
