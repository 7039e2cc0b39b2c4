/* archiver/sign/sign.c - signs archives and verifies them. File thread, or the archiver program.
 *
 * Whoever can write to the model store could change an archive after its signature was verified and
 * before it is unpacked. So an archive is verified while it is copied to where nobody else can
 * write, and the copy is what is unpacked.
 *
 * The files of minisign are used as they are, so an archive can also be signed and verified with
 * that program. The key's id in a signature only finds the key; it proves nothing, since anyone can
 * write it there. */
#include "archiver/sign/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"

#define BLOCK_BYTES 65536

int
cn_sign_read_file(const char *path, struct cn_str *text, struct cn_error *err)
{
    char *bytes = cn_alloc(CN_SIGN_FILE_BYTES_MAX + 1);
    /* With O_NONBLOCK, opening a FIFO does not wait for a writer. */
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t len = 0;
    ssize_t got = 1;

    while (fd >= 0 && got > 0 && len <= CN_SIGN_FILE_BYTES_MAX) {
        got = read(fd, bytes + len, CN_SIGN_FILE_BYTES_MAX + 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    if (fd < 0 || got < 0)
        rc = cn_fail_sys(err, errno == ENOENT ? CN_E_NOT_FOUND : CN_E_IO, errno, "cannot read %s",
                         path);
    else if (len > CN_SIGN_FILE_BYTES_MAX)
        rc = cn_fail(err, CN_E_CONFIG, "%s is larger than %d bytes", path, CN_SIGN_FILE_BYTES_MAX);
    if (fd >= 0)
        close(fd);
    if (rc != 0) {
        cn_free(bytes);
        return rc;
    }
    *text = (struct cn_str){bytes, len};
    return 0;
}

/* Reads `fd` to its end and hashes it; copies the bytes to `copy`, unless that is -1. */
static int
hash_file(const char *name, int fd, int copy, uint64_t max_bytes,
          unsigned char hash[CN_SIGN_HASH_BYTES], struct cn_error *err)
{
    unsigned char *block = cn_alloc(BLOCK_BYTES);
    crypto_generichash_state state;
    uint64_t total = 0;
    int rc = 0, error;
    ssize_t got;

    crypto_generichash_init(&state, NULL, 0, CN_SIGN_HASH_BYTES);
    while (rc == 0 && (got = read(fd, block, BLOCK_BYTES)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", name);
            break;
        }
        total += (uint64_t)got;
        crypto_generichash_update(&state, block, (unsigned long long)got);
        if (total > max_bytes)
            rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is larger than %" PRIu64 " bytes", name,
                         max_bytes);
        else if (copy >= 0 && (error = cn_write_all(copy, block, (size_t)got)) != 0)
            rc = cn_fail_sys(err, CN_E_IO, error, "cannot copy %s to verify its signature", name);
    }
    crypto_generichash_final(&state, hash, CN_SIGN_HASH_BYTES);
    cn_free(block);
    return rc;
}

/* --- signing */

static void
signed_comment(const unsigned char signature[CN_SIGN_BYTES], struct cn_str comment,
               struct cn_buf *out)
{
    cn_buf_append(out, signature, CN_SIGN_BYTES);
    cn_buf_append(out, comment.ptr, comment.len);
}

static int
write_signature(const struct cn_signature *signature, const char *path, struct cn_error *err)
{
    struct cn_buf target, beside, text;
    int error;

    cn_buf_init(&target, 0);
    cn_buf_init(&beside, 0);
    cn_buf_init(&text, 0);
    cn_buf_printf(&target, "%s" CN_SIGN_ENDING "%c", path, '\0');
    cn_buf_printf(&beside, "%s" CN_SIGN_ENDING ".part%c", path, '\0');
    cn_signature_print(signature, &text);
    error = cn_write_file_atomically(target.data, beside.data, 0644, text.data, text.len);
    if (error)
        cn_fail_sys(err, CN_E_IO, error, "cannot write %s", target.data);
    cn_buf_fini(&target);
    cn_buf_fini(&beside);
    cn_buf_fini(&text);
    return error ? CN_E_IO : 0;
}

int
cn_sign_file(const struct cn_sign_secret *secret, const char *path, const char *comment,
             struct cn_error *err)
{
    struct cn_signature signature = {.comment = cn_str_from(comment)};
    unsigned char hash[CN_SIGN_HASH_BYTES];
    struct cn_buf text, usual;
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return cn_fail_sys(err, errno == ENOENT ? CN_E_NOT_FOUND : CN_E_IO, errno, "cannot read %s",
                           path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = cn_fail(err, CN_E_INVALID_MODEL,
                     "%s is not a file: only archives can be signed, so pack a folder first", path);
    else
        rc = hash_file(path, fd, -1, UINT64_MAX, hash, err);
    close(fd);
    if (rc != 0)
        return rc;
    cn_buf_init(&text, 0);
    cn_buf_init(&usual, 0);
    if (!comment) {
        cn_buf_printf(&usual, "timestamp:%lld\tfile:%s\thashed", (long long)time(NULL),
                      cn_basename(path));
        signature.comment = cn_buf_str(&usual);
    }
    if (cn_sign_is_comment(signature.comment)) {
        memcpy(signature.id, secret->id, CN_SIGN_ID_BYTES);
        crypto_sign_detached(signature.signature, NULL, hash, sizeof hash, secret->key);
        signed_comment(signature.signature, signature.comment, &text);
        crypto_sign_detached(signature.global, NULL, (const unsigned char *)text.data, text.len,
                             secret->key);
        rc = write_signature(&signature, path, err);
    } else { /* no reader would take the signature */
        rc = cn_fail(err, CN_E_CONFIG,
                     "the trusted comment%s must have at most %d bytes and no control characters",
                     comment ? "" : ", which has the archive's name,", CN_SIGN_COMMENT_MAX);
    }
    cn_buf_fini(&text);
    cn_buf_fini(&usual);
    return rc;
}

/* --- verifying */

int
cn_sign_trusted_read(const char *path, struct cn_sign_publics *out, struct cn_error *err)
{
    struct cn_str text;
    struct cn_error why = {0};
    int rc = cn_sign_read_file(path, &text, &why);

    if (rc != 0)
        return cn_fail(err, CN_E_CONFIG, "trusted-keys: %s", why.message);
    rc = cn_sign_publics_parse(path, text, out, &why);
    cn_free((void *)(uintptr_t)text.ptr);
    return rc ? cn_fail(err, CN_E_CONFIG, "trusted-keys: %s", why.message) : 0;
}

static bool
is_signed_by(const struct cn_signature *signature, const struct cn_sign_public *key,
             const unsigned char hash[CN_SIGN_HASH_BYTES])
{
    struct cn_buf text;
    bool good =
        crypto_sign_verify_detached(signature->signature, hash, CN_SIGN_HASH_BYTES, key->key) == 0;

    cn_buf_init(&text, 0);
    signed_comment(signature->signature, signature->comment, &text);
    good = good && !text.failed &&
           crypto_sign_verify_detached(signature->global, (const unsigned char *)text.data,
                                       text.len, key->key) == 0;
    cn_buf_fini(&text);
    return good;
}

static int
verify(const char *path, const struct cn_signature *signature, const struct cn_sign_publics *keys,
       const unsigned char hash[CN_SIGN_HASH_BYTES], struct cn_error *err)
{
    char id[CN_SIGN_ID_TEXT], comment[600], name[600];
    bool known = false;

    cn_sign_id_text(signature->id, id);
    for (uint32_t i = 0; i < keys->n; i++) {
        if (memcmp(keys->keys[i].id, signature->id, CN_SIGN_ID_BYTES) != 0)
            continue;
        known = true;
        if (!is_signed_by(signature, &keys->keys[i], hash))
            continue;
        cn_log(
            CN_LOG_INFO, "event=archive_signature_verified archive=%s key=%s comment=%s",
            cn_log_quote(path, strlen(path), name, sizeof name), id,
            cn_log_quote(signature->comment.ptr, signature->comment.len, comment, sizeof comment));
        return 0;
    }
    if (!known)
        return cn_fail(err, CN_E_UNTRUSTED,
                       "%s is signed with the key %s, which is not among the trusted keys",
                       cn_basename(path), id);
    return cn_fail(err, CN_E_UNTRUSTED,
                   "%s is not what the key %s signed: the archive or its signature was altered, or "
                   "the signature belongs to another archive",
                   cn_basename(path), id);
}

/* Reads the text of the archive's signature, to be freed with cn_free(). A signature that cannot be
 * read counts as none. */
static int
read_signature(const char *path, struct cn_str *text, struct cn_error *err)
{
    struct cn_error why = {0};
    struct cn_buf name;
    int rc;

    cn_buf_init(&name, 0);
    cn_buf_printf(&name, "%s" CN_SIGN_ENDING "%c", path, '\0');
    rc = cn_sign_read_file(name.data, text, &why);
    if (rc == CN_E_NOT_FOUND)
        rc = cn_fail(err, CN_E_UNTRUSTED,
                     "%s has no signature: %s is missing; sign the archive with continuo-archiver "
                     "sign, or start the server without trusted-keys",
                     cn_basename(path), cn_basename(name.data));
    else if (rc != 0)
        rc =
            cn_fail(err, CN_E_UNTRUSTED, "the signature of %s: %s", cn_basename(path), why.message);
    cn_buf_fini(&name);
    return rc;
}

/* Opens a file without a name in `dir`. Nobody else can open it, and it is gone when it is
 * closed. */
static int
open_private(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char *path;

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    path = cn_path_join(dir, ".verify-XXXXXX"); /* a file system without such files */
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    cn_free(path);
    return fd;
}

int
cn_sign_verified_copy(const char *trusted_keys, const char *path, int fd, const char *dir,
                      uint64_t max_bytes, int *copy, struct cn_error *err)
{
    unsigned char hash[CN_SIGN_HASH_BYTES];
    struct cn_sign_publics *keys = cn_alloc(sizeof *keys);
    struct cn_signature signature;
    struct cn_str text = {0};
    struct cn_error why = {0};
    int rc = cn_sign_trusted_read(trusted_keys, keys, err);

    *copy = -1;
    if (rc == 0)
        rc = read_signature(path, &text, err);
    if (rc == 0 && cn_signature_parse(cn_basename(path), text, &signature, &why) != 0)
        rc = cn_fail(err, CN_E_UNTRUSTED, "the signature of %s", why.message);
    if (rc == 0 && (*copy = open_private(dir)) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make a file in %s to verify %s", dir, path);
    if (rc == 0)
        rc = hash_file(path, fd, *copy, max_bytes, hash, err);
    if (rc == 0)
        rc = verify(path, &signature, keys, hash, err);
    if (rc != 0 && *copy >= 0) {
        close(*copy);
        *copy = -1;
    }
    cn_free((void *)(uintptr_t)text.ptr);
    cn_free(keys);
    return rc;
}
