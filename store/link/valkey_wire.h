/* store/link/valkey_wire.h - one connection to a Valkey server or a Sentinel: commands are
 * collected, sent at once, and their replies waited for until a deadline. The link's thread. */
#ifndef CN_STORE_LINK_VALKEY_WIRE_H
#define CN_STORE_LINK_VALKEY_WIRE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "store/link/hiredis_library.h"
#include "store/link/lookup.h"
#include "store/link/valkey_tls.h"
#include "store/shared_store.h"

struct cn_valkey_wire {
    const struct cn_hiredis *lib;
    const struct cn_shared_options *options; /* borrowed: TLS, login and timeout */
    int fd;                                  /* -1: there is no connection */
    struct cn_tls *session;                  /* NULL: it is not encrypted */
    redisReader *reader;
    bool heard;        /* a server has sent a reply, now or on an earlier connection */
    struct cn_buf out; /* commands that are to be sent */
    uint32_t n_out;    /* their number */
    struct cn_lookup *lookup;
    char peer[320]; /* "the state store at host:port", for messages */
};

/* Called for each reply, in the order of the commands. */
typedef void (*cn_valkey_reply_fn)(void *ctx, uint32_t i, const redisReply *reply);

/* Borrows `options`. */
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
/* Appends AUTH with the user and the password of the URL, which must have a password. */
void cn_wire_login(struct cn_valkey_wire *wire);
/* Append the beginning of a command, or a word of one, to a buffer. */
void cn_wire_put_command(struct cn_buf *out, uint32_t n);
void cn_wire_put_word(struct cn_buf *out, struct cn_str word);

/* What is to be said on one connection, and what came of it. */
struct cn_wire_talk {
    struct cn_valkey_wire *wire;
    struct cn_str commands; /* whole commands; borrowed until the talk is over */
    uint32_t n;             /* their number */
    cn_valkey_reply_fn on_reply;
    void *ctx;
    struct cn_error *err; /* not NULL */
    /* Results: 0 or an error, and how far the talk has come. */
    int rc;
    uint32_t taken;
    size_t sent;
};

/* Sends the commands of all talks at once, and waits for all their replies, or until the deadline.
 * A talk with rc CN_E_STORE_UNREACHABLE has not got all its replies, and its connection is dropped;
 * the other talks are not affected. At most CN_WIRE_TALKS_MAX talks, each with a connection of its
 * own. */
#define CN_WIRE_TALKS_MAX 80
void cn_wire_talk_all(struct cn_wire_talk *talks, uint32_t n, uint64_t deadline_us);
/* Sends and takes as much of it as is possible without waiting. Returns true when all talks are
 * over. Call cn_wire_talk_all for the same talks afterwards. */
bool cn_wire_talk_some(struct cn_wire_talk *talks, uint32_t n);
/* Does the same for the commands that one connection has collected. `err` must not be NULL. */
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
