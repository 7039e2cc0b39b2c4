/* store/link/valkey_tls.h - an encrypted connection to a Valkey server or Sentinel, by GnuTLS,
 * which is opened as hiredis is: by the first connection with TLS. The link's thread.
 *
 * The files are read for each connection, so a renewed certificate is used from the next one on. */
#ifndef CN_STORE_LINK_VALKEY_TLS_H
#define CN_STORE_LINK_VALKEY_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/errors/error.h"
#include "store/shared_store.h"

#define CN_TLS_WHY_MAX 400

struct cn_tls;

/* Makes the handshake with the server at the other end of `fd`, which must not block, and checks
 * its certificate: it must have the name `options->name`, or `host` if that is "". Returns 0 and
 * *out, which cn_tls_close frees. CN_E_STORE_UNREACHABLE: no answer before the deadline.
 * CN_E_STATE_STORE: one side refuses the other, a file cannot be read, or there is no library.
 * `why` is the end of a sentence that begins with the server. */
int cn_tls_open(const struct cn_shared_tls *options, int fd, const char *host, uint64_t deadline_us,
                struct cn_tls **out, char why[CN_TLS_WHY_MAX]);
/* Ends the session, but leaves `fd` open. NULL is allowed. */
void cn_tls_close(struct cn_tls *tls);

/* These return the number of bytes that were sent or received; 0: nothing can be done now; or a
 * negative error code with `why`, as above. The bytes of a send that returned 0 must be the first
 * ones of the next send. The room of a receive is 16 KiB or more, a whole TLS record: poll() would
 * not see the rest of one. */
ssize_t cn_tls_send(struct cn_tls *tls, const void *bytes, size_t len, char why[CN_TLS_WHY_MAX]);
ssize_t cn_tls_receive(struct cn_tls *tls, void *bytes, size_t len, char why[CN_TLS_WHY_MAX]);

#endif
