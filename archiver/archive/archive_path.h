/* archiver/archive/archive_path.h - checks names inside an archive, which come from outside. Any
 * thread. */
#ifndef CN_ARCHIVER_ARCHIVE_ARCHIVE_PATH_H
#define CN_ARCHIVER_ARCHIVE_ARCHIVE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define CN_ARCHIVE_PATH_MAX 1024
#define CN_ARCHIVE_DEPTH_MAX 32

/* Writes the plain form of `path` ("./a//b/" -> "a/b"; "." -> "") to `out` and returns NULL, or
 * says why the path is refused: "is an absolute path", "leads out of the archive" ... */
const char *cn_archive_path_clean(const char *path, char out[CN_ARCHIVE_PATH_MAX]);

/* Returns whether `path` is already in its plain form, and not empty. */
bool cn_archive_path_ok(const char *path);

/* Returns the part behind the last slash, which is borrowed from `path`. */
const char *cn_basename(const char *path);
bool cn_has_suffix(const char *text, const char *suffix);
/* Returns "<a>/<b>", to be freed with cn_free(). */
char *cn_path_join(const char *a, const char *b);

#endif
