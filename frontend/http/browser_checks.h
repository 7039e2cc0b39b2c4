/* frontend/http/browser_checks.h - finds requests to manage the server that a browser has sent for
 * the page of another site.
 *
 * A browser sends simple requests to any address for any page, also to addresses that only the
 * user's own machine can reach. It says so in Sec-Fetch-Site and Origin (the Fetch standard). A
 * site can also give its own name this server's address (DNS rebinding): then the browser takes
 * both for one site, and only the Host header shows the foreign name. Other programs than browsers
 * send neither Sec-Fetch-Site nor Origin. Pure functions; any thread.
 */
#ifndef CN_FRONTEND_HTTP_BROWSER_CHECKS_H
#define CN_FRONTEND_HTTP_BROWSER_CHECKS_H

#include "core/errors/error.h"
#include "core/text/str.h"
#include "proto/message.h"

/* Returns CN_E_FOREIGN_SITE if the headers say that a page of another site sent the request.
 * `allowed_origin` is the origin whose scripts may call the APIs, "*" for all; NULL: none. */
int cn_browser_check_origin(const struct cn_header *headers, uint32_t n, const char *allowed_origin,
                            struct cn_error *err);

/* Checks a request that runs a model. Only Sec-Fetch-Site counts here, which browsers send to this
 * machine's own addresses and over TLS: a proxy that rewrites Host makes the Origin of its own
 * pages look foreign. */
int cn_browser_check_step(const struct cn_header *headers, uint32_t n, const char *allowed_origin,
                          struct cn_error *err);

/* Returns CN_E_FOREIGN_SITE if the Host header has a name that is neither an address, nor
 * localhost, nor in the list `allowed_hosts`: "one.example,two.example", "*" for all, NULL for
 * none. A request without a Host header passes, because browsers always send one. */
int cn_browser_check_host(const struct cn_header *headers, uint32_t n, const char *allowed_hosts,
                          struct cn_error *err);

/* Did a browser send the request for a page? Browsers add Sec-Fetch-Site or, the older ones,
 * Origin; programs do not. */
bool cn_browser_sent(const struct cn_header *headers, uint32_t n);

#endif
