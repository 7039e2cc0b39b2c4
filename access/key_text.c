/* access/key_text.c - a key as its client sends it. Any thread, no state.
 *
 * Only texts of the form that cn_key_text_make() writes are hashed. So a password that somebody has
 * hashed into the file by hand cannot be a key: the fast hash is safe only for random keys. */
#include "access/key_text.h"

#include <sodium.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/system/random.h"

#define RANDOM_BYTES 32

void
cn_key_text_make(char out[CN_KEY_TEXT_MAX])
{
    const size_t before = sizeof(CN_KEY_TEXT_PREFIX) - 1;
    unsigned char bytes[RANDOM_BYTES];

    cn_random_bytes(bytes, sizeof bytes);
    memcpy(out, CN_KEY_TEXT_PREFIX, before);
    sodium_bin2base64(out + before, CN_KEY_TEXT_MAX - before, bytes, sizeof bytes,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(bytes, sizeof bytes);
    cn_assert(strlen(out) == CN_KEY_TEXT_LEN);
}

bool
cn_key_text_hash(struct cn_str text, unsigned char hash[CN_KEY_HASH_BYTES])
{
    if (text.len != CN_KEY_TEXT_LEN || !cn_str_begins(text, CN_STR(CN_KEY_TEXT_PREFIX)))
        return false;
    return crypto_generichash(hash, CN_KEY_HASH_BYTES, (const unsigned char *)text.ptr, text.len,
                              NULL, 0) == 0;
}

struct cn_str
cn_key_text_of_bearer(struct cn_str authorization)
{
    const struct cn_str bearer = CN_STR("bearer");
    struct cn_str key = authorization;

    if (!cn_str_begins_nocase(key, bearer) || key.len == bearer.len ||
        (key.ptr[bearer.len] != ' ' && key.ptr[bearer.len] != '\t'))
        return (struct cn_str){NULL, 0};
    key.ptr += bearer.len;
    key.len -= bearer.len;
    while (key.len > 0 && (*key.ptr == ' ' || *key.ptr == '\t')) {
        key.ptr++;
        key.len--;
    }
    return key;
}
