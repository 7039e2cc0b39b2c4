/* frontend/guard/grpc_tls_calls.c - what the program puts in the place of accept4() and of
 * OpenSSL's SSL_read(). Any thread.
 *
 * The state of a connection's guard is attached to its SSL object, and is freed with it. libgrpc's
 * locks order the uses of one SSL object. OpenSSL's headers are not needed: the few functions are
 * looked up in the library that libgrpc has loaded. Connections on which this process is the client
 * are not looked at.
 */
#include "frontend/guard/grpc_tls_calls.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/guard/client_addresses.h"
#include "frontend/guard/h2_guard.h"
#include "frontend/guard/library_calls.h"

/* ThreadSanitizer does not see libgrpc's locks. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define takes_turn(state) __tsan_acquire(state)
#define gives_turn(state) __tsan_release(state)
#else
#define takes_turn(state) ((void)(state))
#define gives_turn(state) ((void)(state))
#endif

#define EX_INDEX_SSL 0 /* CRYPTO_EX_INDEX_SSL of OpenSSL 1.1 and 3 */

struct ssl_st;
typedef void free_fn(void *parent, void *state, void *ex, int index, long argl, void *argp);

struct tls_guard {
    struct cn_h2_guard h2;
    bool is_cut;
};

static struct cn_grpc_tls_port ports[CN_GRPC_PORTS];
static _Atomic unsigned n_ports;
static struct cn_h2_limits limits; /* a copy: libgrpc's threads may outlive the door */
static int ex_index = -1;
static _Atomic uint64_t n_refused;
static _Atomic uint64_t second, spent; /* cancelled calls of all connections in this second */

int cn_call_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags) __asm__("accept4");
int cn_call_ssl_read(struct ssl_st *ssl, void *out, int room) __asm__("SSL_read");

static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*real_ssl_read)(struct ssl_st *, void *, int);
static int (*is_server)(const struct ssl_st *);
static void *(*get_ex_data)(const struct ssl_st *, int);
static int (*set_ex_data)(struct ssl_st *, int, void *);

/* Looks a function up in a library that is loaded already. ISO C has no cast from void * to a
 * function pointer. */
static bool
find(const char *const libraries[], const char *name, void *out)
{
    void *library = NULL, *found;

    for (size_t i = 0; libraries[i] && !library; i++)
        library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    found = library ? dlsym(library, name) : NULL;
    memcpy(out, &found, sizeof(found));
    if (library)
        dlclose(library); /* whoever has loaded it keeps it */
    return found != NULL;
}

static const char *const ssl_libraries[] = {"libssl.so.3", "libssl.so.1.1", NULL};
static const char *const crypto_libraries[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};

__attribute__((constructor)) static void
find_real_accept4(void)
{
    void *found = dlsym(RTLD_NEXT, "accept4");

    memcpy(&real_accept4, &found, sizeof(found));
}

/* --- accepting */

static const struct cn_grpc_tls_port *
port_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    unsigned i, n = atomic_load_explicit(&n_ports, memory_order_acquire);
    uint16_t number;

    if (n == 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return NULL;
    if (address.ss_family == AF_INET)
        number = ntohs(((struct sockaddr_in *)&address)->sin_port);
    else if (address.ss_family == AF_INET6)
        number = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    else
        return NULL;
    for (i = 0; i < n; i++)
        if (ports[i].number == number)
            return &ports[i];
    return NULL;
}

/* Counts a connection. Returns false when it is one too many. */
static bool
admit(const struct cn_grpc_tls_port *port, int fd, const struct sockaddr *from)
{
    struct cn_client_address *address;

    if (cn_library_calls_grpc_open(port->port) >= port->max_connections ||
        !cn_client_address_take(from, CN_ADDRESS_GRPC + port->port, port->address_connections,
                                port->max_connections, &address))
        return false;
    if (cn_library_calls_set_grpc(fd, port->port, NULL, address))
        return true;
    cn_client_address_release(address, CN_ADDRESS_GRPC + port->port);
    return false;
}

int
cn_grpc_tls_calls_own_accept(int fd, struct sockaddr *from, unsigned *from_len, int flags)
{
    return real_accept4(fd, from, from_len, flags);
}

int
cn_call_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    const struct cn_grpc_tls_port *port = port_of(fd);
    const socklen_t room = len ? *len : 0;
    int client = real_accept4(fd, from, len, flags);

    while (port && client >= 0 && !admit(port, client, len ? from : NULL)) {
        atomic_fetch_add_explicit(&n_refused, 1, memory_order_relaxed);
        close(client);
        if (len)
            *len = room;
        client = real_accept4(fd, from, len, flags);
    }
    return client;
}

uint64_t
cn_grpc_tls_calls_refused(void)
{
    return atomic_load(&n_refused);
}

/* --- reading */

static void
free_guard(void *parent, void *state, void *ex, int index, long argl, void *argp)
{
    (void)parent, (void)ex, (void)index, (void)argl, (void)argp;
    if (!state)
        return;
    takes_turn(state);
    cn_free(state);
}

static struct tls_guard *
guard_of(struct ssl_st *ssl)
{
    struct tls_guard *guard = get_ex_data(ssl, ex_index);

    if (guard) {
        takes_turn(guard);
        return guard;
    }
    guard = cn_alloc(sizeof(*guard));
    cn_h2_guard_init(&guard->h2, &limits);
    if (set_ex_data(ssl, ex_index, guard))
        return guard;
    cn_free(guard);
    return NULL;
}

/* May all connections together cancel `n` more calls in this second? */
static bool
all_may_cancel(uint64_t n)
{
    uint64_t now = cn_now_ms() / 1000;

    if (n == 0 || limits.resets == 0)
        return true;
    if (atomic_load_explicit(&second, memory_order_relaxed) != now) {
        atomic_store_explicit(&second, now, memory_order_relaxed);
        atomic_store_explicit(&spent, 0, memory_order_relaxed);
    }
    return atomic_fetch_add_explicit(&spent, n, memory_order_relaxed) + n <=
           (uint64_t)limits.resets * CN_GRPC_TLS_TIMES;
}

/* Shows decrypted bytes to the connection's guard. Returns false when the connection must end. */
static bool
feed(struct ssl_st *ssl, const void *bytes, size_t len)
{
    struct tls_guard *guard = guard_of(ssl);
    uint64_t before;

    if (!guard)
        return true;
    before = guard->h2.n_resets;
    if (!guard->is_cut && (!cn_h2_guard_feed(&guard->h2, &limits, NULL, bytes, len) ||
                           !all_may_cancel(guard->h2.n_resets - before))) {
        guard->is_cut = true;
        cn_library_calls_count_cut();
        cn_log(CN_LOG_DEBUG, "event=grpc_connection_cut tls=true why=\"too many cancelled calls in "
                             "a second (grpc-max-resets)\"");
    }
    gives_turn(guard);
    return !guard->is_cut;
}

/* Reads after a cut fail, which makes libgrpc close the connection. */
int
cn_call_ssl_read(struct ssl_st *ssl, void *out, int room)
{
    int n;

    if (!real_ssl_read && !find(ssl_libraries, "SSL_read", &real_ssl_read))
        return -1;
    n = real_ssl_read(ssl, out, room);
    if (n <= 0 || atomic_load_explicit(&n_ports, memory_order_acquire) == 0 || ex_index < 0 ||
        !is_server(ssl) || feed(ssl, out, (size_t)n))
        return n;
    memset(out, 0, (size_t)n);
    return -1;
}

/* --- begin */

static void
find_ssl(void)
{
    int (*new_index)(int, long, void *, void *, void *, free_fn *) = NULL;

    if (find(ssl_libraries, "SSL_read", &real_ssl_read) &&
        find(ssl_libraries, "SSL_is_server", &is_server) &&
        find(ssl_libraries, "SSL_get_ex_data", &get_ex_data) &&
        find(ssl_libraries, "SSL_set_ex_data", &set_ex_data) &&
        find(crypto_libraries, "CRYPTO_get_ex_new_index", &new_index))
        ex_index = new_index(EX_INDEX_SSL, 0, NULL, NULL, NULL, free_guard);
    if (ex_index < 0)
        cn_log(CN_LOG_WARN, "event=grpc_tls_unguarded note=\"the gRPC library does not use OpenSSL "
                            "1.1 or 3, so --grpc-max-resets does not hold with TLS\"");
}

void
cn_grpc_tls_calls_add(const struct cn_grpc_tls_port *port, const struct cn_h2_limits *of_all)
{
    unsigned n = atomic_load(&n_ports);

    if (n == CN_GRPC_PORTS)
        return;
    if (n == 0) {
        limits = *of_all;
        find_ssl();
    }
    ports[n] = *port;
    atomic_store_explicit(&n_ports, n + 1, memory_order_release);
}
