/* archiver/sign/minisign.c - reads and writes minisign's formats. Any thread.
 *
 * Numbers are little-endian. The base64 of a public key has "Ed", the key's id (8 bytes) and the
 * key (32). That of a signature has "ED" (prehashed; "Ed" is the old form), the id and the
 * signature. That of a secret key has "Ed", the derivation ("Sc" for scrypt, or two zeros), "B2",
 * salt (32), scrypt's two limits (8 and 8), and 104 bytes that are encrypted by XOR with what
 * scrypt gives: id, key (64), and the BLAKE2b-256 of "Ed", id and key, by which a wrong password is
 * recognised. Without a password that checksum is zero.
 *
 * A signature file has four lines:
 *   untrusted comment: signature of continuo-archiver
 *   RUQ...                       base64 of the signature of the archive's BLAKE2b-512
 *   trusted comment: timestamp:1760000000  file:counter.mar  hashed
 *   ...                          base64 of a second signature, of the first one and the comment
 * So nobody can put another trusted comment to a signature. The untrusted one may say anything. */
#include "archiver/sign/minisign.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define UNTRUSTED "untrusted comment:"
#define TRUSTED "trusted comment: "
#define PUBLIC_RAW (2 + CN_SIGN_ID_BYTES + CN_SIGN_PUBLIC_BYTES)
#define SIGNATURE_RAW (2 + CN_SIGN_ID_BYTES + CN_SIGN_BYTES)
#define SECRET_RAW 158
#define SECRET_PLAIN 54 /* where the encrypted part begins */
#define SECRET_SEALED (SECRET_RAW - SECRET_PLAIN)
#define SALT_BYTES crypto_pwhash_scryptsalsa208sha256_SALTBYTES
#define CHECK_BYTES 32
/* Our own key files ask for N 2^18, r 8 and p 1, so that a build server can read them. */
#define OUR_OPSLIMIT (UINT64_C(1) << 23) /* for our own key files: a quarter of minisign's */
#define OUR_MEMLIMIT (UINT64_C(1) << 28)
#define OPSLIMIT_MAX (UINT64_C(1) << 28) /* what a key file may ask for */
/* scrypt takes the memory that the file asks for, and key files come from outside. */
#define MEMLIMIT_MAX (UINT64_C(1) << 31)

_Static_assert(SALT_BYTES == 32, "the format has room for this salt");
_Static_assert(SECRET_SEALED == CN_SIGN_ID_BYTES + CN_SIGN_SECRET_BYTES + CHECK_BYTES, "format");

static uint64_t
load_u64(const unsigned char *bytes)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static void
store_u64(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++, value >>= 8)
        bytes[i] = (unsigned char)value;
}

const char *
cn_sign_id_text(const unsigned char id[CN_SIGN_ID_BYTES], char out[CN_SIGN_ID_TEXT])
{
    snprintf(out, CN_SIGN_ID_TEXT, "%016" PRIX64, load_u64(id));
    return out;
}

/* --- lines and base64 */

/* Takes the next line off the text, without its end. Returns false if there is none. */
static bool
take_line(struct cn_str *text, struct cn_str *line)
{
    const char *end = text->len ? memchr(text->ptr, '\n', text->len) : NULL;
    size_t len = end ? (size_t)(end - text->ptr) : text->len;

    if (text->len == 0)
        return false;
    *line = (struct cn_str){text->ptr, len};
    text->ptr += len + (end ? 1 : 0);
    text->len -= len + (end ? 1 : 0);
    if (line->len && line->ptr[line->len - 1] == '\r')
        line->len--;
    return true;
}

static bool
begins(struct cn_str line, const char *with)
{
    size_t len = strlen(with);

    return line.len >= len && memcmp(line.ptr, with, len) == 0;
}

/* Is the line the base64 of exactly `len` bytes? */
static bool
decode(struct cn_str line, unsigned char *out, size_t len)
{
    size_t got = 0;

    return sodium_base642bin(out, len, line.ptr, line.len, NULL, &got, NULL,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           got == len;
}

static void
put_base64(struct cn_buf *out, const unsigned char *bytes, size_t len)
{
    char text[sodium_base64_ENCODED_LEN(SECRET_RAW, sodium_base64_VARIANT_ORIGINAL)];

    cn_buf_printf(out, "%s\n",
                  sodium_bin2base64(text, sizeof text, bytes, len, sodium_base64_VARIANT_ORIGINAL));
    sodium_memzero(text, sizeof text);
}

/* --- public keys */

int
cn_sign_publics_parse(const char *name, struct cn_str text, struct cn_sign_publics *out,
                      struct cn_error *err)
{
    unsigned char raw[PUBLIC_RAW];
    struct cn_str line;
    unsigned at = 0;

    out->n = 0;
    while (take_line(&text, &line)) {
        at++;
        if (line.len == 0 || line.ptr[0] == '#' || begins(line, UNTRUSTED))
            continue;
        if (!decode(line, raw, sizeof raw) || memcmp(raw, "Ed", 2) != 0)
            return cn_fail(err, CN_E_CONFIG,
                           "%s, line %u: this is not a public key of minisign; one is a line of "
                           "base64, such as continuo-archiver keygen writes into its public key "
                           "file",
                           name, at);
        if (out->n == CN_SIGN_KEYS_MAX)
            return cn_fail(err, CN_E_CONFIG, "%s has more than %d public keys", name,
                           CN_SIGN_KEYS_MAX);
        memcpy(out->keys[out->n].id, raw + 2, CN_SIGN_ID_BYTES);
        memcpy(out->keys[out->n++].key, raw + 2 + CN_SIGN_ID_BYTES, CN_SIGN_PUBLIC_BYTES);
    }
    return out->n ? 0 : cn_fail(err, CN_E_CONFIG, "%s has no public key", name);
}

void
cn_sign_public_print(const struct cn_sign_public *key, struct cn_buf *out)
{
    unsigned char raw[PUBLIC_RAW] = {'E', 'd'};
    char id[CN_SIGN_ID_TEXT];

    memcpy(raw + 2, key->id, CN_SIGN_ID_BYTES);
    memcpy(raw + 2 + CN_SIGN_ID_BYTES, key->key, CN_SIGN_PUBLIC_BYTES);
    cn_buf_printf(out, UNTRUSTED " minisign public key %s\n", cn_sign_id_text(key->id, id));
    put_base64(out, raw, sizeof raw);
}

/* --- signatures */

/* The comment goes to the log and to terminals, which obey control characters. */
bool
cn_sign_is_comment(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (((unsigned char)text.ptr[i] < ' ' && text.ptr[i] != '\t') || text.ptr[i] == 0x7f)
            return false;
    return text.len <= CN_SIGN_COMMENT_MAX;
}

int
cn_signature_parse(const char *name, struct cn_str text, struct cn_signature *out,
                   struct cn_error *err)
{
    unsigned char raw[SIGNATURE_RAW];
    struct cn_str line;
    bool good = take_line(&text, &line) && begins(line, UNTRUSTED) && take_line(&text, &line) &&
                decode(line, raw, sizeof raw) && raw[0] == 'E' && (raw[1] == 'D' || raw[1] == 'd');

    if (good && raw[1] == 'd')
        return cn_fail(err, CN_E_CONFIG,
                       "%s has the old form of minisign's signatures, which signs the whole file "
                       "and not its hash: sign the archive again, without minisign's option -l",
                       name);
    if (good) {
        memcpy(out->id, raw + 2, CN_SIGN_ID_BYTES);
        memcpy(out->signature, raw + 2 + CN_SIGN_ID_BYTES, CN_SIGN_BYTES);
        good = take_line(&text, &out->comment) && begins(out->comment, TRUSTED);
    }
    if (good) {
        out->comment.ptr += strlen(TRUSTED);
        out->comment.len -= strlen(TRUSTED);
        good = cn_sign_is_comment(out->comment) && take_line(&text, &line) &&
               decode(line, out->global, CN_SIGN_BYTES);
    }
    if (!good || text.len)
        return cn_fail(err, CN_E_CONFIG,
                       "%s is not a signature of minisign: it must have four lines, an untrusted "
                       "comment, the signature, a trusted comment, and the signature of both",
                       name);
    return 0;
}

void
cn_signature_print(const struct cn_signature *signature, struct cn_buf *out)
{
    unsigned char raw[SIGNATURE_RAW] = {'E', 'D'};

    memcpy(raw + 2, signature->id, CN_SIGN_ID_BYTES);
    memcpy(raw + 2 + CN_SIGN_ID_BYTES, signature->signature, CN_SIGN_BYTES);
    cn_buf_puts(out, UNTRUSTED " signature of continuo-archiver\n");
    put_base64(out, raw, sizeof raw);
    cn_buf_printf(out, TRUSTED "%.*s\n", CN_STR_ARG(signature->comment));
    put_base64(out, signature->global, CN_SIGN_BYTES);
}

/* --- secret keys */

static void
checksum(const unsigned char sealed[SECRET_SEALED], unsigned char out[CHECK_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, CHECK_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)"Ed", 2);
    crypto_generichash_update(&state, sealed, CN_SIGN_ID_BYTES + CN_SIGN_SECRET_BYTES);
    crypto_generichash_final(&state, out, CHECK_BYTES);
}

/* Encrypts or decrypts the sealed part of a key with what `raw` says. -1: no memory. */
static int
seal(unsigned char raw[SECRET_RAW], const char *password)
{
    unsigned char stream[SECRET_SEALED];

    if (crypto_pwhash_scryptsalsa208sha256(stream, sizeof stream, password, strlen(password),
                                           raw + 6, load_u64(raw + 6 + SALT_BYTES),
                                           (size_t)load_u64(raw + 6 + SALT_BYTES + 8)) < 0)
        return -1;
    for (size_t i = 0; i < sizeof stream; i++)
        raw[SECRET_PLAIN + i] ^= stream[i];
    sodium_memzero(stream, sizeof stream);
    return 0;
}

static int
unseal(const char *name, unsigned char raw[SECRET_RAW], const char *password, struct cn_error *err)
{
    unsigned char check[CHECK_BYTES];

    if (load_u64(raw + 6 + SALT_BYTES) > OPSLIMIT_MAX ||
        load_u64(raw + 6 + SALT_BYTES + 8) > MEMLIMIT_MAX)
        return cn_fail(err, CN_E_CONFIG,
                       "%s asks for more work than a secret key of minisign does (%" PRIu64
                       " operations and %" PRIu64 " bytes of memory)",
                       name, load_u64(raw + 6 + SALT_BYTES), load_u64(raw + 6 + SALT_BYTES + 8));
    if (seal(raw, password) < 0)
        return cn_fail(err, CN_E_OUT_OF_MEMORY,
                       "%s needs %" PRIu64 " bytes of memory to be decrypted, which are not there",
                       name, load_u64(raw + 6 + SALT_BYTES + 8));
    checksum(raw + SECRET_PLAIN, check);
    if (sodium_memcmp(check, raw + SECRET_RAW - CHECK_BYTES, CHECK_BYTES) != 0)
        return cn_fail(err, CN_E_CONFIG, "%s: wrong password", name);
    return 0;
}

int
cn_sign_secret_parse(const char *name, struct cn_str text, const char *password,
                     struct cn_sign_secret *out, struct cn_error *err)
{
    unsigned char raw[SECRET_RAW];
    struct cn_str line;
    int rc = 0;

    if (!take_line(&text, &line) || !begins(line, UNTRUSTED) || !take_line(&text, &line) ||
        !decode(line, raw, sizeof raw) || text.len || memcmp(raw, "Ed", 2) != 0 ||
        memcmp(raw + 4, "B2", 2) != 0 ||
        (memcmp(raw + 2, "Sc", 2) != 0 && memcmp(raw + 2, "\0\0", 2) != 0))
        rc = cn_fail(err, CN_E_CONFIG, "%s is not a secret key of minisign", name);
    else if (raw[2] == 'S' && !password)
        rc = CN_SIGN_NEEDS_PASSWORD;
    else if (raw[2] == 'S')
        rc = unseal(name, raw, password, err);
    if (rc == 0) {
        memcpy(out->id, raw + SECRET_PLAIN, CN_SIGN_ID_BYTES);
        memcpy(out->key, raw + SECRET_PLAIN + CN_SIGN_ID_BYTES, CN_SIGN_SECRET_BYTES);
    }
    sodium_memzero(raw, sizeof raw);
    return rc;
}

int
cn_sign_secret_print(const struct cn_sign_secret *secret, const char *password, struct cn_buf *out,
                     struct cn_error *err)
{
    unsigned char raw[SECRET_RAW] = {'E', 'd', 0, 0, 'B', '2'};
    int rc = 0;

    memcpy(raw + SECRET_PLAIN, secret->id, CN_SIGN_ID_BYTES);
    memcpy(raw + SECRET_PLAIN + CN_SIGN_ID_BYTES, secret->key, CN_SIGN_SECRET_BYTES);
    if (password) {
        memcpy(raw + 2, "Sc", 2);
        randombytes_buf(raw + 6, SALT_BYTES);
        store_u64(raw + 6 + SALT_BYTES, OUR_OPSLIMIT);
        store_u64(raw + 6 + SALT_BYTES + 8, OUR_MEMLIMIT);
        checksum(raw + SECRET_PLAIN, raw + SECRET_RAW - CHECK_BYTES);
        if (seal(raw, password) < 0)
            rc = cn_fail(err, CN_E_OUT_OF_MEMORY,
                         "the secret key cannot be encrypted: that needs %" PRIu64
                         " bytes of memory",
                         OUR_MEMLIMIT);
    }
    if (rc == 0) {
        cn_buf_printf(out, UNTRUSTED " minisign %s secret key\n",
                      password ? "encrypted" : "unencrypted");
        put_base64(out, raw, sizeof raw);
    }
    sodium_memzero(raw, sizeof raw);
    return rc;
}
