/* config/state_store_url.h - the URL of the shared state store, such as valkey://host:port/prefix.
 *
 * The server reads it from --state-store or from a model's YAML (state.store), checks it, and sends
 * the text to the workers, which open the store. Any thread. */
#ifndef CN_CONFIG_STATE_STORE_URL_H
#define CN_CONFIG_STATE_STORE_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_STATE_STORE_URL_MAX 1023 /* the longest URL in bytes */
#define CN_STATE_STORE_HOSTS_MAX 8
#define CN_STATE_STORE_PORT 6379           /* if the URL names no port */
#define CN_STATE_STORE_SENTINEL_PORT 26379 /* if the URL of Sentinels names no port */
#define CN_STATE_STORE_PREFIX "continuo"   /* if the URL names no prefix */
#define CN_STATE_STORE_EMBEDDED "embedded" /* the word for LMDB in the state folder */
#define CN_REPLICAS_ALL UINT32_MAX         /* the number that stands for state.replicas: all */
#define CN_STATE_STORE_SHOWN_MAX (CN_STATE_STORE_URL_MAX + 1)

/* The text of a URL; "" means "embedded". */
struct cn_state_store_text {
    char url[CN_STATE_STORE_URL_MAX + 1];
};

struct cn_state_store_url {
    bool shared;                   /* false: the embedded store, and nothing else is set */
    bool tls;                      /* connections are encrypted */
    char user[129], password[257]; /* decoded; "" where the URL has none */
    bool cluster;                  /* the hosts are some of a cluster's nodes */
    char master[65]; /* the hosts are Sentinels, and the primary has this name; or "" */
    char prefix[65];
    /* Only with TLS, decoded, "" where the URL has none: files in PEM, and the name that the
     * server's certificate must have instead of its host's. */
    char ca[256], certificate[256], key[256], name[256];
    uint32_t n_hosts;
    struct {
        char host[256]; /* a name or an address, without brackets */
        uint16_t port;
    } hosts[CN_STATE_STORE_HOSTS_MAX];
};

/* Reads a URL, "embedded" or "". CN_E_CONFIG says what is wrong; the message contains neither the
 * user name nor the password. */
int cn_state_store_url_parse(struct cn_str text, struct cn_state_store_url *out,
                             struct cn_error *err);
/* Reads a URL like the function above and keeps its text. "embedded" is kept as "". */
int cn_state_store_text_set(struct cn_state_store_text *out, struct cn_str text,
                            struct cn_error *err);
/* Writes the URL for people: with *** in place of the password. The text must be one that
 * cn_state_store_url_parse accepted. Returns `out`. */
const char *cn_state_store_url_shown(const char *text, char out[CN_STATE_STORE_SHOWN_MAX]);

#endif
