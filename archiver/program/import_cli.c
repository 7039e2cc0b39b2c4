/* archiver/program/import_cli.c - continuo-archiver import: turns the folder of a model in a Triton
 * repository into archives. Archiver only.
 *
 * import.c does the work and reports it by three functions: each archive that was made goes to
 * standard output, and so does each setting that could not be carried over, because that list is a
 * result; warnings go to standard error. */
#include <stdio.h>
#include <string.h>

#include "archiver/import/import.h"
#include "archiver/program/subcommands.h"

static int
usage(const char *program, const char *text, const char *what)
{
    fprintf(stderr,
            "usage: %s import DIR [--handler FILE] [--export-path DIR] [--force]\n"
            "%s: error: %s%s\n",
            program, program, text, what);
    return CN_EXIT_USAGE;
}

static void
on_archive(void *ctx, const char *model, const char *version, const char *path)
{
    (void)ctx;
    (void)model;
    printf("%s: version %s\n", path, version);
}

static void
on_lost(void *ctx, const char *text)
{
    (void)ctx;
    puts(text);
}

static void
on_warning(void *ctx, const char *text)
{
    fprintf(stderr, "%s: warning: %s\n", (const char *)ctx, text);
}

static bool
take_flag(int argc, char **argv, int *at, const char *flag, const char **out)
{
    const size_t len = strlen(flag);

    if (strncmp(argv[*at], flag, len) != 0)
        return false;
    if (argv[*at][len] == '=')
        *out = argv[*at] + len + 1;
    else if (argv[*at][len] == '\0' && *at + 1 < argc)
        *out = argv[++*at];
    else
        return false;
    return true;
}

int
cn_archiver_import(const char *program, int argc, char **argv)
{
    struct cn_error err = {0};
    struct cn_import_spec spec = {.dir = NULL};
    const struct cn_import_events events = {.ctx = (void *)(uintptr_t)program,
                                            .on_archive = on_archive,
                                            .on_lost = on_lost,
                                            .on_warning = on_warning};

    for (int i = 0; i < argc; i++) {
        if (take_flag(argc, argv, &i, "--handler", &spec.handler) ||
            take_flag(argc, argv, &i, "--export-path", &spec.export_path))
            continue;
        if (strcmp(argv[i], "--force") == 0 || strcmp(argv[i], "-f") == 0)
            spec.force = true;
        else if (argv[i][0] == '-' || spec.dir)
            return usage(program,
                         argv[i][0] == '-' ? "unknown flag, or a flag without its value: "
                                           : "give one folder at a time, without this argument: ",
                         argv[i]);
        else
            spec.dir = argv[i];
    }
    if (!spec.dir)
        return usage(program, "name the folder of a model in a Triton repository", "");
    if (cn_import(&spec, &events, &err) == 0)
        return 0;
    fprintf(stderr, "%s: error: %s\n", program, err.message);
    return CN_EXIT_FAILED;
}
