/* torchserve/program/torchserve_main.c - runs the same server as `continuo`, with TorchServe's
 * flags, files and defaults. */
#include <stdio.h>
#include <string.h>

#include "core/system/write_file.h"
#include "torchserve/program/launcher.h"

extern char **environ;

static int
show(void (*text)(FILE *out))
{
    text(stdout);
    return cn_stdout_complete("torchserve") ? 0 : 1;
}

/* The first line is what scripts look for. The second says which program this really is. */
static void
version(FILE *out)
{
    fputs("TorchServe Version is " CN_TORCHSERVE_VERSION "\n", out);
    fputs("continuo " CN_VERSION " takes its place\n", out);
}

int
main(int argc, char **argv)
{
    struct cn_torchserve_command command;
    struct cn_error err;
    int code;

    if (argc == 2 && strcmp(argv[1], "--print-man") == 0) /* used by scripts/manpages.sh */
        return show(cn_torchserve_man);
    if (cn_torchserve_command_parse(argc, argv, &command, &err) != 0) {
        fprintf(stderr, "torchserve: error: %s\n", err.message);
        return 2;
    }
    if (command.values[CN_TS_HELP])
        code = show(cn_torchserve_help);
    else if (command.values[CN_TS_VERSION])
        code = show(version);
    else if (command.values[CN_TS_STOP])
        code = cn_torchserve_stop(environ);
    else
        code = cn_torchserve_start(&command, environ);
    cn_torchserve_command_fini(&command);
    return code;
}
