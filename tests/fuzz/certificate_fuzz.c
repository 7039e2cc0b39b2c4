/* cn_fuzz: core access access/certificate */
/* tests/fuzz/certificate_fuzz.c - any bytes as the certificate of a client. Each name that it has
 * is one that a key can have, and what messages call it is one printable line. */
#include <string.h>

#include "access/certificate/certificate.h"
#include "access/certificate_name.h"
#include "core/errors/panic.h"
#include "core/text/utf8.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cn_certificate *certificate;
    struct cn_error err = {0};
    struct cn_arena arena;
    struct cn_str again;

    if (cn_certificate_read((struct cn_str){(const char *)bytes, len}, false, &certificate, &err)) {
        cn_assert((err.code == CN_E_CERTIFICATE || err.code == CN_E_OUT_OF_MEMORY) &&
                  cn_utf8_is_printable(cn_str_from(err.message)));
        return 0;
    }
    cn_assert(certificate->n_names <= CN_CERTIFICATE_NAMES &&
              cn_utf8_is_printable(cn_str_from(certificate->shown)));
    cn_arena_init(&arena);
    for (uint32_t i = 0; i < certificate->n_names; i++)
        cn_assert(cn_certificate_name_read(certificate->names[i], &arena, &again) &&
                  cn_str_eq(again, certificate->names[i]));
    cn_arena_fini(&arena);
    cn_certificate_destroy(certificate);
    return 0;
}
