/* archiver/program/archiver_main.c - continuo-archiver: create, import, inspect, verify,
 * keygen, sign and suggest; or the flags of torch-model-archiver. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "archiver/archive/archive_path.h"
#include "archiver/program/subcommands.h"
#include "core/system/write_file.h"

/* Does the command line ask for help on one of the commands? Help on create is create's own. */
static bool
wants_help(int argc, char **argv)
{
    static const char *const names[] = {"import", "inspect", "verify", "keygen", "sign", "suggest"};

    if (argc != 3 || (strcmp(argv[2], "--help") != 0 && strcmp(argv[2], "-h") != 0))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(argv[1], names[i]) == 0)
            return true;
    return false;
}

static int
run(int argc, char **argv)
{
    const char *program = argc > 0 ? cn_basename(argv[0]) : "continuo-archiver";
    bool torch_name = strcmp(program, "torch-model-archiver") == 0;
    const char *first = argc > 1 ? argv[1] : NULL;

    if (first == NULL) {
        cn_archiver_help(program, stderr);
        return CN_EXIT_USAGE;
    }
    if (!torch_name && wants_help(argc, argv)) {
        cn_archiver_help(program, stdout);
        return 0;
    }
    if (!torch_name && strcmp(first, "create") == 0)
        return cn_archiver_create(program, argc - 2, argv + 2, false);
    if (!torch_name && strcmp(first, "import") == 0)
        return cn_archiver_import(program, argc - 2, argv + 2);
    if (!torch_name && strcmp(first, "inspect") == 0)
        return cn_archiver_inspect(argc - 2, argv + 2);
    if (!torch_name && strcmp(first, "verify") == 0)
        return cn_archiver_verify(argc - 2, argv + 2);
    if (!torch_name && strcmp(first, "keygen") == 0)
        return cn_archiver_keygen(argc - 2, argv + 2);
    if (!torch_name && strcmp(first, "sign") == 0)
        return cn_archiver_sign(argc - 2, argv + 2);
    if (!torch_name && strcmp(first, "suggest") == 0)
        return cn_archiver_suggest(argc - 2, argv + 2);
    /* --version takes the model's version; alone it can only mean ours. */
    if (argc == 2 && strcmp(first, "--version") == 0) {
        printf("continuo-archiver %s\n", CN_VERSION);
        return 0;
    }
    if (argc == 2 && strcmp(first, "--print-man") == 0) {
        cn_archiver_man(stdout);
        return 0;
    }
    return cn_archiver_create(program, argc - 1, argv + 1, torch_name);
}

int
main(int argc, char **argv)
{
    int status = run(argc, argv);

    return cn_stdout_complete("continuo-archiver") || status != 0 ? status : CN_EXIT_FAILED;
}
