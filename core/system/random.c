/* core/system/random.c - random bytes, taken from the kernel a page at a time, since ids are needed
 * often and getrandom is a system call. Each thread has its own page, so there is no lock. Bytes
 * that were given out are erased from the page. */
#include "core/system/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/errors/panic.h"

static _Thread_local struct {
    unsigned char bytes[4096];
    size_t left; /* the unused bytes are at the end */
} page;

static void
from_kernel(void *out, size_t len)
{
    unsigned char *at = out;

    while (len) {
        ssize_t n = getrandom(at, len, 0);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            cn_panic(__FILE__, __LINE__, "getrandom: %s", strerror(errno));
        }
        at += n;
        len -= (size_t)n;
    }
}

/* A request for more than a quarter of a page goes to the kernel directly. A rest of the page that
 * is too small is thrown away. */
void
cn_random_bytes(void *out, size_t len)
{
    unsigned char *from;

    if (len > sizeof(page.bytes) / 4) {
        from_kernel(out, len);
        return;
    }
    if (page.left < len) {
        from_kernel(page.bytes, sizeof(page.bytes));
        page.left = sizeof(page.bytes);
    }
    from = page.bytes + sizeof(page.bytes) - page.left;
    if (len)
        memcpy(out, from, len);
    explicit_bzero(from, len); /* what was given out cannot be found here later */
    page.left -= len;
}

void
cn_random_forget(void)
{
    explicit_bzero(&page, sizeof(page));
}

uint64_t
cn_random_u64(void)
{
    uint64_t value;

    cn_random_bytes(&value, sizeof(value));
    return value;
}

void
cn_random_uuid(char out[37])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[16];
    size_t i, at = 0;

    cn_random_bytes(raw, sizeof(raw));
    raw[6] = (unsigned char)((raw[6] & 0x0f) | 0x40); /* version 4, RFC 9562 */
    raw[8] = (unsigned char)((raw[8] & 0x3f) | 0x80); /* its variant */
    for (i = 0; i < sizeof(raw); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        out[at++] = digits[raw[i] >> 4];
        out[at++] = digits[raw[i] & 0x0f];
    }
    out[at] = '\0';
}
