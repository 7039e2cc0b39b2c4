/* frontend/intake/client_addresses.h - what all connections of one client address use together.
 *
 * There is one table for the whole process, of a fixed size. Clients are told apart by a keyed hash
 * of their address (of an IPv6 address its first 64 bits, which belong to one network). Two
 * addresses share an entry by chance only. Any thread.
 */
#ifndef CN_FRONTEND_INTAKE_CLIENT_ADDRESSES_H
#define CN_FRONTEND_INTAKE_CLIENT_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;
struct cn_client_address;

/* Connections to the interfaces, each of which is counted apart. The gRPC ports have the order of
 * enum cn_grpc_port. */
enum cn_address_kind {
    CN_ADDRESS_INFERENCE,
    CN_ADDRESS_MANAGEMENT,
    CN_ADDRESS_METRICS,
    CN_ADDRESS_GRPC,
    CN_ADDRESS_GRPC_MANAGEMENT,
    CN_N_ADDRESS_KINDS
};

/* Without a limit of its own, an address may have this many times as many connections as stay free.
 * So one address alone, such as a proxy's, gets nine tenths of all connections, and when several
 * want many, a tenth or so is always free for one that has none. */
#define CN_ADDRESS_TIMES_FREE 9

/* Counts one more connection of the address among those of one kind. `max`: how many one address
 * may have; 0: CN_ADDRESS_TIMES_FREE times as many as stay free of the `capacity` of all addresses.
 * Then the first connection of an address is always counted. Returns false when the address may not
 * have one more. Else *out is its entry, or NULL: the client has no address (a unix socket) and is
 * not counted. Free it with cn_client_address_release(). */
bool cn_client_address_take(const struct sockaddr *from, enum cn_address_kind kind, uint32_t max,
                            uint64_t capacity, struct cn_client_address **out);
/* A number that all connections of the address have in common; 0: the client has no address. */
uint32_t cn_client_address_number(const struct cn_client_address *address);
/* One connection less. NULL is allowed. */
void cn_client_address_release(struct cn_client_address *address, enum cn_address_kind kind);

/* Takes one of the `a_second` things that the address may do in each second. Returns false when
 * they are used up. */
bool cn_client_address_spend(struct cn_client_address *address, uint64_t a_second, uint64_t now_ms);

#endif
