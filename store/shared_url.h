/* store/shared_url.h - turns the URL of a shared store into the options with which it is opened.
 * Any thread. */
#ifndef CN_STORE_SHARED_URL_H
#define CN_STORE_SHARED_URL_H

#include "config/state_store_url.h"
#include "store/shared_store.h"

/* A URL that was taken apart, and options that point into it. It must not be copied. */
struct cn_shared_url {
    struct cn_state_store_url url;
    struct cn_shared_host hosts[CN_STATE_STORE_HOSTS_MAX];
    struct cn_shared_tls tls;
    struct cn_shared_options options;
};

/* Reads the URL and sets what it says in out->options; the caller sets the rest. CN_E_CONFIG: it is
 * not a URL of a shared store. */
int cn_shared_url_read(const char *text, struct cn_shared_url *out, struct cn_error *err);

#endif
