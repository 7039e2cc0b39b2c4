/* management/repository/download_signature.h - the signature of an archive that comes from a URL.
 * Download threads. */
#ifndef CN_MANAGEMENT_MODELS_DOWNLOAD_SIGNATURE_H
#define CN_MANAGEMENT_MODELS_DOWNLOAD_SIGNATURE_H

#include "management/models/download.h"

/* The URL of the signature of the archive at `url`: its path ends with .minisig, too, and what
 * stands behind the path stays ("http://h/a.mar?v=1": "http://h/a.mar.minisig?v=1"). Free it with
 * cn_free(). */
char *cn_download_signature_url(const char *url);

/* Downloads the signature of the archive that was downloaded to `path` into `path`.minisig. The
 * rules and limits are those of the archive's download, which stays as it is. CN_E_UNTRUSTED: it
 * cannot be had; *away as in struct cn_download. */
int cn_download_signature(const struct cn_download *archive, const char *path, bool *away,
                          struct cn_error *err);

/* Deletes an archive that was downloaded, and its signature. */
void cn_download_remove(const char *path);

#endif
