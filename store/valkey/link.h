/* store/valkey/link.h - a connection to the shared store's primary, made when it is needed and made
 * again when it was lost. Every wait has a deadline. Worker's thread. */
#ifndef CN_STORE_VALKEY_LINK_H
#define CN_STORE_VALKEY_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "store/shared_store.h"
#include "store/valkey/hiredis_library.h"

#define CN_VALKEY_HOSTS_MAX 8
#define CN_VALKEY_DIGEST_LEN 40 /* the SHA-1 of a script in hexadecimal digits */

struct cn_valkey_link {
    struct cn_shared_options options; /* with strings of its own */
    struct cn_shared_host hosts[CN_VALKEY_HOSTS_MAX];
    const struct cn_hiredis *lib;
    const char *script; /* loaded into each server that it connects to */
    char digest[CN_VALKEY_DIGEST_LEN + 1];
    int fd;        /* -1: there is no connection */
    uint32_t host; /* the one that was the primary last */
    redisReader *reader;
    struct cn_buf out;       /* commands that are to be sent */
    uint32_t n_out;          /* their number */
    uint64_t failed_us;      /* when the last call failed; 0: it succeeded */
    struct cn_error failure; /* why */
};

/* Called for each reply, in the order of the commands. */
typedef void (*cn_valkey_reply_fn)(void *ctx, uint32_t i, const redisReply *reply);

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

/* Begins a command of n words; cn_valkey_word appends each of them. */
void cn_valkey_command(struct cn_valkey_link *link, uint32_t n);
void cn_valkey_word(struct cn_valkey_link *link, struct cn_str word);
/* Sends all commands at once and waits for their replies. CN_E_STORE_UNREACHABLE: not all replies
 * have come; the connection is dropped then. `err` must not be NULL. */
int cn_valkey_talk(struct cn_valkey_link *link, cn_valkey_reply_fn on_reply, void *ctx,
                   uint64_t deadline_us, struct cn_error *err);
/* Loads the script into the server, and notes its digest. */
int cn_valkey_load_script(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err);

/* Does the error reply begin with this word? */
bool cn_valkey_is_error(const redisReply *reply, const char *word);
/* Returns the text of a string or error reply; empty for another reply. */
struct cn_str cn_valkey_text(const redisReply *reply);

#endif
