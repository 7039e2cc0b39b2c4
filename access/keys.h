/* access/keys.h - the named keys of a running server: who a client is, and what it may do.
 *
 * Requests of all threads look keys up while loop 0 may be reading the file anew. A key is found by
 * the hash of what the client sent, in constant time, or by a name of the certificate with which
 * it has connected.
 *
 * A struct cn_key stays in place until cn_keys_destroy(), also when it is revoked or leaves the
 * file. So a request, a stream or a ticket may keep its pointer as long as it likes, and each check
 * follows the file as it was read last. The price is about 150 bytes for each key that was ever in
 * the file since the server started.
 */
#ifndef CN_ACCESS_KEYS_H
#define CN_ACCESS_KEYS_H

#include <stdbool.h>

#include "access/key_file.h"

struct cn_keys;
struct cn_key;

/* What the file may have, because of the server's other options. */
struct cn_keys_rules {
    bool owners; /* sequences belong to keys; without that a key cannot be limited in sequences */
    bool certificates; /* clients are asked for a certificate; without that no key may have one */
};

/* What a client has shown. A verified certificate counts only if no key was sent. */
struct cn_credentials {
    bool sent;                   /* the client sent a key, which may be empty or wrong */
    struct cn_str authorization; /* "Bearer KEY" */
    const char *certificate;     /* what messages call the client's certificate; NULL: none */
    /* of the certificate's names (access/certificate_name.h) */
    const unsigned char (*name_hashes)[CN_KEY_HASH_BYTES];
    uint32_t n_names;
};

/* Reads the file. CN_E_CONFIG with name, line and column. Main thread, at start. */
int cn_keys_open(const char *path, struct cn_keys_rules rules, struct cn_keys **out,
                 struct cn_error *err);
/* NULL is allowed. */
void cn_keys_destroy(struct cn_keys *keys);
/* Loop 0: reads the file again. On failure the keys stay as they are. */
int cn_keys_reload(struct cn_keys *keys, struct cn_error *err);
/* Loop 0: how many keys the file has. */
uint32_t cn_keys_count(const struct cn_keys *keys);

/* Any thread: finds the key of a request. `scopes`: it must have one of these. CN_E_KEY_REQUIRED
 * without a valid key, and `*out` is unchanged; CN_E_KEY_FORBIDDEN if it has none of the scopes,
 * with the key in `*out`. */
int cn_keys_identify(struct cn_keys *keys, const struct cn_credentials *shown, unsigned scopes,
                     const struct cn_key **out, struct cn_error *err);
/* Any thread: is a key that was found before still valid, and does it have one of the scopes?
 * Errors as above. */
int cn_keys_check(struct cn_keys *keys, const struct cn_key *key, unsigned scopes,
                  struct cn_error *err);
/* Any thread: may the key use this model? The answer does not depend on whether there is such a
 * model. An empty name stands for all models together, so a limited key may not use it. */
int cn_keys_check_model(struct cn_keys *keys, const struct cn_key *key, struct cn_str model,
                        struct cn_error *err);
/* The key's name, with a NUL. */
const char *cn_key_name(const struct cn_key *key);
/* The account of the key's name; NULL for a key of NULL. */
struct cn_account *cn_key_account(const struct cn_key *key);
/* The accounts of all keys. */
struct cn_accounts *cn_keys_accounts(struct cn_keys *keys);
/* A number that differs for nearly any two names of keys, never 0. */
uint32_t cn_key_number(const struct cn_key *key);

#endif
