/* store/valkey/valkey_wire.h - one connection to a Valkey server or a Sentinel: commands are
 * collected, sent at once, and their replies waited for until a deadline. The link's thread. */
#ifndef CN_STORE_VALKEY_VALKEY_WIRE_H
#define CN_STORE_VALKEY_VALKEY_WIRE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "store/shared_store.h"
#include "store/valkey/hiredis_library.h"
#include "store/valkey/lookup.h"
#include "store/valkey/valkey_tls.h"

struct cn_valkey_wire {
    const struct cn_hiredis *lib;
    const struct cn_shared_tls *tls; /* borrowed; NULL: connections are not encrypted */
    uint32_t timeout_ms;             /* for messages */
    int fd;                          /* -1: there is no connection */
    struct cn_tls *session;          /* NULL: it is not encrypted */
    redisReader *reader;
    struct cn_buf out; /* commands that are to be sent */
    uint32_t n_out;    /* their number */
    struct cn_lookup *lookup;
    char peer[320]; /* "the state store at host:port", for messages */
};

/* Called for each reply, in the order of the commands. */
typedef void (*cn_valkey_reply_fn)(void *ctx, uint32_t i, const redisReply *reply);

/* Borrows the timeout and the settings of TLS from `options`. */
void cn_wire_init(struct cn_valkey_wire *wire, const struct cn_hiredis *lib,
                  const struct cn_shared_options *options);
void cn_wire_fini(struct cn_valkey_wire *wire);

/* Connects to a server, called `what` in messages. CN_E_STORE_UNREACHABLE: it cannot be reached
 * before the deadline. CN_E_STATE_STORE: TLS has failed, and trying again would not help. There
 * must be no connection. */
int cn_wire_connect(struct cn_valkey_wire *wire, const char *what, const struct cn_shared_host *to,
                    uint64_t deadline_us, struct cn_error *err);
/* Closes the connection, and forgets the commands that were collected. */
void cn_wire_drop(struct cn_valkey_wire *wire);

/* Begins a command of n words; cn_wire_word appends each of them. */
void cn_wire_command(struct cn_valkey_wire *wire, uint32_t n);
void cn_wire_word(struct cn_valkey_wire *wire, struct cn_str word);
/* Sends all commands at once and waits for their replies. CN_E_STORE_UNREACHABLE: not all replies
 * have come; the connection is dropped then. `err` must not be NULL. */
int cn_wire_talk(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx,
                 uint64_t deadline_us, struct cn_error *err);
/* Passes on what the server has sent without being asked, and does not wait. An error drops the
 * connection. */
int cn_wire_hear(struct cn_valkey_wire *wire, cn_valkey_reply_fn on_reply, void *ctx,
                 struct cn_error *err);

/* Fails with a message that begins with the peer. */
int cn_wire_fail(const struct cn_valkey_wire *wire, int code, struct cn_error *err, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
/* Does the error reply begin with this word? */
bool cn_valkey_is_error(const redisReply *reply, const char *word);
/* Returns the text of a string or error reply; empty for another reply. */
struct cn_str cn_valkey_text(const redisReply *reply);

#endif
