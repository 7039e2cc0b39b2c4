/* store/link/sentinel.h - asks Sentinels which server is the primary, and notices when another
 * one becomes it. The link's thread. */
#ifndef CN_STORE_LINK_SENTINEL_H
#define CN_STORE_LINK_SENTINEL_H

#include "store/link/valkey_wire.h"
#include "store/shared_store.h"

struct cn_sentinel {
    const struct cn_shared_options *options; /* the hosts are Sentinels; borrowed */
    struct cn_valkey_wire wire; /* to the Sentinel that answered last, which reports changes */
    uint32_t host;              /* its place among the hosts */
    char primary[256];          /* the primary's address, as it was told last; "" for none */
    uint16_t port;
    /* how many replicas the Sentinels might have made the primary when it was found */
    uint32_t electable;
    /* A replica may have come, gone or changed since the user of this object cleared it. Only with
     * CN_REPLICAS_ALL. */
    bool replicas_changed;
    uint64_t next_try_us, pause_us; /* when to connect again, if the connection was lost */
};

/* `options` must outlive it. */
void cn_sentinel_init(struct cn_sentinel *sentinel, const struct cn_shared_options *options,
                      const struct cn_hiredis *lib);
void cn_sentinel_fini(struct cn_sentinel *sentinel);

/* Finds the primary. `out` borrows its name until the next call. CN_E_STORE_UNREACHABLE: no
 * Sentinel answers. CN_E_STATE_STORE: they do not know a primary of this name, or refuse the
 * password. */
int cn_sentinel_find(struct cn_sentinel *sentinel, uint64_t deadline_us, struct cn_shared_host *out,
                     struct cn_error *err);
/* Has another server become the primary since cn_sentinel_find? Cheap: it reads what the Sentinel
 * has sent. If the connection to the Sentinel was lost, it makes a new one, at most once a second
 * and for at most a tenth of one. */
bool cn_sentinel_moved(struct cn_sentinel *sentinel);

/* Reads "name ip port" ... "name ip port", as Sentinel's message +switch-master has it: is it about
 * this primary? */
bool cn_sentinel_is_about(struct cn_str message, const char *master);
/* Is the message of this channel about a replica of this primary, or about a reset of all that is
 * known of them? One about a replica is "slave name ip port @ primary ip port". */
bool cn_sentinel_is_about_replica(struct cn_str channel, struct cn_str message, const char *master);
/* Takes the reply to SENTINEL REPLICAS. Returns how many of them the Sentinels might make the
 * primary now. A replica that they take for down does not count, nor does one that has had no
 * connection to the primary for so long that they do not choose it. */
uint32_t cn_sentinel_take_replicas(const redisReply *reply);
/* Takes the reply to SENTINEL GET-MASTER-ADDR-BY-NAME. Returns whether it has an address. */
bool cn_sentinel_take_address(const redisReply *reply, char host[256], uint16_t *port);
/* The value of a field of an instance as the Sentinels describe it, a list of names and values.
 * NULL: it has no such field. */
const char *cn_sentinel_field(const redisReply *instance, const char *name);
/* Does the Sentinel that describes this replica reach it, and did the replica reach its primary
 * lately? The latter does not matter if the Sentinel takes the primary for down. */
bool cn_sentinel_reaches(const redisReply *replica, bool primary_is_down);

#endif
