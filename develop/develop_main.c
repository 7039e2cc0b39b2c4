/* develop/develop_main.c - the program continuo-dev, which runs continuo demo, new, dev and
 * test. */
#include <stdio.h>
#include <string.h>

#include "core/system/write_file.h"
#include "ctl/http_client.h"
#include "develop/develop.h"

static const struct {
    const char *name, *words, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"demo", "",
     "start a server, send steps to a small model, kill its worker, and go on; it takes a second",
     cn_develop_demo},
    {"new", "lua|python|c|torch|onnx NAME",
     "make the folder NAME with a model to begin with, its settings and its test", cn_develop_new},
    {"dev", "[DIR|FILE] [--inference URL] [--server URL] [--metrics URL]",
     "serve a folder, and serve it again whenever a file changes; live sequences go on",
     cn_develop_dev},
    {"test", "[DIR]",
     "send the steps of DIR/test.yaml and compare the answers, also with the worker killed after "
     "each step",
     cn_develop_test},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void
help(FILE *out)
{
    fputs("usage: continuo COMMAND ...\n\nThese commands are for a first look, and for the author "
          "of a model.\nDIR is the working folder if none is given.\n\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  continuo %s%s%s\n      %s\n", commands[i].name,
                *commands[i].words ? " " : "", commands[i].words, commands[i].help);
    fputs("\nThe URLs are the addresses of the server that dev starts: for steps, for management "
          "and for metrics.\n",
          out);
}

/* Prints the manual page continuo-dev(1) as troff. */
static void
print_man(void)
{
    printf(".TH CONTINUO\\-DEV 1 \"\" \"continuo %s\" \"User Commands\"\n", CN_VERSION);
    fputs(".SH NAME\ncontinuo\\-dev \\- see a demo, begin a model, serve it while it changes, test "
          "it\n"
          ".SH SYNOPSIS\n.B continuo\n\\fICOMMAND\\fR ...\n"
          ".SH DESCRIPTION\ncontinuo runs this program for the commands below.\n"
          ".SH COMMANDS\n",
          stdout);
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf(".TP\n.B %s %s\n%s.\n", commands[i].name, commands[i].words, commands[i].help);
    fputs(".SH EXIT STATUS\n0 if all is well, 1 if something is wrong, 2 for a wrong command "
          "line.\n"
          ".SH SEE ALSO\n.BR continuo (1),\n.BR continuo\\-archiver (1),\n"
          ".BR continuo\\-ctl (1)\n",
          stdout);
}

static int
run(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < N_COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
            return help(stdout), CN_DEVELOP_FINE;
        return commands[i].run(argc - 2, argv + 2);
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("continuo-dev " CN_VERSION), CN_DEVELOP_FINE;
    if (argc == 2 && strcmp(argv[1], "--print-man") == 0)
        return print_man(), CN_DEVELOP_FINE;
    help(argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
    return argc == 2 && strcmp(argv[1], "--help") == 0 ? CN_DEVELOP_FINE : CN_DEVELOP_USAGE;
}

int
main(int argc, char **argv)
{
    int status;

    cn_ctl_http_begin();
    status = run(argc, argv);
    cn_ctl_http_end();
    return cn_stdout_complete("continuo") || status ? status : CN_DEVELOP_FAILED;
}
