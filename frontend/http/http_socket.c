/* frontend/http/http_socket.c - binds TCP ports and unix sockets. At start, on the main thread.
 *
 * An interface that runs on several loops has one socket per loop at the same port. With
 * SO_REUSEPORT the kernel spreads connections over them, without a lock between the loops. But with
 * that flag bind() also succeeds if another server of the same user has the port, and the two would
 * share its clients without a word. So cn_http_socket_probe() first binds and listens once without
 * the flag, which fails if anybody listens there.
 */
#include "frontend/http/http_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

void
cn_http_address_format(const struct cn_address *address, char out[CN_HTTP_ADDRESS_MAX])
{
    if (address->is_unix)
        snprintf(out, CN_HTTP_ADDRESS_MAX, "unix:%s", address->host);
    else
        snprintf(out, CN_HTTP_ADDRESS_MAX,
                 strchr(address->host, ':') ? "%s://[%s]:%u" : "%s://%s:%u",
                 address->is_https ? "https" : "http", address->host, address->port);
}

void
cn_http_socket_forget(const struct cn_address *address)
{
    if (address->is_unix)
        unlink(address->host);
}

/* Turns bind's errno into a message that says what to do. */
static int
cannot_listen(const struct cn_address *address, const char *flag, int sys_errno,
              struct cn_error *err)
{
    char shown[CN_HTTP_ADDRESS_MAX];

    cn_http_address_format(address, shown);
    if (sys_errno == EADDRINUSE)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "%s %s is in use by another program; stop it, or choose another address",
                       flag, shown);
    if (sys_errno == EADDRNOTAVAIL)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "%s %s is not an address of this machine; choose one of its own, or 0.0.0.0",
                       flag, shown);
    if (sys_errno == EACCES)
        return cn_fail(
            err, CN_E_UNAVAILABLE,
            "%s %s: permission denied; choose a port from 1024 upwards, or another folder", flag,
            shown);
    return cn_fail_sys(err, CN_E_UNAVAILABLE, sys_errno, "cannot listen on %s %s", flag, shown);
}

static int
resolve(const struct cn_address *address, const char *flag, struct sockaddr_storage *out,
        socklen_t *out_len, struct cn_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    int rc;

    snprintf(port, sizeof(port), "%u", address->port);
    rc = getaddrinfo(address->host, port, &hints, &found);
    if (rc != 0)
        return cn_fail(err, CN_E_UNAVAILABLE, "%s: host %s is unknown: %s; use an IP address", flag,
                       address->host, gai_strerror(rc));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *out_len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

/* Removes the file of a unix socket if nobody listens on it: a server that was killed leaves its
 * file behind, and bind() would fail. A file that is not a socket is never removed. */
static int
remove_stale(const struct cn_address *address, const struct sockaddr_un *name)
{
    struct stat st;
    int fd, rc, saved;

    if (lstat(address->host, &st) < 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return EADDRINUSE;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    rc = connect(fd, (const struct sockaddr *)name, sizeof(*name));
    saved = errno;
    close(fd);
    if (rc == 0 || saved != ECONNREFUSED)
        return EADDRINUSE;
    return unlink(address->host) < 0 ? errno : 0;
}

static int
listen_unix(const struct cn_address *address, const char *flag, int *out, struct cn_error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd, saved;

    if (strlen(address->host) >= sizeof(name.sun_path))
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "%s unix:%s is too long; at most %zu bytes are allowed", flag, address->host,
                       sizeof(name.sun_path) - 1);
    memcpy(name.sun_path, address->host, strlen(address->host));
    saved = remove_stale(address, &name);
    if (saved)
        return cannot_listen(address, flag, saved, err);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(fd, BACKLOG) < 0) {
        saved = errno;
        if (fd >= 0)
            close(fd);
        return cannot_listen(address, flag, saved, err);
    }
    *out = fd;
    return 0;
}

static int
bind_tcp(const struct sockaddr_storage *name, socklen_t len, bool shared, bool listening)
{
    int fd = socket(name->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, saved;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
        bind(fd, (const struct sockaddr *)name, len) < 0 ||
        (listening && listen(fd, BACKLOG) < 0)) {
        saved = errno;
        close(fd);
        return -saved;
    }
    return fd;
}

int
cn_http_socket_probe(const struct cn_address *address, const char *flag, struct cn_error *err)
{
    struct sockaddr_storage name;
    socklen_t len;
    int fd, rc;

    if (address->is_unix || address->port == 0)
        return 0;
    rc = resolve(address, flag, &name, &len, err);
    if (rc)
        return rc;
    fd = bind_tcp(&name, len, false, true); /* bind() alone may succeed beside a listener */
    if (fd < 0)
        return cannot_listen(address, flag, -fd, err);
    close(fd);
    return 0;
}

int
cn_http_socket_listen(struct cn_address *address, bool shared, const char *flag, int *out,
                      struct cn_error *err)
{
    struct sockaddr_storage name;
    socklen_t len;
    int fd, rc;

    if (address->is_unix)
        return listen_unix(address, flag, out, err);
    rc = resolve(address, flag, &name, &len, err);
    if (rc)
        return rc;
    fd = bind_tcp(&name, len, shared, true);
    if (fd < 0)
        return cannot_listen(address, flag, -fd, err);
    len = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0) {
        rc = cannot_listen(address, flag, errno, err);
        close(fd);
        return rc;
    }
    address->port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                                     : ((struct sockaddr_in *)&name)->sin_port);
    *out = fd;
    return 0;
}
