/* access/certificate_name.c - the names of clients' certificates. Any thread, no state. */
#include "access/certificate_name.h"

#include <sodium.h>
#include <string.h>

#include "core/text/utf8.h"

/* A key's text begins with "continuo-", so nobody can send a key whose hash is that of a name. */
#define HASHED_PREFIX "certificate "

static const char *const kinds[] = {"uri", "dns", "email", "cn"};

/* Names in certificates are ASCII, except the common name, which is any text. */
static bool
is_ascii(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] <= ' ' || (unsigned char)text.ptr[i] > '~')
            return false;
    return true;
}

static bool
is_kind(struct cn_str kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (cn_str_eq(kind, cn_str_from(kinds[i])))
            return true;
    return false;
}

static void
lower(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            text[i] = (char)(text[i] - 'A' + 'a');
}

bool
cn_certificate_name_make(struct cn_str kind, struct cn_str text, struct cn_arena *arena,
                         struct cn_str *out)
{
    const bool is_dns = cn_str_eq(kind, CN_STR("dns")), is_cn = cn_str_eq(kind, CN_STR("cn"));
    char *name;

    if (!is_kind(kind) || !text.len || kind.len + 1 + text.len > CN_CERTIFICATE_NAME_MAX)
        return false;
    if (!(is_cn ? cn_utf8_is_printable(text) : is_ascii(text)) ||
        ((is_dns || is_cn) && memchr(text.ptr, '*', text.len)))
        return false;
    name = cn_arena_alloc(arena, kind.len + 1 + text.len);
    memcpy(name, kind.ptr, kind.len);
    name[kind.len] = ':';
    memcpy(name + kind.len + 1, text.ptr, text.len);
    if (is_dns)
        lower(name, kind.len + 1 + text.len);
    *out = (struct cn_str){name, kind.len + 1 + text.len};
    return true;
}

bool
cn_certificate_name_read(struct cn_str name, struct cn_arena *arena, struct cn_str *out)
{
    const char *colon = name.len ? memchr(name.ptr, ':', name.len) : NULL;
    struct cn_str kind, text;

    if (!colon)
        return false;
    kind = (struct cn_str){name.ptr, (size_t)(colon - name.ptr)};
    text = (struct cn_str){colon + 1, name.len - kind.len - 1};
    return cn_certificate_name_make(kind, text, arena, out);
}

void
cn_certificate_name_hash(struct cn_str name, unsigned char hash[CN_KEY_HASH_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, CN_KEY_HASH_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)HASHED_PREFIX,
                              sizeof(HASHED_PREFIX) - 1);
    crypto_generichash_update(&state, (const unsigned char *)name.ptr, name.len);
    crypto_generichash_final(&state, hash, CN_KEY_HASH_BYTES);
}
