/* archiver/archive/archive_path.c - which paths inside an archive are allowed. Any thread.
 *
 * An archive names where each of its files is to be written, and may come from anybody. A path like
 * "../../etc/passwd" or "/etc/passwd" would lead out of the model's folder. cn_archive_path_clean
 * makes a path plain (no "." and no empty parts) or says what is wrong with it: absolute, with
 * "..", too long, too deep, with control characters or backslashes, or not UTF-8. The manifest must
 * already have plain paths (cn_archive_path_ok), since its paths are compared with those of the
 * archive byte by byte. */
#include "archiver/archive/archive_path.h"

#include <string.h>

#include "core/memory/mem.h"
#include "core/text/utf8.h"

/* Names become JSON, which must be UTF-8. */
static const char *
check_characters(const char *path)
{
    size_t left = strlen(path), len;

    for (const char *c = path; left > 0; c += len, left -= len) {
        len = cn_utf8_length(c, left);
        if (len == 0)
            return "is not UTF-8";
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "has a control character in its name";
        if (*c == '\\')
            return "has a backslash in its name";
    }
    return NULL;
}

const char *
cn_archive_path_clean(const char *path, char out[CN_ARCHIVE_PATH_MAX])
{
    const char *problem = check_characters(path);
    size_t used = 0;
    unsigned depth = 0;

    out[0] = '\0';
    if (problem != NULL)
        return problem;
    if (path[0] == '/')
        return "is an absolute path";
    while (*path != '\0') {
        size_t len = strcspn(path, "/");

        if (len == 2 && path[0] == '.' && path[1] == '.')
            return "leads outside the archive";
        if (len > 0 && !(len == 1 && path[0] == '.')) {
            if (len > 255 || used + len + 2 > CN_ARCHIVE_PATH_MAX)
                return "has too long a name";
            if (++depth > CN_ARCHIVE_DEPTH_MAX)
                return "is nested in more than 32 folders";
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, path, len);
            used += len;
            out[used] = '\0';
        }
        path += len;
        path += *path == '/';
    }
    return NULL;
}

bool
cn_archive_path_ok(const char *path)
{
    char clean[CN_ARCHIVE_PATH_MAX];

    return cn_archive_path_clean(path, clean) == NULL && clean[0] != '\0' &&
           strcmp(path, clean) == 0;
}

const char *
cn_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool
cn_has_suffix(const char *text, const char *suffix)
{
    size_t len = strlen(text), end = strlen(suffix);

    return len >= end && strcmp(text + len - end, suffix) == 0;
}

char *
cn_path_join(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    char *out = cn_alloc(na + nb + 2);

    memcpy(out, a, na);
    out[na] = '/';
    memcpy(out + na + 1, b, nb + 1);
    return out;
}
