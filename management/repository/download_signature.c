/* management/repository/download_signature.c - the signature of an archive that comes from a URL.
 * Download threads. */
#include "management/repository/download_signature.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/sign/minisign.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

char *
cn_download_signature_url(const char *url)
{
    size_t path = strcspn(url, "?#");
    struct cn_buf out;

    cn_buf_init(&out, 0);
    cn_buf_printf(&out, "%.*s" CN_SIGN_ENDING "%s", (int)path, url, url + path);
    return cn_buf_take(&out, NULL);
}

static char *
with_ending(const char *path, const char *ending)
{
    struct cn_buf out;

    cn_buf_init(&out, 0);
    cn_buf_printf(&out, "%s%s", path, ending);
    return cn_buf_take(&out, NULL);
}

int
cn_download_signature(const struct cn_download *archive, const char *path, bool *away,
                      struct cn_error *err)
{
    char *url = cn_download_signature_url(archive->url);
    char *target = with_ending(path, CN_SIGN_ENDING);
    char *part = with_ending(path, CN_SIGN_ENDING ".XXXXXX");
    struct cn_download download = {.rules = archive->rules,
                                   .url = url,
                                   .trusted = archive->trusted,
                                   .max_bytes = CN_SIGN_FILE_BYTES_MAX,
                                   .timeout_ms = archive->timeout_ms,
                                   .stopping = archive->stopping};
    int rc, fd = mkostemp(part, O_CLOEXEC);
    struct cn_error why = {0};

    if (fd < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make the file %s", part);
    } else {
        rc = cn_download_into(&download, fd, &why);
        fchmod(fd, 0644);
        close(fd);
        if (rc == CN_E_DRAINING)
            cn_fail(err, rc, "%s", why.message);
        else if (rc != 0)
            rc = cn_fail(err, CN_E_UNTRUSTED,
                         "the signature of the archive, which trusted-keys requires, cannot be "
                         "downloaded: %s",
                         why.message);
        else if (rename(part, target) < 0)
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make the file %s", target);
        if (rc != 0)
            unlink(part);
    }
    *away = download.away;
    cn_free(part);
    cn_free(target);
    cn_free(url);
    return rc;
}

void
cn_download_remove(const char *path)
{
    char *signature = with_ending(path, CN_SIGN_ENDING);

    unlink(path);
    unlink(signature);
    cn_free(signature);
}
