/* core/whole.c - see the header. */
#include "core/whole.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

int
cn_write_whole(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

bool
cn_stdout_whole(const char *program)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "%s: error: the output could not be written; it is not whole\n", program);
    return false;
}
