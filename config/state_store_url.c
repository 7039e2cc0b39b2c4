/* config/state_store_url.c - reads the URL of the shared state store. Any thread.
 *
 *   valkey://[[user]:password@]host[:port][,host[:port]...][/prefix]
 *   valkey+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/prefix]
 *   valkey+cluster://[[user]:password@]host[:port][,host[:port]...][/prefix]
 *
 * redis:// means the same. User and password may have %XX for any byte. The hosts are those of one
 * store, a primary and its replicas; a worker uses the one that is the primary. With +sentinel they
 * are Sentinels, which know where the primary called `master` is. With +cluster they are some of
 * the nodes of a cluster, which know all others. With TLS (valkeys://, rediss://) a query may
 * follow: ?ca=FILE&certificate=FILE&key=FILE&name=NAME. No message quotes the part before the last
 * @, because a password with a typing error is still a password. */
#include "config/state_store_url.h"

#include <stdio.h>
#include <string.h>

#define FORM "valkey://[user:password@]host:port[,host:port...][/prefix]"

/* What the URL's scheme means. */
static const struct scheme {
    const char *begin;
    bool sentinel, cluster, tls;
} schemes[] = {
    {"valkey://", false, false, false},         {"redis://", false, false, false},
    {"valkeys://", false, false, true},         {"rediss://", false, false, true},
    {"valkey+sentinel://", true, false, false}, {"redis+sentinel://", true, false, false},
    {"valkeys+sentinel://", true, false, true}, {"rediss+sentinel://", true, false, true},
    {"valkey+cluster://", false, true, false},  {"redis+cluster://", false, true, false},
    {"valkeys+cluster://", false, true, true},  {"rediss+cluster://", false, true, true},
};

static bool
begins_with(struct cn_str text, const char *begin)
{
    const size_t len = strlen(begin);

    return text.len >= len && memcmp(text.ptr, begin, len) == 0;
}

/* Takes the scheme off the beginning of the text. */
static int
take_scheme(struct cn_str *text, const struct scheme **out, struct cn_error *err)
{
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        const size_t len = strlen(schemes[i].begin);

        if (!begins_with(*text, schemes[i].begin))
            continue;
        *text = (struct cn_str){text->ptr + len, text->len - len};
        *out = &schemes[i];
        return 0;
    }
    return cn_fail(err, CN_E_CONFIG,
                   "expected %s or a URL such as " FORM ", found a text that begins neither with "
                   "valkey:// nor with redis://",
                   CN_STATE_STORE_EMBEDDED);
}

/* Decodes %XX. A zero byte is refused, because the store's commands would carry it, but people
 * could not type it. */
static int
decode(struct cn_str text, const char *what, char *out, size_t max, struct cn_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < text.len; i++) {
        int c = (unsigned char)text.ptr[i], high, low;

        if (c == '%') {
            high = i + 1 < text.len ? cn_hex_digit(text.ptr[i + 1]) : -1;
            low = i + 2 < text.len ? cn_hex_digit(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return cn_fail(err, CN_E_CONFIG,
                               "the %s in the URL has a %% without two hexadecimal digits behind "
                               "it; write %%25 for the sign itself",
                               what);
            c = high * 16 + low;
            i += 2;
        }
        if (c == 0)
            return cn_fail(err, CN_E_CONFIG, "the %s in the URL has a zero byte", what);
        if (n == max)
            return cn_fail(err, CN_E_CONFIG, "the %s in the URL has more than %zu bytes", what,
                           max);
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return 0;
}

/* How much of the text is before its query. A password may have a ? in it, so the query begins
 * where the name of a parameter follows. */
static size_t
before_query(struct cn_str text)
{
    static const char *const begins[] = {"?ca=", "?certificate=", "?key=", "?name="};
    size_t len = text.len;

    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        const char *at = memmem(text.ptr, len, begins[i], strlen(begins[i]));

        len = at ? (size_t)(at - text.ptr) : len;
    }
    return len;
}

/* Takes "user:password@" off the beginning of the text. Behind it, an @ may be in the path of a
 * file. */
static int
take_login(struct cn_str *text, bool tls, struct cn_state_store_url *out, struct cn_error *err)
{
    const char *at = memrchr(text->ptr, '@', tls ? before_query(*text) : text->len), *colon;
    struct cn_str login, user, password;
    int rc;

    if (!at)
        return 0;
    login = (struct cn_str){text->ptr, (size_t)(at - text->ptr)};
    *text = (struct cn_str){at + 1, text->len - login.len - 1};
    colon = memchr(login.ptr, ':', login.len);
    if (!colon)
        return cn_fail(err, CN_E_CONFIG,
                       "the URL has something before its @, but no password; write "
                       "user:password@ or :password@");
    user = (struct cn_str){login.ptr, (size_t)(colon - login.ptr)};
    password = (struct cn_str){colon + 1, login.len - user.len - 1};
    if (password.len == 0)
        return cn_fail(err, CN_E_CONFIG, "the password in the URL is empty");
    if ((rc = decode(user, "user name", out->user, sizeof(out->user) - 1, err)) != 0)
        return rc;
    return decode(password, "password", out->password, sizeof(out->password) - 1, err);
}

static bool
is_prefix_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
}

/* Checks and copies a word of the path. */
static int
take_word(struct cn_str word, const char *what, char out[65], struct cn_error *err)
{
    bool good = word.len >= 1 && word.len <= 64;

    for (size_t i = 0; good && i < word.len; i++)
        good = is_prefix_char(word.ptr[i]);
    if (!good)
        return cn_fail(err, CN_E_CONFIG,
                       "the %s behind the hosts must have 1 to 64 letters, digits or the "
                       "characters - _ . :",
                       what);
    memcpy(out, word.ptr, word.len);
    out[word.len] = '\0';
    return 0;
}

/* Takes the prefix. A number there is what other programs understand as the number of a database,
 * so it is refused: two servers that mean different databases would share their keys. */
static int
take_prefix(struct cn_str prefix, struct cn_state_store_url *out, struct cn_error *err)
{
    bool number = true;

    if (prefix.len == 0) {
        strcpy(out->prefix, CN_STATE_STORE_PREFIX);
        return 0;
    }
    for (size_t i = 0; i < prefix.len; i++)
        number = number && prefix.ptr[i] >= '0' && prefix.ptr[i] <= '9';
    if (number)
        return cn_fail(err, CN_E_CONFIG,
                       "the number behind the hosts looks like that of a database, but Continuo "
                       "always uses database 0; to keep servers apart, use a prefix with a letter");
    return take_word(prefix, "prefix", out->prefix, err);
}

/* Takes "/prefix", or "/master/prefix" if the hosts are Sentinels, off the end of the text. */
static int
take_path(struct cn_str *text, bool sentinel, struct cn_state_store_url *out, struct cn_error *err)
{
    const char *slash = text->len ? memchr(text->ptr, '/', text->len) : NULL, *next;
    struct cn_str path = {"", 0}, master;
    int rc;

    if (slash) {
        path = (struct cn_str){slash + 1, text->len - (size_t)(slash - text->ptr) - 1};
        text->len -= path.len + 1;
    }
    if (!sentinel)
        return take_prefix(path, out, err);
    if (path.len == 0)
        return cn_fail(err, CN_E_CONFIG,
                       "the URL of Sentinels does not say which primary they watch; put its name "
                       "behind the hosts, as in valkey+sentinel://host1,host2,host3/mymaster");
    next = memchr(path.ptr, '/', path.len);
    master = (struct cn_str){path.ptr, next ? (size_t)(next - path.ptr) : path.len};
    path = next ? (struct cn_str){next + 1, path.len - master.len - 1} : (struct cn_str){"", 0};
    if ((rc = take_word(master, "name of the primary", out->master, err)) != 0)
        return rc;
    return take_prefix(path, out, err);
}

static int
take_parameter(struct cn_str text, struct cn_state_store_url *out, struct cn_error *err)
{
    const struct {
        const char *begin;
        char *value;
    } known[] = {{"ca=", out->ca},
                 {"certificate=", out->certificate},
                 {"key=", out->key},
                 {"name=", out->name}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const size_t len = strlen(known[i].begin);
        char what[32];

        if (!begins_with(text, known[i].begin))
            continue;
        snprintf(what, sizeof(what), "value of %.*s", (int)len - 1, known[i].begin);
        if (text.len == len || known[i].value[0])
            return cn_fail(err, CN_E_CONFIG, "the URL has %.*s without a value, or twice",
                           (int)len - 1, known[i].begin);
        return decode((struct cn_str){text.ptr + len, text.len - len}, what, known[i].value,
                      sizeof(out->ca) - 1, err);
    }
    return cn_fail(err, CN_E_CONFIG,
                   "after its ?, the URL may have ca=FILE, certificate=FILE, key=FILE and "
                   "name=NAME, with & between them");
}

/* Takes "?ca=...&key=..." off the end of the text. */
static int
take_query(struct cn_str *text, bool tls, struct cn_state_store_url *out, struct cn_error *err)
{
    const char *mark = text->len ? memchr(text->ptr, '?', text->len) : NULL;
    struct cn_str query;
    int rc = 0;

    if (!mark)
        return 0;
    if (!tls)
        return cn_fail(err, CN_E_CONFIG,
                       "the URL has a ?, which only URLs with TLS may have (valkeys:// or "
                       "rediss://)");
    query = (struct cn_str){mark + 1, text->len - (size_t)(mark - text->ptr) - 1};
    text->len -= query.len + 1;
    while (rc == 0) {
        const char *end = query.len ? memchr(query.ptr, '&', query.len) : NULL;
        const size_t len = end ? (size_t)(end - query.ptr) : query.len;

        rc = take_parameter((struct cn_str){query.ptr, len}, out, err);
        if (!end)
            break;
        query = (struct cn_str){end + 1, query.len - len - 1};
    }
    if (rc == 0 && !out->certificate[0] != !out->key[0])
        return cn_fail(err, CN_E_CONFIG,
                       "the URL has only one of certificate= and key=; a client certificate needs "
                       "both files");
    return rc;
}

static int
read_port(struct cn_str text, uint16_t *out, struct cn_error *err)
{
    uint32_t port = 0;

    for (size_t i = 0; i < text.len && port <= 65535; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            port = 65536;
        else
            port = port * 10 + (uint32_t)(text.ptr[i] - '0');
    }
    if (port < 1 || port > 65535)
        return cn_fail(err, CN_E_CONFIG,
                       "a port in the URL is not a number from 1 to 65535; a password needs an @ "
                       "behind it");
    *out = (uint16_t)port;
    return 0;
}

static bool
is_host_char(char c, bool in_brackets)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || (in_brackets && (c == ':' || c == '%'));
}

/* Reads "host", "host:port" or "[address]:port". */
static int
read_host(struct cn_str text, uint16_t port, struct cn_state_store_url *out, struct cn_error *err)
{
    const bool brackets = text.len > 0 && text.ptr[0] == '[';
    const char *end = text.len ? memchr(text.ptr, brackets ? ']' : ':', text.len) : NULL;
    struct cn_str host = text, rest = {NULL, 0};

    if (out->n_hosts == CN_STATE_STORE_HOSTS_MAX)
        return cn_fail(err, CN_E_CONFIG, "the URL has more than %d hosts",
                       CN_STATE_STORE_HOSTS_MAX);
    if (brackets && !end)
        return cn_fail(err, CN_E_CONFIG, "a host in the URL has a [ without a ]");
    if (end) {
        host.len = (size_t)(end - text.ptr);
        rest = (struct cn_str){end, text.len - host.len};
    }
    if (brackets) {
        host = (struct cn_str){host.ptr + 1, host.len - 1};
        rest = (struct cn_str){rest.ptr + 1, rest.len - 1};
        if (rest.len && rest.ptr[0] != ':')
            return cn_fail(err, CN_E_CONFIG,
                           "a host in the URL has something other than a port "
                           "behind its ]");
    }
    if (host.len == 0 || host.len > sizeof(out->hosts[0].host) - 1)
        return cn_fail(err, CN_E_CONFIG, "a host in the URL is empty or has more than %zu bytes",
                       sizeof(out->hosts[0].host) - 1);
    for (size_t i = 0; i < host.len; i++)
        if (!is_host_char(host.ptr[i], brackets))
            return cn_fail(err, CN_E_CONFIG,
                           "the host of the URL may have letters, digits and the characters - _ . "
                           "only; in a user name or password write %%40 for @ and %%2F for /");
    memcpy(out->hosts[out->n_hosts].host, host.ptr, host.len);
    out->hosts[out->n_hosts].host[host.len] = '\0';
    out->hosts[out->n_hosts].port = port;
    out->n_hosts++;
    if (rest.len == 0)
        return 0;
    return read_port((struct cn_str){rest.ptr + 1, rest.len - 1},
                     &out->hosts[out->n_hosts - 1].port, err);
}

static int
read_hosts(struct cn_str text, uint16_t port, struct cn_state_store_url *out, struct cn_error *err)
{
    int rc = 0;

    for (;;) {
        const char *comma = text.len ? memchr(text.ptr, ',', text.len) : NULL;
        const size_t len = comma ? (size_t)(comma - text.ptr) : text.len;

        if ((rc = read_host((struct cn_str){text.ptr, len}, port, out, err)) != 0 || !comma)
            return rc;
        text = (struct cn_str){comma + 1, text.len - len - 1};
    }
}

int
cn_state_store_url_parse(struct cn_str text, struct cn_state_store_url *out, struct cn_error *err)
{
    const struct scheme *scheme = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    if (text.len == 0 || cn_str_eq(text, cn_str_from(CN_STATE_STORE_EMBEDDED)))
        return 0;
    if (text.len > CN_STATE_STORE_URL_MAX)
        return cn_fail(err, CN_E_CONFIG, "the URL of the state store has more than %d bytes",
                       CN_STATE_STORE_URL_MAX);
    if (memchr(text.ptr, '\0', text.len))
        return cn_fail(err, CN_E_CONFIG, "the URL of the state store has a zero byte");
    if ((rc = take_scheme(&text, &scheme, err)) != 0 ||
        (rc = take_login(&text, scheme->tls, out, err)) != 0 ||
        (rc = take_query(&text, scheme->tls, out, err)) != 0 ||
        (rc = take_path(&text, scheme->sentinel, out, err)) != 0 ||
        (rc =
             read_hosts(text, scheme->sentinel ? CN_STATE_STORE_SENTINEL_PORT : CN_STATE_STORE_PORT,
                        out, err)) != 0)
        return rc;
    out->tls = scheme->tls;
    out->cluster = scheme->cluster;
    out->shared = true;
    return 0;
}

int
cn_state_store_text_set(struct cn_state_store_text *out, struct cn_str text, struct cn_error *err)
{
    struct cn_state_store_url url;
    int rc = cn_state_store_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    out->url[0] = '\0';
    if (url.shared) {
        memcpy(out->url, text.ptr, text.len);
        out->url[text.len] = '\0';
    }
    return 0;
}

const char *
cn_state_store_url_shown(const char *text, char out[CN_STATE_STORE_SHOWN_MAX])
{
    const char *host = strrchr(text, '@'), *login = strstr(text, "://");
    const char *colon = host && login ? strchr(login + 3, ':') : NULL;

    if (colon && colon < host)
        snprintf(out, CN_STATE_STORE_SHOWN_MAX, "%.*s:***%s", (int)(colon - text), text, host);
    else
        snprintf(out, CN_STATE_STORE_SHOWN_MAX, "%s", host ? host + 1 : text);
    return out;
}
