/* access/keys.c - the named keys of a running server.
 *
 * A struct cn_key is one way to show one entry of the file: the key itself, or the name of one
 * certificate. So an entry has several of them, with one account. When a name is taken off an
 * entry, only what was opened by that certificate loses its rights.
 *
 * Readers hold a lock for as long as they look at an entry, which is well below a microsecond.
 * Loop 0 reads and checks a new file before it takes the lock, and then only exchanges pointers. A
 * waiting writer goes first, so that many readers cannot keep it out.
 *
 * The table has half of each hash as its key, and the whole hash is then compared in constant time.
 * What a client could learn from the time of the table's own comparison are bits of a hash, from
 * which no key can be computed. */
#include "access/keys.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "access/certificate_name.h"
#include "access/glob.h"
#include "access/key_text.h"
#include "core/containers/table.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"

/* The id is the hash (of the key or of the certificate's name) and the name, so that a key which
 * gets another name is another key: an old request must not change its name while it runs. */
#define ID_MAX (CN_KEY_HASH_BYTES + CN_KEY_NAME_MAX + 1)

struct cn_key {
    struct cn_account *account;
    const struct cn_key_entry *now; /* NULL: the file lacks it; changed under the lock */
    uint32_t number;
    bool by_certificate;
    size_t id_len;
    char id[ID_MAX];
};

struct cn_keys {
    char *path;
    struct cn_keys_rules rules;
    struct cn_accounts *accounts;
    pthread_rwlock_t lock; /* for `file`, `by_hash` and each key's `now` */
    struct cn_key_file file;
    struct cn_table *by_hash; /* the keys of the file */
    struct cn_table *known;   /* every key that the file ever had; loop 0 */
};

const char *
cn_key_name(const struct cn_key *key)
{
    return key->id + CN_KEY_HASH_BYTES;
}

struct cn_account *
cn_key_account(const struct cn_key *key)
{
    return key ? key->account : NULL;
}

struct cn_accounts *
cn_keys_accounts(struct cn_keys *keys)
{
    return keys->accounts;
}

uint32_t
cn_key_number(const struct cn_key *key)
{
    return key->number;
}

/* All ways to show an entry have the same number, or its clients would get several shares. */
static uint32_t
number_of(struct cn_str name)
{
    unsigned char hash[CN_KEY_HASH_BYTES];
    uint32_t number;

    crypto_generichash(hash, sizeof hash, (const unsigned char *)name.ptr, name.len, NULL, 0);
    memcpy(&number, hash, sizeof number);
    return number ? number : 1;
}

static struct cn_str
id_of(const void *item)
{
    const struct cn_key *key = item;

    return (struct cn_str){key->id, key->id_len};
}

static struct cn_str
half_hash_of(const void *item)
{
    return (struct cn_str){((const struct cn_key *)item)->id, CN_KEY_HASH_BYTES / 2};
}

/* --- the file */

/* Returns the key of an entry and a hash: the one that the file had before, or a new one. */
static struct cn_key *
know(struct cn_keys *keys, const struct cn_key_entry *entry,
     const unsigned char hash[CN_KEY_HASH_BYTES], bool by_certificate)
{
    struct cn_key *key = cn_alloc(sizeof *key), *found;

    memset(key, 0, sizeof *key);
    memcpy(key->id, hash, CN_KEY_HASH_BYTES);
    memcpy(key->id + CN_KEY_HASH_BYTES, entry->name.ptr, entry->name.len);
    key->id_len = CN_KEY_HASH_BYTES + entry->name.len;
    found = cn_table_find(keys->known, id_of(key));
    if (found) {
        cn_free(key);
        return found;
    }
    key->account = cn_accounts_open(keys->accounts, entry->name);
    key->number = number_of(entry->name);
    key->by_certificate = by_certificate;
    cn_table_insert(keys->known, key);
    return key;
}

/* Limits of sequences need owners, and certificates need an authority that signs them. */
static int
check_rules(const struct cn_keys *keys, const struct cn_key_file *file, struct cn_error *err)
{
    for (uint32_t i = 0; i < file->n; i++) {
        const struct cn_key_entry *entry = &file->entries[i];

        if (entry->n_certificates && !keys->rules.certificates)
            return cn_fail(err, CN_E_CONFIG,
                           "%s: the key %.*s has certificates, but the server asks no client for "
                           "one; set client-ca, or remove certificates",
                           keys->path, CN_STR_ARG(entry->name));
        if (!keys->rules.owners && (entry->limits.sequences || entry->limits.stored_bytes))
            return cn_fail(err, CN_E_CONFIG,
                           "%s: the key %.*s has %s, but with sequence-ownership=false no sequence "
                           "belongs to a key; remove the limit, or the option",
                           keys->path, CN_STR_ARG(entry->name),
                           entry->limits.sequences ? "maxNumSequence" : "storedBytes");
    }
    return 0;
}

static int
read_file(const struct cn_keys *keys, struct cn_key_file *file, struct cn_error *err)
{
    int rc = cn_key_file_read(keys->path, file, err);

    if (rc)
        return rc;
    rc = check_rules(keys, file, err);
    if (rc)
        cn_key_file_fini(file);
    return rc;
}

/* The keys of a new file, before others may see them. */
struct fresh {
    struct cn_table *by_hash;
    struct {
        struct cn_key *key;
        const struct cn_key_entry *entry;
    } * all;
    size_t n;
};

static void
fresh_add(struct fresh *fresh, struct cn_key *key, const struct cn_key_entry *entry)
{
    fresh->all[fresh->n].key = key;
    fresh->all[fresh->n++].entry = entry;
    cn_table_insert(fresh->by_hash, key);
}

static void
fresh_make(struct cn_keys *keys, const struct cn_key_file *file, struct fresh *fresh)
{
    unsigned char hash[CN_KEY_HASH_BYTES];
    size_t room = 1;

    for (uint32_t i = 0; i < file->n; i++)
        room += 1 + file->entries[i].n_certificates;
    *fresh = (struct fresh){.by_hash = cn_table_create(half_hash_of),
                            .all = cn_alloc(room * sizeof *fresh->all)};
    for (uint32_t i = 0; i < file->n; i++) {
        const struct cn_key_entry *entry = &file->entries[i];

        if (entry->has_hash)
            fresh_add(fresh, know(keys, entry, entry->hash, false), entry);
        for (uint32_t k = 0; k < entry->n_certificates; k++) {
            cn_certificate_name_hash(entry->certificates[k], hash);
            fresh_add(fresh, know(keys, entry, hash, true), entry);
        }
        cn_account_set_limits(fresh->all[fresh->n - 1].key->account, &entry->limits);
    }
}

/* Puts a new file in the place of the old one, which becomes `*file`. */
static void
exchange(struct cn_keys *keys, struct cn_key_file *file)
{
    struct cn_table *before;
    struct cn_key *key;
    struct cn_key_file old;
    struct fresh fresh;
    size_t cursor = 0;

    fresh_make(keys, file, &fresh);
    pthread_rwlock_wrlock(&keys->lock);
    while ((key = cn_table_next(keys->known, &cursor)))
        key->now = NULL;
    for (size_t i = 0; i < fresh.n; i++)
        fresh.all[i].key->now = fresh.all[i].entry;
    old = keys->file;
    keys->file = *file;
    before = keys->by_hash;
    keys->by_hash = fresh.by_hash;
    pthread_rwlock_unlock(&keys->lock);
    *file = old;
    cn_table_destroy(before);
    cn_free(fresh.all);
}

int
cn_keys_open(const char *path, struct cn_keys_rules rules, struct cn_keys **out,
             struct cn_error *err)
{
    struct cn_keys *keys = cn_alloc(sizeof *keys);
    struct cn_key_file file;
    pthread_rwlockattr_t attr;
    int rc;

    memset(keys, 0, sizeof *keys);
    keys->path = cn_strdup(path);
    keys->rules = rules;
    rc = read_file(keys, &file, err);
    if (rc) {
        cn_free(keys->path);
        cn_free(keys);
        return rc;
    }
    keys->accounts = cn_accounts_create();
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&keys->lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    keys->known = cn_table_create(id_of);
    cn_key_file_init(&keys->file);
    exchange(keys, &file);
    cn_key_file_fini(&file);
    *out = keys;
    return 0;
}

void
cn_keys_destroy(struct cn_keys *keys)
{
    struct cn_key *key;
    size_t cursor = 0;

    if (!keys)
        return;
    cn_table_destroy(keys->by_hash);
    while ((key = cn_table_next(keys->known, &cursor)))
        cn_free(key);
    cn_table_destroy(keys->known);
    cn_accounts_destroy(keys->accounts);
    cn_key_file_fini(&keys->file);
    pthread_rwlock_destroy(&keys->lock);
    cn_free(keys->path);
    cn_free(keys);
}

int
cn_keys_reload(struct cn_keys *keys, struct cn_error *err)
{
    struct cn_key_file file;
    int rc = read_file(keys, &file, err);

    if (rc)
        return rc;
    exchange(keys, &file);
    cn_key_file_fini(&file);
    return 0;
}

uint32_t
cn_keys_count(const struct cn_keys *keys)
{
    return keys->file.n;
}

/* --- checks, under the lock */

static int
check_entry(const struct cn_key_entry *entry, bool by_certificate, unsigned scopes,
            struct cn_error *err)
{
    struct cn_buf words;
    char time[25];

    if (!entry && by_certificate)
        return cn_fail(err, CN_E_KEY_REQUIRED,
                       "the certificate belongs to no key any more: the server's key file has "
                       "none of its names");
    if (!entry)
        return cn_fail(err, CN_E_KEY_REQUIRED,
                       "the key is unknown: it is misspelt, or the server's key file lacks it");
    if (entry->revoked)
        return cn_fail(err, CN_E_KEY_REQUIRED, "the key %.*s is revoked; ask for a new one",
                       CN_STR_ARG(entry->name));
    if (cn_wall_ms() >= entry->expires_wall_ms) {
        cn_wall_format(entry->expires_wall_ms, time);
        return cn_fail(err, CN_E_KEY_REQUIRED, "the key %.*s expired at %s; ask for a new one",
                       CN_STR_ARG(entry->name), time);
    }
    if (entry->scopes & scopes)
        return 0;
    cn_buf_init(&words, 0);
    cn_key_scopes_write(scopes, &words);
    cn_fail(err, CN_E_KEY_FORBIDDEN, "the key %.*s lacks the scope that this request needs: %.*s",
            CN_STR_ARG(entry->name), CN_STR_ARG(cn_buf_str(&words)));
    cn_buf_fini(&words);
    return CN_E_KEY_FORBIDDEN;
}

static const struct cn_key *
find(const struct cn_keys *keys, const unsigned char hash[CN_KEY_HASH_BYTES])
{
    const struct cn_key *key =
        cn_table_find(keys->by_hash, (struct cn_str){(const char *)hash, CN_KEY_HASH_BYTES / 2});

    return key && sodium_memcmp(key->id, hash, CN_KEY_HASH_BYTES) == 0 ? key : NULL;
}

/* Finds the key of a certificate. If its names belong to several keys, the choice of one of them
 * would give a client rights that nobody meant for it. */
static int
find_by_certificate(const struct cn_keys *keys, const struct cn_credentials *shown,
                    const struct cn_key **out, struct cn_error *err)
{
    for (uint32_t i = 0; i < shown->n_names; i++) {
        const struct cn_key *key = find(keys, shown->name_hashes[i]);

        if (!key || (*out && (*out)->now == key->now))
            continue;
        if (*out)
            return cn_fail(err, CN_E_KEY_REQUIRED,
                           "the names of the certificate (%s) belong to two keys, %s and %s; give "
                           "all of them to one key in the server's key file",
                           shown->certificate, cn_key_name(*out), cn_key_name(key));
        *out = key;
    }
    return *out ? 0
                : cn_fail(err, CN_E_KEY_REQUIRED,
                          "the certificate (%s) belongs to no key: add one of its names to the "
                          "certificates of a key in the server's key file, or send the header "
                          "Authorization: Bearer KEY",
                          shown->certificate);
}

/* An empty key is no key, but it was sent, so it hides the certificate as a wrong one does: a
 * gateway whose user has no key must not act in its own name. */
static int
refuse_without_key(const struct cn_keys *keys, const struct cn_credentials *shown,
                   struct cn_error *err)
{
    if (shown->sent && shown->certificate)
        return cn_fail(err, CN_E_KEY_REQUIRED,
                       "the key that was sent is empty, and a key that is sent counts more than a "
                       "certificate: send the header Authorization: Bearer KEY, or leave it out");
    return cn_fail(err, CN_E_KEY_REQUIRED,
                   "this server requires a key: send the header Authorization: Bearer KEY%s",
                   keys->rules.certificates ? ", or connect with the certificate of a key" : "");
}

int
cn_keys_identify(struct cn_keys *keys, const struct cn_credentials *shown, unsigned scopes,
                 const struct cn_key **out, struct cn_error *err)
{
    unsigned char hash[CN_KEY_HASH_BYTES];
    const struct cn_key *key = NULL;
    int rc = 0;

    if (!shown->authorization.len && (shown->sent || !shown->certificate))
        return refuse_without_key(keys, shown, err);
    if (shown->sent && !cn_key_text_hash(cn_key_text_of_bearer(shown->authorization), hash))
        return check_entry(NULL, false, scopes, err);
    pthread_rwlock_rdlock(&keys->lock);
    if (shown->sent)
        key = find(keys, hash);
    else
        rc = find_by_certificate(keys, shown, &key, err);
    if (!rc)
        rc = check_entry(key ? key->now : NULL, false, scopes, err);
    pthread_rwlock_unlock(&keys->lock);
    if (!rc || rc == CN_E_KEY_FORBIDDEN)
        *out = key;
    return rc;
}

int
cn_keys_check(struct cn_keys *keys, const struct cn_key *key, unsigned scopes, struct cn_error *err)
{
    int rc;

    pthread_rwlock_rdlock(&keys->lock);
    rc = check_entry(key->now, key->by_certificate, scopes, err);
    pthread_rwlock_unlock(&keys->lock);
    return rc;
}

static int
check_model(const struct cn_key_entry *entry, struct cn_str model, struct cn_error *err)
{
    if (!entry->n_models)
        return 0;
    for (uint32_t i = 0; i < entry->n_models; i++)
        if (cn_str_eq(entry->models[i], CN_STR("*")) ||
            (model.len && cn_glob_matches(entry->models[i], model)))
            return 0;
    if (!model.len)
        return cn_fail(
            err, CN_E_KEY_FORBIDDEN,
            "the key %.*s may use only some of the models, and this request concerns all "
            "of them or the whole server",
            CN_STR_ARG(entry->name));
    return cn_fail(err, CN_E_KEY_FORBIDDEN, "the key %.*s may not use the model %.*s",
                   CN_STR_ARG(entry->name), model.len > 256 ? 256 : (int)model.len, model.ptr);
}

int
cn_keys_check_model(struct cn_keys *keys, const struct cn_key *key, struct cn_str model,
                    struct cn_error *err)
{
    int rc;

    pthread_rwlock_rdlock(&keys->lock);
    rc = check_entry(key->now, key->by_certificate, CN_SCOPE_ANY, err);
    if (!rc)
        rc = check_model(key->now, model, err);
    pthread_rwlock_unlock(&keys->lock);
    return rc;
}
