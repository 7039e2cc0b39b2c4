/* cn_fuzz: core archiver */
/* tests/fuzz/minisign_fuzz.c - any bytes as trusted keys, as a signature and as a secret key: what
 * was read is printed with the same content. A key with a password is not decrypted, because that
 * takes a second by design. */
#include <string.h>

#include "archiver/sign/minisign.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "tests/fuzz/fuzz.h"

static void
check_publics(struct cn_str text)
{
    struct cn_sign_publics *keys = cn_alloc(sizeof *keys), *again = cn_alloc(sizeof *again);
    struct cn_error err = {0};
    struct cn_buf out;

    cn_buf_init(&out, 0);
    if (cn_sign_publics_parse("fuzz", text, keys, &err) == 0) {
        cn_assert(keys->n > 0 && keys->n <= CN_SIGN_KEYS_MAX);
        for (uint32_t i = 0; i < keys->n; i++)
            cn_sign_public_print(&keys->keys[i], &out);
        cn_assert(cn_sign_publics_parse("again", cn_buf_str(&out), again, NULL) == 0);
        cn_assert(again->n == keys->n &&
                  memcmp(again->keys, keys->keys, keys->n * sizeof *keys->keys) == 0);
    } else {
        cn_assert(err.code == CN_E_CONFIG);
    }
    cn_buf_fini(&out);
    cn_free(keys);
    cn_free(again);
}

static void
check_signature(struct cn_str text)
{
    struct cn_signature signature, again;
    struct cn_error err = {0};
    struct cn_buf out;

    cn_buf_init(&out, 0);
    if (cn_signature_parse("fuzz", text, &signature, &err) == 0) {
        cn_signature_print(&signature, &out);
        cn_assert(cn_signature_parse("again", cn_buf_str(&out), &again, NULL) == 0);
        cn_assert(memcmp(again.id, signature.id, sizeof again.id) == 0 &&
                  memcmp(again.signature, signature.signature, sizeof again.signature) == 0 &&
                  memcmp(again.global, signature.global, sizeof again.global) == 0 &&
                  cn_str_eq(again.comment, signature.comment));
    } else {
        cn_assert(err.code == CN_E_CONFIG);
    }
    cn_buf_fini(&out);
}

static void
check_secret(struct cn_str text)
{
    struct cn_sign_secret secret, again;
    struct cn_error err = {0};
    struct cn_buf out;
    int rc = cn_sign_secret_parse("fuzz", text, NULL, &secret, &err);

    cn_buf_init(&out, 0);
    if (rc == 0) {
        cn_assert(cn_sign_secret_print(&secret, NULL, &out, NULL) == 0);
        cn_assert(cn_sign_secret_parse("again", cn_buf_str(&out), NULL, &again, NULL) == 0);
        cn_assert(memcmp(&secret, &again, sizeof again) == 0);
    } else {
        cn_assert(rc == CN_SIGN_NEEDS_PASSWORD || err.code == CN_E_CONFIG);
    }
    cn_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_str text = {(const char *)bytes, len};

    check_publics(text);
    check_signature(text);
    check_secret(text);
    return 0;
}
