/* archiver/sign/sign.h - signs archives and verifies them. Blocks on the disk: file thread, or the
 * archiver program. */
#ifndef CN_ARCHIVER_SIGN_SIGN_H
#define CN_ARCHIVER_SIGN_SIGN_H

#include <stdint.h>

#include "archiver/sign/minisign.h"

/* Writes the signature of the file `path` to `path`.minisig. `comment` NULL: the time and the
 * file's name, as minisign writes them. */
int cn_sign_file(const struct cn_sign_secret *secret, const char *path, const char *comment,
                 struct cn_error *err);

/* Reads the file of trusted keys. CN_E_CONFIG: it cannot be read, or is wrong. */
int cn_sign_trusted_read(const char *path, struct cn_sign_publics *out, struct cn_error *err);

/* Copies the archive that is open as `fd` into a file without a name in the folder `dir`, and
 * verifies the signature of the copy, which nobody else can change. `path` is the archive's name:
 * its signature is `path`.minisig. Returns the copy's descriptor in *copy. `trusted_keys` names the
 * file of trusted keys, which is read each time, so that a key can be withdrawn while the server
 * runs. CN_E_UNTRUSTED: there is no signature, or none of a trusted key, or the archive was
 * altered. */
int cn_sign_verified_copy(const char *trusted_keys, const char *path, int fd, const char *dir,
                          uint64_t max_bytes, int *copy, struct cn_error *err);

/* Reads a small file of keys or signatures whole; free *text with cn_free(). CN_E_NOT_FOUND,
 * CN_E_IO, or CN_E_CONFIG if it is larger than CN_SIGN_FILE_BYTES_MAX. */
int cn_sign_read_file(const char *path, struct cn_str *text, struct cn_error *err);

#endif
