/* management/environments/requirements_scan.h - which files a requirements file refers to.
 *
 * pip reads more than the requirements file: other requirements files and constraints (-r, -c), and
 * packages that are named by a path. All of them belong to the digest of an environment. The text
 * comes from an archive, so it may be anything. Any thread.
 */
#ifndef CN_MANAGEMENT_ENVIRONMENTS_REQUIREMENTS_SCAN_H
#define CN_MANAGEMENT_ENVIRONMENTS_REQUIREMENTS_SCAN_H

#include "core/text/str.h"

enum cn_requirement_kind {
    CN_REQUIREMENT_FILE, /* -r FILE or -c FILE: it is looked for beside the file that names it */
    CN_REQUIREMENT_PATH  /* perhaps a package's file or folder: from the folder in which pip runs */
};

/* `path` is never empty, has no NUL, and is borrowed from the text. */
typedef void (*cn_requirement_fn)(void *ctx, enum cn_requirement_kind kind, struct cn_str path);

/* Calls `fn` for each reference in the text. Addresses such as https://... are left out. */
void cn_requirements_scan(struct cn_str text, cn_requirement_fn fn, void *ctx);

#endif
