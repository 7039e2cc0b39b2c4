/* config/server/address.c - reads an address such as "http://127.0.0.1:8080". Any thread. */
#include <errno.h>
#include <stdlib.h>
#include <sys/un.h>

#include "config/server/server_config.h"

static int
bad_address(const char *text, const char *why, struct cn_error *err)
{
    char shown[CN_YAML_SHOWN_MAX];

    return cn_fail(
        err, CN_E_CONFIG,
        "the address \"%s\" %s; write http://HOST:PORT, http://[IPV6]:PORT or unix:/PATH",
        cn_yaml_shown(cn_str_from(text), shown), why);
}

static int
parse_unix(const char *text, const char *path, struct cn_address *out, struct cn_error *err)
{
    if (path[0] != '/')
        return bad_address(text, "has no absolute path", err);
    /* The limit is the kernel's: sun_path with its NUL. */
    if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return bad_address(text, "has a path over 107 bytes", err);
    out->is_unix = true;
    strcpy(out->host, path);
    return 0;
}

/* Reads a port: digits only, to the end of the text. */
static int
parse_port(const char *digits, uint16_t *port)
{
    unsigned long value = 0;

    if (digits[0] == '\0' || strlen(digits) > 5 || digits[strspn(digits, "0123456789")] != '\0')
        return -1;
    value = strtoul(digits, NULL, 10);
    if (value > UINT16_MAX)
        return -1;
    *port = (uint16_t)value;
    return 0;
}

/* Hosts are checked by their characters only; resolving a name is left to the code that listens. An
 * IPv6 address is in brackets, because it contains colons. */
int
cn_address_parse(const char *text, uint16_t default_port, struct cn_address *out,
                 struct cn_error *err)
{
    static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789.-_";
    static const char ipv6_chars[] = "0123456789abcdefABCDEF:.%";
    struct cn_address address = {.port = default_port};
    const char *host, *end;
    size_t len;

    if (strncmp(text, "unix:", 5) == 0) {
        int rc = parse_unix(text, text + 5, &address, err);
        if (rc == 0)
            *out = address;
        return rc;
    }
    if (strncmp(text, "http://", 7) == 0) {
        host = text + 7;
    } else if (strncmp(text, "https://", 8) == 0) {
        host = text + 8;
        address.is_https = true;
    } else {
        return bad_address(text, "has no scheme", err);
    }
    if (host[0] == '[') {
        host++;
        len = strspn(host, ipv6_chars);
        end = host + len;
        if (*end != ']')
            return bad_address(text, "has a malformed IPv6 host", err);
        end++;
    } else {
        len = strspn(host, name_chars);
        end = host + len;
    }
    if (len == 0 || len >= sizeof(address.host))
        return bad_address(text, "has no valid host", err);
    if (*end == ':') {
        if (parse_port(end + 1, &address.port) != 0)
            return bad_address(text, "has no port from 0 to 65535", err);
    } else if (*end != '\0') {
        return bad_address(text, "has a character that is not allowed in a host or port", err);
    }
    memcpy(address.host, host, len);
    address.host[len] = '\0';
    *out = address;
    return 0;
}

bool
cn_address_is_loopback(const struct cn_address *address)
{
    const bool is_number = address->host[strspn(address->host, "0123456789.")] == '\0';

    return address->is_unix || (is_number && strncmp(address->host, "127.", 4) == 0) ||
           strcmp(address->host, "::1") == 0 || strcmp(address->host, "localhost") == 0;
}
