/* cn_fuzz: core proto management
 *
 * tests/fuzz/envelope_fuzz.c - exported sequences come from wherever their files have been: the
 * decoder must refuse, or return fields that encode to the very same bytes. A fuzzer can't guess
 * the checksum, so the input is also tried with one that fits.
 */
#include <sodium/crypto_generichash.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "management/api/exported_sequence.h"
#include "tests/fuzz/fuzz.h"

#define SUM_BYTES 32

static void
check(struct cn_str bytes)
{
    struct cn_exported_sequence envelope;
    struct cn_error err;
    struct cn_buf out;

    if (cn_exported_sequence_decode(bytes, &envelope, &err) != 0) {
        cn_assert(err.code == CN_E_BAD_REQUEST && err.message[0]);
        return;
    }
    cn_buf_init(&out, 0);
    cn_exported_sequence_encode(&envelope, &out);
    cn_assert(cn_str_eq(cn_buf_str(&out), bytes));
    cn_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *copy;

    check((struct cn_str){(const char *)bytes, len});
    if (len < SUM_BYTES + 20)
        return 0;
    copy = malloc(len);
    cn_assert(copy != NULL);
    memcpy(copy, bytes, len);
    for (unsigned i = 0; i < 8; i++) /* the length field is right, too */
        copy[12 + i] = (char)((uint64_t)len >> (8 * i));
    crypto_generichash((unsigned char *)copy + len - SUM_BYTES, SUM_BYTES, (unsigned char *)copy,
                       len - SUM_BYTES, NULL, 0);
    check((struct cn_str){copy, len});
    free(copy);
    return 0;
}
