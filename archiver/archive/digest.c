/* archiver/archive/digest.c - SHA-256 of a file, read block by block. Any thread. */
#include "archiver/archive/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

int
cn_digest_file(const char *path, int follow, char hex[65], uint64_t *bytes, struct cn_error *err)
{
    unsigned char block[65536], sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state hash;
    struct stat st;
    uint64_t total = 0;
    ssize_t got;
    /* With O_NONBLOCK, opening a FIFO does not wait for a writer. */
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is not a regular file", path);
        goto close_file;
    }
    crypto_hash_sha256_init(&hash);
    while ((got = read(fd, block, sizeof(block))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", path);
            goto close_file;
        }
        crypto_hash_sha256_update(&hash, block, (unsigned long long)got);
        total += (uint64_t)got;
    }
    crypto_hash_sha256_final(&hash, sum);
    sodium_bin2hex(hex, 65, sum, sizeof(sum));
    if (bytes != NULL)
        *bytes = total;
close_file:
    close(fd);
    return rc;
}
