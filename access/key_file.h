/* access/key_file.h - the file with the named keys of clients: read, checked and written.
 *
 * The file has no key, only the BLAKE2b hash of each one. A key has 256 random bits, so nobody can
 * find it by trying words, and a fast hash is enough. Any thread.
 */
#ifndef CN_ACCESS_KEY_FILE_H
#define CN_ACCESS_KEY_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "access/account.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_KEY_NAME_MAX 64     /* bytes of a key's name */
#define CN_KEY_PATTERN_MAX 256 /* bytes of a pattern of models */
#define CN_KEY_HASH_BYTES 32
#define CN_KEY_HASH_PREFIX "blake2b:"

/* What a key may be used for; bits. */
enum cn_key_scope {
    CN_SCOPE_INFER = 1,   /* run models */
    CN_SCOPE_MANAGE = 2,  /* change the server, and read it */
    CN_SCOPE_OBSERVE = 4, /* read models, sequences and metrics, and change nothing */
    CN_SCOPE_ANY = 7
};

/* One key of the file; its texts lie in the file's arena. */
struct cn_key_entry {
    struct cn_str name;
    bool has_hash; /* there is a key that clients can send; without it, only certificates */
    unsigned char hash[CN_KEY_HASH_BYTES];
    struct cn_str *certificates; /* names, as cn_certificate_name_make makes them */
    uint32_t n_certificates;
    unsigned scopes;          /* CN_SCOPE_...; at least one */
    struct cn_str *models;    /* patterns, as in cn_glob_matches */
    uint32_t n_models;        /* 0: the key may use every model */
    uint64_t expires_wall_ms; /* CN_NEVER: it does not expire */
    bool revoked;
    struct cn_key_limits limits;
};

struct cn_key_file {
    struct cn_arena arena;
    struct cn_key_entry *entries;
    uint32_t n;
};

/* Reads the text of a file, YAML or JSON; `name` is used in messages. cn_key_file_fini frees the
 * result. CN_E_CONFIG with name, line and column, and then there is nothing to free. */
int cn_key_file_parse(const char *name, struct cn_str bytes, struct cn_key_file *out,
                      struct cn_error *err);
/* Reads a file of at most 4 MiB. */
int cn_key_file_read(const char *path, struct cn_key_file *out, struct cn_error *err);
void cn_key_file_fini(struct cn_key_file *file);

/* Makes a file without keys. */
void cn_key_file_init(struct cn_key_file *file);
/* Adds a key. Its texts are copied. CN_E_CONFIG: the name is not valid or not new, or a key has one
 * of its certificates already. */
int cn_key_file_add(struct cn_key_file *file, const struct cn_key_entry *entry,
                    struct cn_error *err);
/* The key of that name, or NULL. */
struct cn_key_entry *cn_key_file_find(struct cn_key_file *file, struct cn_str name);
/* Appends the file as JSON, one key on each line; cn_key_file_parse reads it again. */
void cn_key_file_write(const struct cn_key_file *file, struct cn_buf *out);

/* Is it 1 to CN_KEY_NAME_MAX letters, digits, dots, hyphens and underscores, and begins with one of
 * the first two? */
bool cn_key_name_is_valid(struct cn_str name);
/* Reads "infer", "manage" or "observe"; 0: it is none of them. */
unsigned cn_key_scope_read(struct cn_str word);
/* Appends "infer, observe". */
void cn_key_scopes_write(unsigned scopes, struct cn_buf *out);
/* Reads "2027-01-31" (the beginning of that day) or "2027-01-31T12:00:00Z", both UTC. False: it is
 * neither, or no such day. */
bool cn_key_time_read(struct cn_str text, uint64_t *wall_ms);

#endif
