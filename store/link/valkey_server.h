/* store/link/valkey_server.h - one server of the shared store: the connection to it, and the
 * commands that it is to get next. The link's thread.
 *
 * A store with one primary has one such object, which connects to whatever server is the primary at
 * the time. A cluster has one for each primary. */
#ifndef CN_STORE_LINK_VALKEY_SERVER_H
#define CN_STORE_LINK_VALKEY_SERVER_H

#include "store/link/replica_set.h"
#include "store/link/valkey_wire.h"

#define CN_VALKEY_DIGEST_LEN 40 /* the SHA-1 of a script in hexadecimal digits */

/* What a server says about the writes before it: are they on its disk, and on how many replicas? */
struct cn_valkey_confirmed {
    bool said; /* it has answered the question */
    bool on_disk;
    uint32_t wanted; /* how many replicas were to have them */
    long long replicas;
};

/* When to try again what has failed. The pause is ten times as long as the attempt took, so that at
 * most a tenth of a worker's time is spent on a server that does not answer. */
struct cn_valkey_retry {
    unsigned failures; /* since the last success */
    uint64_t next_us, attempt_us;
};

struct cn_valkey_server {
    const struct cn_shared_options *options; /* borrowed */
    const char *script;                      /* loaded when it connects; or NULL */
    struct cn_valkey_wire wire;
    char host[256]; /* where it is, or was last */
    uint16_t port;
    char digest[CN_VALKEY_DIGEST_LEN + 1];
    bool waits_for_disk; /* durability power: what it writes counts after WAITAOF */
    /* What the server said when it was connected: whether its data have a history of their own,
     * because it was started and not promoted, and how many replicas have this history. */
    bool began_history;
    uint32_t replicas_online;
    struct cn_replica_set confirming; /* those that have confirmed something in the last seconds */
    uint32_t must_confirm;            /* how many replicas must have what it writes */
    bool used;                        /* it got a command since the cluster was asked last */
    /* The commands of the present trip. Those before `begin` have been sent. */
    struct cn_buf out;
    size_t begin;
    uint32_t *replies; /* for each command, what its reply is for: see valkey_exchange.c */
    uint32_t n_replies, first_reply, cap_replies;
    struct cn_valkey_confirmed confirmed;
    struct cn_valkey_retry retry;
    struct cn_error failure; /* why the last attempt or trip failed */
};

/* `options` must outlive it. Free it with cn_valkey_server_destroy. */
struct cn_valkey_server *cn_valkey_server_create(const struct cn_shared_options *options,
                                                 const struct cn_hiredis *lib, const char *script);
/* NULL is allowed. */
void cn_valkey_server_destroy(struct cn_valkey_server *server);
/* Sets where it is. A connection to another place is dropped. */
void cn_valkey_server_move(struct cn_valkey_server *server, const char *host, uint16_t port);

/* Connects, and finds out whether it is a primary that is fit for states. The errors are those of
 * cn_valkey_check_server. */
int cn_valkey_server_connect(struct cn_valkey_server *server, uint64_t deadline_us,
                             struct cn_error *err);

/* Notes a failure of something that began at `began_us`, and when to try again. */
void cn_valkey_retry_later(struct cn_valkey_retry *retry, uint64_t began_us, uint32_t timeout_ms);

/* Forgets the commands of the trip. */
void cn_valkey_server_clear(struct cn_valkey_server *server);
/* Notes what the reply to the command that is appended next is for. */
void cn_valkey_server_expect(struct cn_valkey_server *server, uint32_t what);

/* Must what this server writes or reads be confirmed by its disk or by replicas? */
bool cn_valkey_server_waits(const struct cn_valkey_server *server);
/* Appends WAITAOF and WAIT, as far as they are needed. */
void cn_valkey_server_put_wait(struct cn_valkey_server *server, uint64_t deadline_us,
                               uint32_t what);
/* Takes a reply to one of them. */
void cn_valkey_server_take_wait(struct cn_valkey_server *server, const redisReply *reply);
/* Is what it wrote as durable as the model asks for? CN_E_STORE_UNREACHABLE: no. */
int cn_valkey_server_check_wait(const struct cn_valkey_server *server, struct cn_error *err);

#endif
