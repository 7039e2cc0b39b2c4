/* frontend/http/browser_checks.c - Sec-Fetch-Site, Origin and Host of requests that manage the
 * server. Any thread, no state. */
#include "frontend/http/browser_checks.h"

#include <arpa/inet.h>
#include <string.h>

#include "frontend/intake/headers.h"

#define HOST_MAX 255 /* characters of a DNS name */

static bool
ends_with_nocase(struct cn_str text, struct cn_str end)
{
    return text.len >= end.len &&
           cn_str_eq_nocase((struct cn_str){text.ptr + text.len - end.len, end.len}, end);
}

/* Is the origin "http://HOST" or "https://HOST" with the host and port of the Host header? */
static bool
is_own_origin(struct cn_str origin, struct cn_str host)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        const struct cn_str scheme = cn_str_from(schemes[i]);

        if (origin.len == scheme.len + host.len && host.len > 0 &&
            cn_str_eq_nocase((struct cn_str){origin.ptr, scheme.len}, scheme) &&
            ends_with_nocase(origin, host))
            return true;
    }
    return false;
}

int
cn_browser_check_origin(const struct cn_header *headers, uint32_t n, const char *allowed_origin,
                        struct cn_error *err)
{
    const struct cn_header *site = cn_header_find(headers, n, CN_STR("sec-fetch-site"));
    const struct cn_header *origin = cn_header_find(headers, n, CN_STR("origin"));
    const struct cn_header *host = cn_header_find(headers, n, CN_STR("host"));

    if (allowed_origin && origin &&
        (strcmp(allowed_origin, "*") == 0 || cn_str_eq(origin->value, cn_str_from(allowed_origin))))
        return 0;
    if (site &&
        (cn_str_eq(site->value, CN_STR("same-origin")) || cn_str_eq(site->value, CN_STR("none"))))
        return 0;
    if (!site && (!origin || (host && is_own_origin(origin->value, host->value))))
        return 0;
    return cn_fail(err, CN_E_FOREIGN_SITE,
                   "a page of another site (%s: %.*s) may not change anything here; to allow it, "
                   "name its origin with --cors-allowed-origin",
                   origin ? "Origin" : "Sec-Fetch-Site", (int)(origin ? origin : site)->value.len,
                   (origin ? origin : site)->value.ptr);
}

int
cn_browser_check_step(const struct cn_header *headers, uint32_t n, const char *allowed_origin,
                      struct cn_error *err)
{
    if (!cn_header_find(headers, n, CN_STR("sec-fetch-site")))
        return 0;
    return cn_browser_check_origin(headers, n, allowed_origin, err);
}

/* Returns the Host header's value without the port. An IPv6 address keeps its brackets. */
static struct cn_str
name_of(struct cn_str host)
{
    const char *colon;

    if (host.len > 0 && host.ptr[0] == '[') {
        const char *end = memchr(host.ptr, ']', host.len);

        return end ? (struct cn_str){host.ptr, (size_t)(end - host.ptr) + 1} : host;
    }
    colon = memchr(host.ptr, ':', host.len);
    return colon ? (struct cn_str){host.ptr, (size_t)(colon - host.ptr)} : host;
}

static bool
is_address(struct cn_str name)
{
    const bool has_brackets = name.len > 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']';
    unsigned char address[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN];

    if (has_brackets)
        name = (struct cn_str){name.ptr + 1, name.len - 2};
    if (name.len >= sizeof(text))
        return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    return inet_pton(has_brackets ? AF_INET6 : AF_INET, text, address) == 1;
}

static bool
is_listed(struct cn_str name, const char *allowed_hosts)
{
    const char *at = allowed_hosts;

    while (at && *at) {
        const size_t len = strcspn(at, ", ");
        const struct cn_str each = {at, len};

        if (cn_str_eq(each, CN_STR("*")) || (len > 0 && cn_str_eq_nocase(each, name)))
            return true;
        at += len + (at[len] != '\0');
    }
    return false;
}

int
cn_browser_check_host(const struct cn_header *headers, uint32_t n, const char *allowed_hosts,
                      struct cn_error *err)
{
    const struct cn_header *host = cn_header_find(headers, n, CN_STR("host"));
    struct cn_str name;

    if (!host || host->value.len == 0)
        return 0;
    name = name_of(host->value);
    if (cn_str_eq_nocase(name, CN_STR("localhost")) ||
        ends_with_nocase(name, CN_STR(".localhost")) || is_address(name) ||
        is_listed(name, allowed_hosts))
        return 0;
    return cn_fail(
        err, CN_E_FOREIGN_SITE,
        "the Host header names %.*s, which is neither an address nor localhost; if it is "
        "a name of this server, list it with --allowed-hosts",
        (int)(name.len < HOST_MAX ? name.len : HOST_MAX), name.ptr);
}

bool
cn_browser_sent(const struct cn_header *headers, uint32_t n)
{
    return cn_header_find(headers, n, CN_STR("sec-fetch-site")) ||
           cn_header_find(headers, n, CN_STR("origin"));
}
