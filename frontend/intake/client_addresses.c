/* frontend/intake/client_addresses.c - a table of counters, found by a keyed hash. Any thread; each
 * counter is atomic, and none must agree with another one. */
#include "frontend/intake/client_addresses.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define ENTRIES 16384 /* a power of two */

struct cn_client_address {
    _Atomic uint32_t n[CN_N_ADDRESS_KINDS];
    _Atomic uint64_t second; /* the second in which `spent` counts */
    _Atomic uint64_t spent;
};

static struct cn_client_address table[ENTRIES];
static _Atomic uint64_t totals[CN_N_ADDRESS_KINDS];
static unsigned char key[crypto_shorthash_KEYBYTES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* With a key, nobody can choose addresses that share an entry. */
static void
make_key(void)
{
    crypto_shorthash_keygen(key);
}

/* Writes the bytes that tell clients apart. Returns how many. An IPv4 address that came through an
 * IPv6 socket is the same client. */
static size_t
bytes_of(const struct sockaddr *from, unsigned char out[8])
{
    if (from->sa_family == AF_INET) {
        memcpy(out, &((const struct sockaddr_in *)from)->sin_addr, 4);
        return 4;
    }
    if (from->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)from)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(in6)) {
            memcpy(out, in6->s6_addr + 12, 4);
            return 4;
        }
        memcpy(out, in6->s6_addr, 8);
        return 8;
    }
    return 0;
}

/* May an address have `n` connections, when all addresses together have `total`? */
static bool
is_fair(uint64_t n, uint64_t total, uint64_t capacity)
{
    uint64_t n_free = total < capacity ? capacity - total : 0;

    return n == 1 || n <= CN_ADDRESS_TIMES_FREE * n_free;
}

bool
cn_client_address_take(const struct sockaddr *from, enum cn_address_kind kind, uint32_t max,
                       uint64_t capacity, struct cn_client_address **out)
{
    unsigned char bytes[8], hash[crypto_shorthash_BYTES];
    size_t len = from ? bytes_of(from, bytes) : 0;
    struct cn_client_address *address;
    uint64_t total;
    uint32_t index, n;

    *out = NULL;
    if (len == 0)
        return true;
    pthread_once(&once, make_key);
    crypto_shorthash(hash, bytes, len, key);
    memcpy(&index, hash, sizeof(index));
    address = &table[index % ENTRIES];
    n = atomic_fetch_add_explicit(&address->n[kind], 1, memory_order_relaxed) + 1;
    total = atomic_fetch_add_explicit(&totals[kind], 1, memory_order_relaxed) + 1;
    if (max > 0 ? n > max : !is_fair(n, total, capacity)) {
        cn_client_address_release(address, kind);
        return false;
    }
    *out = address;
    return true;
}

uint32_t
cn_client_address_number(const struct cn_client_address *address)
{
    return address ? (uint32_t)(address - table) + 1 : 0;
}

void
cn_client_address_release(struct cn_client_address *address, enum cn_address_kind kind)
{
    if (!address)
        return;
    atomic_fetch_sub_explicit(&address->n[kind], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&totals[kind], 1, memory_order_relaxed);
}

bool
cn_client_address_spend(struct cn_client_address *address, uint64_t a_second, uint64_t now_ms)
{
    uint64_t second = now_ms / 1000;

    /* Two threads may both begin the second; then a few things more are allowed. */
    if (atomic_load_explicit(&address->second, memory_order_relaxed) != second) {
        atomic_store_explicit(&address->second, second, memory_order_relaxed);
        atomic_store_explicit(&address->spent, 0, memory_order_relaxed);
    }
    return atomic_fetch_add_explicit(&address->spent, 1, memory_order_relaxed) < a_second;
}
