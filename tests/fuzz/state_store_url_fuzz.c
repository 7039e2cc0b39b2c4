/* cn_fuzz: core config */
/* tests/fuzz/state_store_url_fuzz.c - URLs of the shared state store, of any bytes.
 *
 * Besides memory errors: an accepted URL names a host, and its text for people does not have the
 * password; a refused one is refused with a message that does not have it either. */
#include <stdint.h>
#include <string.h>

#include "config/state_store_url.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = cn_strndup((const char *)data, size), shown[CN_STATE_STORE_SHOWN_MAX];
    struct cn_state_store_url url;
    struct cn_error err = {0};
    const char *stars;

    if (cn_state_store_url_parse((struct cn_str){(const char *)data, size}, &url, &err) != 0) {
        cn_assert(err.code == CN_E_CONFIG && err.message[0]);
    } else if (url.shared) {
        cn_assert(url.n_hosts > 0 && url.hosts[0].host[0] && url.hosts[0].port && url.prefix[0]);
        cn_state_store_url_shown(text, shown);
        stars = strstr(shown, ":***@");
        cn_assert(!url.password[0] || (stars && !strchr(stars + 5, '@')));
    }
    cn_free(text);
    return 0;
}
