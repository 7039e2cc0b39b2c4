/* ctl/main.c - continuo-ctl: looks at a running server. */
#include <stdio.h>

#include "ctl/cli.h"

int
main(int argc, char **argv)
{
    int status = cn_ctl_run(argc, argv);

    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fputs("continuo-ctl: error: the output could not be written; it is not whole\n", stderr);
    return status == CN_CTL_FINE ? CN_CTL_WRONG : status;
}
