/* archiver/sign/minisign.h - the file formats of minisign: public keys, secret keys, signatures.
 *
 * Each is a line of text that nobody signs ("untrusted comment: ..."), followed by a line of
 * base64. A signature has two more lines: a comment that is signed, too, and the signature of the
 * first signature with that comment. The file's BLAKE2b-512 is signed (minisign's "prehashed"
 * form); the older form, which signs the file itself, is refused. Any thread.
 */
#ifndef CN_ARCHIVER_SIGN_MINISIGN_H
#define CN_ARCHIVER_SIGN_MINISIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

#define CN_SIGN_ENDING ".minisig" /* what the name of an archive's signature ends with */
#define CN_SIGN_ID_BYTES 8
#define CN_SIGN_PUBLIC_BYTES 32
#define CN_SIGN_SECRET_BYTES 64
#define CN_SIGN_BYTES 64
#define CN_SIGN_HASH_BYTES 64
#define CN_SIGN_KEYS_MAX 64
#define CN_SIGN_COMMENT_MAX 8191     /* minisign's own limit for the trusted comment */
#define CN_SIGN_FILE_BYTES_MAX 16384 /* of a signature, a secret key, or all trusted keys */
#define CN_SIGN_PASSWORD_MAX 1024

struct cn_sign_public {
    unsigned char id[CN_SIGN_ID_BYTES];
    unsigned char key[CN_SIGN_PUBLIC_BYTES];
};

struct cn_sign_publics {
    struct cn_sign_public keys[CN_SIGN_KEYS_MAX];
    uint32_t n;
};

/* libsodium's secret key: the seed, then the public key. Wipe it with sodium_memzero(). */
struct cn_sign_secret {
    unsigned char id[CN_SIGN_ID_BYTES];
    unsigned char key[CN_SIGN_SECRET_BYTES];
};

/* `comment` is borrowed from the text that was read. */
struct cn_signature {
    unsigned char id[CN_SIGN_ID_BYTES];
    unsigned char signature[CN_SIGN_BYTES]; /* of the file's hash */
    unsigned char global[CN_SIGN_BYTES];    /* of `signature` and `comment` */
    struct cn_str comment;
};

/* May a signature have this trusted comment? It is one printable line of at most
 * CN_SIGN_COMMENT_MAX bytes; cn_signature_parse() refuses every other one. */
bool cn_sign_is_comment(struct cn_str text);

/* A key's id as minisign prints it: 16 hexadecimal digits. */
#define CN_SIGN_ID_TEXT 17
const char *cn_sign_id_text(const unsigned char id[CN_SIGN_ID_BYTES], char out[CN_SIGN_ID_TEXT]);

/* Reads one or more public keys: files of minisign behind each other, or lines of base64. Empty
 * lines and those that begin with # or "untrusted comment:" are skipped. All functions that read
 * name their text as `name`, and return CN_E_CONFIG if it does not have the format. */
int cn_sign_publics_parse(const char *name, struct cn_str text, struct cn_sign_publics *out,
                          struct cn_error *err);
int cn_signature_parse(const char *name, struct cn_str text, struct cn_signature *out,
                       struct cn_error *err);

/* Returned, without an error, for an encrypted secret key if there is no password. */
#define CN_SIGN_NEEDS_PASSWORD 1
/* Reads a secret key. `password` NULL: none is known yet. To derive the key of a password takes
 * about a second, and as much memory as the file says, at most 2 GiB. */
int cn_sign_secret_parse(const char *name, struct cn_str text, const char *password,
                         struct cn_sign_secret *out, struct cn_error *err);

/* Appends the files that minisign would write. `password` NULL: the key is not encrypted.
 * CN_E_OUT_OF_MEMORY: the password's key cannot be derived (that takes 256 MiB). */
void cn_sign_public_print(const struct cn_sign_public *key, struct cn_buf *out);
int cn_sign_secret_print(const struct cn_sign_secret *secret, const char *password,
                         struct cn_buf *out, struct cn_error *err);
void cn_signature_print(const struct cn_signature *signature, struct cn_buf *out);

#endif
