/* frontend/guard/library_calls.h - what libmicrohttpd reads and sends passes through here.
 *
 * libmicrohttpd reads its sockets itself and has no hook that shows the bytes first. So the program
 * defines recv() and gnutls_record_recv() itself: the dynamic linker takes a program's own function
 * before the one of a library (docs/decisions/0046). Each of them calls the real function, and then
 * the bytes of HTTP clients go through http_strict.h. send() and sendmsg() put headers of the
 * server into the heads of HTTP answers (head_text.h). For all other descriptors nothing changes.
 */
#ifndef CN_FRONTEND_GUARD_LIBRARY_CALLS_H
#define CN_FRONTEND_GUARD_LIBRARY_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

enum cn_may_read { CN_READ_ON, CN_READ_LATER, CN_READ_NEVER };

/* Looks at the bytes of an HTTP client. It is a part of the client's connection. */
struct cn_http_reader {
    /* May more be read? Never means that the connection ends. */
    enum cn_may_read (*may_read)(struct cn_http_reader *reader);
    /* Looks at bytes before libmicrohttpd does. Returns how many of them it may have. */
    size_t (*received)(struct cn_http_reader *reader, const char *bytes, size_t len);
    void *tls_session;       /* gnutls_session_t; NULL: plain HTTP, or nothing was read yet */
    struct cn_str head_text; /* plain HTTP: is still to be sent with the answer's head */
};

/* Makes the table of descriptors, before the loops run. CN_E_UNAVAILABLE: the linker has taken the
 * C library's functions, so nothing would be guarded. The table is never freed, since libraries may
 * call these functions at any time. */
int cn_library_calls_start(struct cn_error *err);

/* Between these two calls the running thread is in libmicrohttpd. */
void cn_library_calls_begin_http(bool is_tls);
void cn_library_calls_end_http(void);
/* The connection that libmicrohttpd reads from this descriptor; NULL: there is none any more. On
 * the connection's loop. */
void cn_library_calls_set_http(int fd, struct cn_http_reader *reader);

#endif
