/* ctl/ctl_main.c - continuo-ctl: looks at a running server. */
#include "core/system/write_file.h"
#include "ctl/cli.h"
#include "ctl/http_client.h"

int
main(int argc, char **argv)
{
    int status;

    cn_ctl_http_begin();
    status = cn_ctl_run(argc, argv);
    cn_ctl_http_end();
    return cn_stdout_complete("continuo-ctl") || status != CN_CTL_FINE ? status : CN_CTL_WRONG;
}
