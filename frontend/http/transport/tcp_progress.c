/* frontend/http/transport/tcp_progress.c - TCP_INFO. The C library's own header,
 * netinet/tcp.h, lacks the newer counters and does not go together with the kernel's, so this is a
 * file of its own. */
#include "frontend/http/transport/tcp_progress.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool
cn_tcp_progress_get(int fd, struct cn_tcp_progress *out)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        len < offsetof(struct tcp_info, tcpi_notsent_bytes) + sizeof(info.tcpi_notsent_bytes))
        return false;
    out->received = info.tcpi_bytes_received;
    out->taken = info.tcpi_bytes_acked;
    out->has_unsent = info.tcpi_notsent_bytes > 0;
    return true;
}
