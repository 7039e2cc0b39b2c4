/* store/link/valkey_tls.c - TLS to the shared store. The link's thread.
 *
 * GnuTLS is the library that the server's own ports use, too. A worker without a
 * URL with TLS never loads it.
 *
 * The socket does not block. Sending and receiving return the number of bytes, 0 for "nothing now",
 * or an error code with the reason in `why`. The library's own words help few people, so each
 * reason also names the part of the URL that mends it: ca=, certificate=, key= or name=. */
#include "store/link/valkey_tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "store/link/lookup.h"

#define LIBRARY "libgnutls.so.30"
#define VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

#define FUNCTIONS(F)                                                                               \
    F(gnutls_alert_get)                                                                            \
    F(gnutls_alert_get_name)                                                                       \
    F(gnutls_bye)                                                                                  \
    F(gnutls_certificate_allocate_credentials)                                                     \
    F(gnutls_certificate_free_credentials)                                                         \
    F(gnutls_certificate_set_x509_key_file)                                                        \
    F(gnutls_certificate_set_x509_system_trust)                                                    \
    F(gnutls_certificate_set_x509_trust_file)                                                      \
    F(gnutls_credentials_set)                                                                      \
    F(gnutls_deinit)                                                                               \
    F(gnutls_error_is_fatal)                                                                       \
    F(gnutls_handshake)                                                                            \
    F(gnutls_init)                                                                                 \
    F(gnutls_priority_set_direct)                                                                  \
    F(gnutls_record_get_direction)                                                                 \
    F(gnutls_record_recv)                                                                          \
    F(gnutls_record_send)                                                                          \
    F(gnutls_server_name_set)                                                                      \
    F(gnutls_session_get_verify_cert_status)                                                       \
    F(gnutls_session_set_verify_cert)                                                              \
    F(gnutls_strerror)                                                                             \
    F(gnutls_transport_set_int2)

/* The library's functions, with their own names and types. */
static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} lib;
static bool is_open;

struct cn_tls {
    gnutls_session_t session;
    gnutls_certificate_credentials_t files;
    bool has_certificate; /* of ours */
    bool heard;           /* the server has sent something after the handshake */
    char name[256];       /* the server's certificate must have it */
};

/* Finds the functions of the library. The caller holds the lock. */
static int
find_functions(char why[CN_TLS_WHY_MAX])
{
    static const char *const names[] = {
#define NAME(name) #name,
        FUNCTIONS(NAME)
#undef NAME
    };
    void *library = is_open ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (is_open)
        return 0;
    if (!library) {
        snprintf(why, CN_TLS_WHY_MAX,
                 "needs " LIBRARY " for TLS, which cannot be loaded (%.200s); on Debian the "
                 "package libgnutls30 has it",
                 dlerror());
        return CN_E_STATE_STORE;
    }
    _Static_assert(sizeof(lib) == sizeof(names), "a pointer for each name");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *function = dlsym(library, names[i]);

        if (!function) {
            snprintf(why, CN_TLS_WHY_MAX, "needs TLS, but " LIBRARY " has no function %s",
                     names[i]);
            dlclose(library);
            return CN_E_STATE_STORE;
        }
        memcpy((char *)&lib + i * sizeof(function), &function, sizeof(function));
    }
    is_open = true;
    return 0;
}

/* Opens the library at the first call. The server's threads may call this at the same time. */
static int
open_library(char why[CN_TLS_WHY_MAX])
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rc;

    pthread_mutex_lock(&lock);
    rc = find_functions(why);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int
file_failed(const char *parameter, const char *path, int rc, char why[CN_TLS_WHY_MAX])
{
    snprintf(why, CN_TLS_WHY_MAX,
             "cannot be used with TLS: the file '%.120s' (%s in the URL) cannot be read or has "
             "nothing usable: %s",
             path, parameter, rc == 0 ? "it has no certificate" : lib.gnutls_strerror(rc));
    return CN_E_STATE_STORE;
}

static int
load_files(struct cn_tls *tls, const struct cn_shared_tls *options, char why[CN_TLS_WHY_MAX])
{
    int rc;

    if (options->ca[0]) {
        rc = lib.gnutls_certificate_set_x509_trust_file(tls->files, options->ca,
                                                        GNUTLS_X509_FMT_PEM);
        if (rc <= 0)
            return file_failed("ca=", options->ca, rc, why);
    } else {
        lib.gnutls_certificate_set_x509_system_trust(tls->files);
    }
    tls->has_certificate = options->certificate[0] != '\0';
    if (!tls->has_certificate)
        return 0;
    rc = lib.gnutls_certificate_set_x509_key_file(tls->files, options->certificate, options->key,
                                                  GNUTLS_X509_FMT_PEM);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) {
        snprintf(why, CN_TLS_WHY_MAX,
                 "cannot be used with TLS: the key '%.120s' is not that of the certificate "
                 "'%.120s' (key= and certificate= in the URL)",
                 options->key, options->certificate);
        return CN_E_STATE_STORE;
    }
    return rc < 0 ? file_failed("certificate= or key=", options->certificate, rc, why) : 0;
}

/* Says what is wrong with the server's certificate, and what to do. */
static int
certificate_failed(const struct cn_tls *tls, char why[CN_TLS_WHY_MAX])
{
    const unsigned status = lib.gnutls_session_get_verify_cert_status(tls->session);

    if (status & GNUTLS_CERT_EXPIRED)
        snprintf(why, CN_TLS_WHY_MAX, "has a TLS certificate that has expired; renew it there");
    else if (status & GNUTLS_CERT_NOT_ACTIVATED)
        snprintf(why, CN_TLS_WHY_MAX,
                 "has a TLS certificate that is not valid yet; look at the clocks of both "
                 "machines");
    else if (status & (GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_SIGNER_NOT_CA))
        snprintf(why, CN_TLS_WHY_MAX,
                 "has a TLS certificate that is not signed by an authority that this node trusts; "
                 "name the authority's file in the URL, as in rediss://host?ca=/etc/store-ca.pem");
    else if (status & GNUTLS_CERT_UNEXPECTED_OWNER)
        snprintf(why, CN_TLS_WHY_MAX,
                 "has a TLS certificate for another name than '%.120s'; write a name of the "
                 "certificate as the host, or behind name= in the URL",
                 tls->name);
    else
        snprintf(why, CN_TLS_WHY_MAX, "has a TLS certificate that is not good (status 0x%x)",
                 status);
    return CN_E_STATE_STORE;
}

#define WANTS_CERTIFICATE                                                                          \
    "put a client certificate into the URL, as in "                                                \
    "rediss://host?certificate=/etc/node.pem&key=/etc/node.key"

static int
io_failed(const struct cn_tls *tls, int rc, char why[CN_TLS_WHY_MAX])
{
    const char *alert;

    if (rc == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return certificate_failed(tls, why);
    if (rc == GNUTLS_E_FATAL_ALERT_RECEIVED) {
        alert = lib.gnutls_alert_get_name(lib.gnutls_alert_get(tls->session));
        snprintf(why, CN_TLS_WHY_MAX, "ends the TLS connection (it says: %s); %s",
                 alert ? alert : "nothing",
                 tls->has_certificate
                     ? "the client certificate of the URL must be signed by an authority that the "
                       "server trusts (tls-ca-cert-file), and must not have expired"
                     : WANTS_CERTIFICATE);
        return CN_E_STATE_STORE;
    }
    if (rc == GNUTLS_E_UNEXPECTED_PACKET_LENGTH || rc == GNUTLS_E_UNSUPPORTED_VERSION_PACKET ||
        rc == GNUTLS_E_UNEXPECTED_PACKET) {
        snprintf(why, CN_TLS_WHY_MAX,
                 "does not speak TLS on this port (%s); use its tls-port, or valkey:// without TLS",
                 lib.gnutls_strerror(rc));
        return CN_E_STATE_STORE;
    }
    snprintf(why, CN_TLS_WHY_MAX, "closed the TLS connection: %s%s", lib.gnutls_strerror(rc),
             tls->heard || tls->has_certificate
                 ? ""
                 : "; if it wants a client certificate, " WANTS_CERTIFICATE);
    return CN_E_STORE_UNREACHABLE;
}

static int
shake_hands(struct cn_tls *tls, int fd, uint64_t deadline_us, char why[CN_TLS_WHY_MAX])
{
    for (;;) {
        int rc = lib.gnutls_handshake(tls->session);

        if (rc == 0)
            return 0;
        if (lib.gnutls_error_is_fatal(rc))
            return io_failed(tls, rc, why);
        if (rc == GNUTLS_E_AGAIN &&
            !cn_wait_for_fd(fd, lib.gnutls_record_get_direction(tls->session) ? POLLOUT : POLLIN,
                            deadline_us)) {
            snprintf(why, CN_TLS_WHY_MAX,
                     "did not finish the TLS handshake in time (state.storeTimeoutMSec); does it "
                     "speak TLS on this port (tls-port)?");
            return CN_E_STORE_UNREACHABLE;
        }
    }
}

/* An address is not a name that a server could choose its certificate by. */
static bool
is_address(const char *name)
{
    return strchr(name, ':') || strspn(name, "0123456789.") == strlen(name);
}

static int
set_up(struct cn_tls *tls, const struct cn_shared_tls *options, int fd, char why[CN_TLS_WHY_MAX])
{
    int rc = lib.gnutls_certificate_allocate_credentials(&tls->files);

    if (rc == 0)
        rc = lib.gnutls_init(&tls->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    if (rc == 0)
        rc = lib.gnutls_priority_set_direct(tls->session, VERSIONS, NULL);
    if (rc == 0)
        rc = lib.gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, tls->files);
    if (rc == 0 && !is_address(tls->name))
        rc =
            lib.gnutls_server_name_set(tls->session, GNUTLS_NAME_DNS, tls->name, strlen(tls->name));
    if (rc < 0) {
        snprintf(why, CN_TLS_WHY_MAX, "cannot be used with TLS: %s", lib.gnutls_strerror(rc));
        return CN_E_STATE_STORE;
    }
    lib.gnutls_session_set_verify_cert(tls->session, tls->name, 0);
    lib.gnutls_transport_set_int2(tls->session, fd, fd);
    return load_files(tls, options, why);
}

int
cn_tls_open(const struct cn_shared_tls *options, int fd, const char *host, uint64_t deadline_us,
            struct cn_tls **out, char why[CN_TLS_WHY_MAX])
{
    struct cn_tls *tls;
    int rc = open_library(why);

    *out = NULL;
    if (rc != 0)
        return rc;
    tls = cn_alloc(sizeof(*tls));
    snprintf(tls->name, sizeof(tls->name), "%s", options->name[0] ? options->name : host);
    rc = set_up(tls, options, fd, why);
    if (rc == 0)
        rc = shake_hands(tls, fd, deadline_us, why);
    if (rc != 0) {
        cn_tls_close(tls);
        return rc;
    }
    *out = tls;
    return 0;
}

void
cn_tls_close(struct cn_tls *tls)
{
    if (!tls)
        return;
    if (tls->session) {
        lib.gnutls_bye(tls->session, GNUTLS_SHUT_WR); /* the socket does not block */
        lib.gnutls_deinit(tls->session);
    }
    if (tls->files)
        lib.gnutls_certificate_free_credentials(tls->files);
    cn_free(tls);
}

ssize_t
cn_tls_send(struct cn_tls *tls, const void *bytes, size_t len, char why[CN_TLS_WHY_MAX])
{
    ssize_t n = lib.gnutls_record_send(tls->session, bytes, len);

    if (n >= 0)
        return n;
    return lib.gnutls_error_is_fatal((int)n) ? io_failed(tls, (int)n, why) : 0;
}

ssize_t
cn_tls_receive(struct cn_tls *tls, void *bytes, size_t len, char why[CN_TLS_WHY_MAX])
{
    ssize_t n = lib.gnutls_record_recv(tls->session, bytes, len);

    if (n > 0) {
        tls->heard = true;
        return n;
    }
    if (n == 0) {
        snprintf(why, CN_TLS_WHY_MAX, "closed the connection");
        return CN_E_STORE_UNREACHABLE;
    }
    return lib.gnutls_error_is_fatal((int)n) ? io_failed(tls, (int)n, why) : 0;
}
