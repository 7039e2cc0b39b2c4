/* management/models/url_rules.h - from which URLs models may come.
 *
 * A client that may register models must not thereby reach what only this machine can reach.
 * Without rules of the operator, an http(s) URL is allowed if it leads to a public address without
 * a redirect. With rules (allowed-urls), a URL that matches is trusted wherever it leads, and it
 * may redirect to another one that matches.
 */
#ifndef CN_MANAGEMENT_MODELS_URL_RULES_H
#define CN_MANAGEMENT_MODELS_URL_RULES_H

#include <stdbool.h>
#include <sys/socket.h>

#include "core/errors/error.h"

struct cn_url_rules;

/* Makes the rules. `patterns`: regular expressions (POSIX extended) with commas between them; one
 * of them must match the whole URL, in upper or lower case. NULL: the operator set none.
 * CN_E_CONFIG names a bad one. */
int cn_url_rules_create(const char *patterns, struct cn_url_rules **out, struct cn_error *err);
void cn_url_rules_destroy(struct cn_url_rules *rules);

/* Any thread: may a model come from this URL? Only http://, https:// and file:// ever may. */
bool cn_url_rules_allow(const struct cn_url_rules *rules, const char *url);
/* Did the operator set rules? Then redirects and private addresses are allowed where they match. */
bool cn_url_rules_are_set(const struct cn_url_rules *rules);

/* Is it an address of this machine or its networks, or one that does not name a single host? */
bool cn_address_is_private(const struct sockaddr *address);

#endif
