/* core/memory/base64.c - base64 by libsodium, for the project's buffers. Any thread. */
#include "core/memory/base64.h"

#include <sodium.h>

#define VARIANT sodium_base64_VARIANT_ORIGINAL

void
cn_base64_put(struct cn_str bytes, struct cn_buf *out)
{
    const size_t room = sodium_base64_encoded_len(bytes.len, VARIANT);
    char *at = cn_buf_reserve(out, room); /* with libsodium's zero byte behind the text */

    if (!at)
        return;
    sodium_bin2base64(at, room, (const unsigned char *)bytes.ptr, bytes.len, VARIANT);
    out->len += room - 1;
}

bool
cn_base64_get(struct cn_str text, struct cn_arena *arena, struct cn_str *out)
{
    const size_t room = text.len / 4 * 3 + 1;
    unsigned char *bytes = cn_arena_try_alloc(arena, room);
    size_t len;

    if (!bytes || sodium_base642bin(bytes, room, text.ptr, text.len, NULL, &len, NULL, VARIANT))
        return false;
    *out = (struct cn_str){(const char *)bytes, len};
    return true;
}
