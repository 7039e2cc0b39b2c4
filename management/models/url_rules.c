/* management/models/url_rules.c - from which URLs models may come. Immutable once made; any thread.
 *
 * Without rules of the operator, a URL is allowed if it leads to a public address. The address is
 * checked when the connection is made (download.c), because a name may resolve to anything. With
 * rules a URL must match one of them as a whole, and then it may lead anywhere, since the operator
 * named it.
 */
#include "management/models/url_rules.h"

#include <netinet/in.h>
#include <regex.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define PATTERNS_MAX 64

struct cn_url_rules {
    bool are_set;
    unsigned n;
    regex_t patterns[PATTERNS_MAX];
};

static int
add_pattern(struct cn_url_rules *rules, struct cn_str pattern, struct cn_error *err)
{
    struct cn_buf whole;
    char why[200];
    int rc;

    if (rules->n == PATTERNS_MAX)
        return cn_fail(err, CN_E_CONFIG, "allowed-urls has more than %d patterns", PATTERNS_MAX);
    cn_buf_init(&whole, 0);
    cn_buf_printf(&whole, "^(%.*s)$", CN_STR_ARG(pattern));
    cn_buf_append(&whole, "", 1);
    rc = regcomp(&rules->patterns[rules->n], whole.data, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    cn_buf_fini(&whole);
    if (rc) {
        regerror(rc, &rules->patterns[rules->n], why, sizeof why);
        return cn_fail(err, CN_E_CONFIG,
                       "allowed-urls: \"%.*s\" is not a valid regular expression: %s",
                       CN_STR_ARG(pattern), why);
    }
    rules->n++;
    return 0;
}

int
cn_url_rules_create(const char *patterns, struct cn_url_rules **out, struct cn_error *err)
{
    struct cn_url_rules *rules = cn_alloc(sizeof *rules);
    const char *at = patterns, *end;
    int rc = 0;

    rules->are_set = patterns != NULL;
    while (!rc && at && *at) {
        end = strchrnul(at, ',');
        if (end > at)
            rc = add_pattern(rules, (struct cn_str){at, (size_t)(end - at)}, err);
        at = *end ? end + 1 : end;
    }
    if (rc) {
        cn_url_rules_destroy(rules);
        return rc;
    }
    *out = rules;
    return 0;
}

void
cn_url_rules_destroy(struct cn_url_rules *rules)
{
    unsigned i;

    if (!rules)
        return;
    for (i = 0; i < rules->n; i++)
        regfree(&rules->patterns[i]);
    cn_free(rules);
}

bool
cn_url_rules_allow(const struct cn_url_rules *rules, const char *url)
{
    unsigned i;

    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0 &&
        strncasecmp(url, "file://", 7) != 0)
        return false;
    for (i = 0; i < rules->n; i++)
        if (regexec(&rules->patterns[i], url, 0, NULL, 0) == 0)
            return true;
    return !rules->are_set;
}

bool
cn_url_rules_are_set(const struct cn_url_rules *rules)
{
    return rules->are_set;
}

/* Is the address not reachable from the whole internet? From IANA's special-purpose address
 * registries for IPv4 and IPv6. */
static bool
is_private_v4(uint32_t address)
{
    static const struct {
        uint32_t net;
        unsigned bits;
    } nets[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* carrier's NAT */
        {0x7f000000, 8},  /* this machine */
        {0xa9fe0000, 16}, /* this link; metadata services of clouds */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* for protocols */
        {0xc0000200, 24}, /* documentation */
        {0xc0586300, 24}, /* 6to4 relays */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 3},  /* multicast, reserved, broadcast */
    };
    size_t i;

    for (i = 0; i < sizeof nets / sizeof *nets; i++)
        if ((address ^ nets[i].net) >> (32 - nets[i].bits) == 0)
            return true;
    return false;
}

static uint32_t
v4_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Only 2000::/3 is globally reachable. Some addresses in it and beside it lead to an IPv4
 * address. */
static bool
is_private_v6(const uint8_t *bytes)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};

    if (memcmp(bytes, mapped, sizeof mapped) == 0 || memcmp(bytes, nat64, sizeof nat64) == 0)
        return is_private_v4(v4_at(bytes + 12));
    if (bytes[0] == 0x20 && bytes[1] == 0x02) /* 6to4 */
        return is_private_v4(v4_at(bytes + 2));
    if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0 && bytes[3] == 0) /* Teredo */
        return true;
    if (v4_at(bytes) == 0x20010db8) /* documentation */
        return true;
    return bytes[0] >> 5 != 1;
}

bool
cn_address_is_private(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_private_v4(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return is_private_v6(
            ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    return true;
}
