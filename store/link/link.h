/* store/link/link.h - the shared store as its users see it: they collect commands, send them, and
 * get the replies. The link finds the servers, connects when it is needed, and does so again when a
 * connection was lost or another server has become the primary. Every wait has a deadline.
 *
 * A link belongs to one thread: in a worker to its only one, in the server to the thread for the
 * list of nodes or to the one for the models of all nodes.
 *
 * Each command names its *place*: one of up to 64 groups of keys that a cluster keeps together on
 * one server, because they have the same text in braces. Without a cluster all places are on the
 * one primary. */
#ifndef CN_STORE_LINK_LINK_H
#define CN_STORE_LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "store/link/hash_slots.h"
#include "store/link/replica_count.h"
#include "store/link/sentinel.h"
#include "store/link/valkey_server.h"
#include "store/shared_store.h"

#define CN_VALKEY_HOSTS_MAX 8
#define CN_VALKEY_PLACES_MAX 64
/* Each place may have a server of its own; a slot that moves may name others for a while. */
#define CN_VALKEY_SERVERS_MAX CN_WIRE_TALKS_MAX

/* What came of a command. */
enum cn_valkey_result {
    CN_COMMAND_LOST,        /* no reply came, or none about its confirmation: it may be done */
    CN_COMMAND_UNCONFIRMED, /* it is done, but disk or replicas did not confirm it in time */
    CN_COMMAND_DONE,
};

/* A command of the present trip. */
struct cn_valkey_command {
    struct cn_valkey_server *server; /* that has it, or had it last */
    size_t at, end;                  /* where it is in the server's `out` */
    bool answered;
    /* It is to be sent again: to this server; behind ASKING, because the slot is moving; behind
     * SCRIPT LOAD, because the server has forgotten the script. */
    struct cn_valkey_server *next;
    bool asking, load;
    enum cn_valkey_result result;
};

/* What is known about a cluster. */
struct cn_valkey_cluster {
    uint16_t slots[CN_VALKEY_PLACES_MAX];
    struct cn_valkey_server *owner[CN_VALKEY_PLACES_MAX]; /* NULL: nobody has the slot */
    uint32_t n_places;
    bool known;        /* the owners are set */
    bool stale;        /* a server has said that they are not right */
    bool doubted;      /* it can do nothing now; pause before the next trip */
    uint64_t epoch;    /* the highest configuration epoch that a server has named */
    uint64_t asked_us; /* when the owners were confirmed last */
    uint64_t lower_us; /* since when all answers have had a lower epoch; 0: they have not */
    uint32_t next;     /* the connection that is asked next */
    uint32_t host;     /* the index of the URL's host that is asked next */
    struct cn_valkey_wire wire; /* to that host, while it is asked */
    struct cn_valkey_retry retry;
};

/* A round of a trip: what the servers get at the same time. It is kept from the sending of its
 * commands until all replies are there. */
struct cn_valkey_round {
    struct cn_valkey_link *link;
    cn_valkey_reply_fn on_reply;
    void *ctx;
    bool last; /* a command that is sent on again is given back with its error */
    struct cn_wire_talk talks[CN_VALKEY_SERVERS_MAX];
    struct cn_valkey_heard {
        struct cn_valkey_round *round;
        struct cn_valkey_server *server;
    } heard[CN_VALKEY_SERVERS_MAX];
    uint32_t n; /* of talks */
};

struct cn_valkey_link {
    struct cn_shared_options options; /* with strings of its own */
    struct cn_shared_tls tls;
    struct cn_shared_host hosts[CN_VALKEY_HOSTS_MAX];
    const struct cn_hiredis *lib;
    const char *script; /* loaded into each server that it connects to; or NULL */
    char digest[CN_VALKEY_DIGEST_LEN + 1];
    /* Without a cluster there is always one, which is where the primary is, or was last. */
    struct cn_valkey_server *servers[CN_VALKEY_SERVERS_MAX];
    uint32_t n_servers;
    struct cn_sentinel sentinel;
    struct cn_replica_count count; /* with CN_REPLICAS_ALL */
    struct cn_valkey_cluster cluster;
    struct cn_valkey_command *commands; /* of this trip; after it, of the last one */
    uint32_t n_commands, cap_commands;
    bool trip_over;
    struct cn_valkey_round *begun;     /* the first round of a trip that was begun; else NULL */
    struct cn_valkey_server *speaking; /* whose reply is being taken */
    bool may_retry;          /* the last trip failed in a way that another one at once may heal */
    uint32_t host;           /* the one that was the primary last */
    uint64_t failed_us;      /* when the last call failed; 0: it succeeded */
    struct cn_error failure; /* why */
};

/* Copies the options. CN_E_STATE_STORE: hiredis is not installed. Call cn_valkey_link_fini in all
 * cases. */
int cn_valkey_link_init(struct cn_valkey_link *link, const struct cn_shared_options *options,
                        const char *script, struct cn_error *err);
void cn_valkey_link_fini(struct cn_valkey_link *link);
/* Adds a place, which has all keys with this text in braces, and returns its number: 0, 1, ... Do
 * this before the first call of cn_valkey_link_ready. */
uint32_t cn_valkey_link_add_place(struct cn_valkey_link *link, struct cn_str key);
uint32_t cn_valkey_link_add_slot(struct cn_valkey_link *link, uint16_t slot);

/* Returns the deadline of a call that begins now, as cn_now_us() counts. */
uint64_t cn_valkey_deadline_us(const struct cn_valkey_link *link);
/* Returns when there is a connection to a primary that is fit for states; in a cluster, when it is
 * known which servers have the places. After a wait in vain, calls fail at once for a tenth of a
 * second, so that the calls of one batch do not wait one after the other. Errors are those of
 * cn_shared_store_open. */
int cn_valkey_link_ready(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err);
/* In a cluster: connects to the servers of all places. CN_E_STATE_STORE: one of them is not fit for
 * states. A server that cannot be reached is not an error, because the others can be used. */
int cn_valkey_link_check_all(struct cn_valkey_link *link, uint64_t deadline_us,
                             struct cn_error *err);
/* The store has answered, but cannot do its work now. The next call of cn_valkey_link_ready finds
 * the primary anew, or asks the cluster again after a pause. */
void cn_valkey_link_doubt(struct cn_valkey_link *link);
/* Is there a connection to the primary, or to all primaries that are needed? */
bool cn_valkey_link_connected(const struct cn_valkey_link *link);

/* Begins a command of n words for a place; cn_valkey_word appends each of them. The first command
 * after a trip begins the next trip. */
void cn_valkey_command(struct cn_valkey_link *link, uint32_t place, uint32_t n);
/* Begins a command for a server, which is named by its place in link->servers. */
void cn_valkey_command_to(struct cn_valkey_link *link, uint32_t server, uint32_t n);
/* Returns where the words of the present command are appended. */
static inline struct cn_buf *
cn_valkey_out(struct cn_valkey_link *link)
{
    return &link->commands[link->n_commands - 1].server->out;
}

static inline void
cn_valkey_word(struct cn_valkey_link *link, struct cn_str word)
{
    cn_wire_put_word(cn_valkey_out(link), word);
}

/* Sends the commands, to all servers at once, and takes the replies: `on_reply` gets the number of
 * each command, from 0 on, in any order. With `confirm` the servers must also confirm what they
 * have written or read, as far as the options ask for it. Returns 0 if all commands are DONE,
 * otherwise the first error; cn_valkey_result_of tells which ones are. */
int cn_valkey_talk(struct cn_valkey_link *link, bool confirm, cn_valkey_reply_fn on_reply,
                   void *ctx, uint64_t deadline_us, struct cn_error *err);
/* Begins such a trip: sends the commands, and does not wait, except for a connection to a server of
 * a cluster. The arguments are those of cn_valkey_talk, which must be called with the same ones
 * afterwards, and before any other call. */
void cn_valkey_talk_begin(struct cn_valkey_link *link, bool confirm, cn_valkey_reply_fn on_reply,
                          void *ctx, uint64_t deadline_us);
/* Sends and takes what it can without waiting. Returns true if cn_valkey_talk would not wait for
 * the replies to what was sent, because they are here or the connections are lost. */
bool cn_valkey_talk_decided(struct cn_valkey_link *link);
/* Sets `watched` to the sockets for whose replies a trip that was begun waits, at most `max`, and
 * returns their number. */
uint32_t cn_valkey_talk_watch(const struct cn_valkey_link *link, struct pollfd *watched,
                              uint32_t max);
/* What came of command i of the last trip. */
enum cn_valkey_result cn_valkey_result_of(const struct cn_valkey_link *link, uint32_t i);

/* For valkey_cluster.c and valkey_exchange.c: finds a server by its place, or adds it. NULL: there
 * are too many. */
struct cn_valkey_server *cn_valkey_link_server(struct cn_valkey_link *link, const char *host,
                                               uint16_t port);

#endif
