/* cn_fuzz: core management */
/* Whatever an archive's requirements file holds, the paths in it lie in its text and are not
 * empty. */
#include <string.h>

#include "core/errors/panic.h"
#include "management/environments/requirements_scan.h"
#include "tests/fuzz/fuzz.h"

static void
on_path(void *ctx, enum cn_requirement_kind kind, struct cn_str path)
{
    const struct cn_str *text = ctx;

    cn_assert(kind == CN_REQUIREMENT_FILE || kind == CN_REQUIREMENT_PATH);
    cn_assert(path.len > 0 && path.ptr >= text->ptr &&
              path.ptr + path.len <= text->ptr + text->len);
    cn_assert(!memchr(path.ptr, '\0', path.len) && !memchr(path.ptr, '\n', path.len));
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};

    cn_requirements_scan(text, on_path, &text);
    return 0;
}
