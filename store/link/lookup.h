/* store/link/lookup.h - finds the addresses of a host within a time limit. The link's thread.
 *
 * getaddrinfo() has no limit: with a resolver that does not answer, it takes many seconds. So a
 * thread calls it. There is at most one such thread for each owner of a lookup: a lookup that is
 * not done in time goes on, and the next call waits for the same one. */
#ifndef CN_STORE_LINK_LOOKUP_H
#define CN_STORE_LINK_LOOKUP_H

#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct cn_lookup;

/* Finds the addresses of `host`, which the caller frees with freeaddrinfo(). `pending` is the
 * owner's variable, NULL in the beginning. Returns 0; EAI_AGAIN if the time is over; or another
 * code of getaddrinfo(). A numeric address is never waited for. */
int cn_lookup_host(struct cn_lookup **pending, const char *host, uint16_t port,
                   uint64_t deadline_us, struct addrinfo **out);
/* Leaves a lookup that is not done to its thread. NULL is allowed. */
void cn_lookup_forget(struct cn_lookup *lookup);

/* Waits until `fd` is ready for `events` of poll(), or the deadline. Returns whether it is. */
bool cn_wait_for_fd(int fd, short events, uint64_t deadline_us);
/* Waits until one of the descriptors is ready, and sets revents as poll() does. Those below 0 are
 * left out. */
bool cn_wait_for_fds(struct pollfd *watched, uint32_t count, uint64_t deadline_us);

#endif
