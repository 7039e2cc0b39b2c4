/* management/models/url_rules.h - from which URLs models may come.
 *
 * Who may register models must not thereby reach what only this machine can reach. Without rules of
 * the operator's own, any http(s) URL is fine that leads to a public address at once; with them
 * (allowed-urls) what matches is trusted, wherever it points, and may redirect to what matches.
 */
#ifndef CN_MANAGEMENT_MODELS_URL_RULES_H
#define CN_MANAGEMENT_MODELS_URL_RULES_H

#include <stdbool.h>
#include <sys/socket.h>

#include "core/errors/error.h"

struct cn_url_rules;

/* `patterns`: regular expressions (POSIX extended) with commas between, of which one must match a
 * whole URL, in any case of letters; NULL: the operator set none. CN_E_CONFIG names a bad one. */
int cn_url_rules_create(const char *patterns, struct cn_url_rules **out, struct cn_error *err);
void cn_url_rules_destroy(struct cn_url_rules *rules);

/* Any thread. http://, https:// and file:// only. */
bool cn_url_rules_allow(const struct cn_url_rules *rules, const char *url);
/* Did the operator set them? Then redirects and private addresses are allowed where they match. */
bool cn_url_rules_are_set(const struct cn_url_rules *rules);

/* Is it an address of this machine, its networks, or of no single host? */
bool cn_address_is_private(const struct sockaddr *address);

#endif
