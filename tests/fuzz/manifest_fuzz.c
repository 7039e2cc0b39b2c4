/* cn_fuzz: core archiver */
/* tests/fuzz/manifest_fuzz.c - a manifest that was read is printed as a manifest with the same
 * content, and names no path outside the archive. */
#include <string.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/manifest.h"
#include "core/errors/panic.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};
    struct cn_manifest manifest, again;
    struct cn_buf one, two;
    struct cn_error err = {0};

    if (cn_manifest_parse("fuzz", text, &manifest, &err) != 0) {
        cn_assert(err.code == CN_E_INVALID_MODEL && strchr(err.message, '\n') == NULL);
        return 0;
    }
    cn_assert(manifest.handler == NULL || cn_archive_path_ok(manifest.handler));
    for (uint32_t i = 0; i < manifest.n_files; i++)
        cn_assert(cn_archive_path_ok(manifest.files[i].path) &&
                  strlen(manifest.files[i].sha256) == 64);
    cn_buf_init(&one, 0);
    cn_buf_init(&two, 0);
    cn_manifest_print(&manifest, &one);
    cn_assert(!one.failed);
    cn_assert(cn_manifest_parse("again", cn_buf_str(&one), &again, NULL) == 0);
    cn_manifest_print(&again, &two);
    cn_assert(cn_str_eq(cn_buf_str(&one), cn_buf_str(&two)));
    cn_buf_fini(&one);
    cn_buf_fini(&two);
    cn_manifest_fini(&manifest);
    cn_manifest_fini(&again);
    return 0;
}
