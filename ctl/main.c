/* ctl/main.c - continuo-ctl: looks at a running server. */
#include "ctl/cli.h"

int
main(int argc, char **argv)
{
    return cn_ctl_run(argc, argv);
}
