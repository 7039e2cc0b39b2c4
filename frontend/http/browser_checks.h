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

/* Returns CN_E_FOREIGN_SITE if the Host header has a name that is neither an address, nor
 * localhost, nor in the list `allowed_hosts`: "one.example,two.example", "*" for all, NULL for
 * none. A request without a Host header passes, because browsers always send one. */
int cn_browser_check_host(const struct cn_header *headers, uint32_t n, const char *allowed_hosts,
                          struct cn_error *err);

#endif
