/* torchserve/settings/torchserve_flags.c - the command line of `torchserve`, read as Python's
 * argparse reads it. Main thread.
 *
 * Scripts that start TorchServe must work as they are. argparse lets a long flag be shortened while
 * it stays unique (--model-s), takes values behind an equals sign, and gives a flag with a list all
 * words up to the next flag. Flags are rows of torchserve_flags.def, and --help is printed from the
 * same rows. */
#include "torchserve/settings/torchserve_config.h"

#include "core/memory/mem.h"

enum flag_kind { PLAIN, TRUE, VALUE, LIST };

static const struct flag {
    const char *name, *other;
    enum flag_kind kind;
    const char *arg, *help;
} flags[CN_TS_N_FLAGS] = {
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help) {flag, other, kind, arg, help},
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
};

void
cn_torchserve_help(FILE *out)
{
    fputs("usage: torchserve [--start | --stop | --version] --model-store DIR [options]\n\n"
          "Starts and stops the server with TorchServe's flags and files (see\n"
          "docs/from-torchserve.md).\n\n",
          out);
    for (size_t i = 0; i < CN_TS_N_FLAGS; i++) {
        char text[80];

        snprintf(text, sizeof(text), "%s%s%s %s%s", flags[i].name, flags[i].other[0] ? ", " : "",
                 flags[i].other, flags[i].arg, flags[i].kind == LIST ? " ..." : "");
        fprintf(out, "  %-29s %s\n", text, flags[i].help);
    }
    fputs("\nEach option of continuo is also a key of config.properties (continuo.state-dir=DIR)\n"
          "and a variable (CONTINUO_STATE_DIR=DIR).\n",
          out);
}

static bool
begins_with(const char *text, struct cn_str start)
{
    return strncmp(text, start.ptr, start.len) == 0;
}

/* Finds the flag that `name` means: the one of this name, or the only one that begins so. */
static int
find_flag(struct cn_str name, int *found, struct cn_error *err)
{
    int matches = 0;
    char all[256] = "";

    for (int i = 0; i < CN_TS_N_FLAGS; i++) {
        const char *const names[] = {flags[i].name, flags[i].other};

        for (size_t k = 0; k < 2; k++) {
            size_t len = strlen(all);

            if (cn_str_eq(name, cn_str_from(names[k]))) {
                *found = i;
                return 0;
            }
            if (name.len < 3 || !begins_with(names[k], name))
                continue;
            matches++;
            *found = i;
            snprintf(all + len, sizeof(all) - len, "%s%s", len ? ", " : "", names[k]);
        }
    }
    if (matches == 1)
        return 0;
    if (matches > 1)
        return cn_fail(err, CN_E_BAD_REQUEST, "ambiguous option: %.*s could match %s",
                       CN_STR_ARG(name), all);
    return cn_fail(err, CN_E_BAD_REQUEST, "unrecognized arguments: %.*s; --help lists the options",
                   CN_STR_ARG(name));
}

static bool
is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

static void
set_value(struct cn_torchserve_command *command, int flag, const char *value)
{
    struct cn_buf joined;

    if (flags[flag].kind != LIST || command->values[flag] == NULL) {
        cn_free(command->values[flag]);
        command->values[flag] = cn_strdup(value);
        return;
    }
    cn_buf_init(&joined, 0);
    cn_buf_printf(&joined, "%s,%s", command->values[flag], value);
    cn_free(command->values[flag]);
    command->values[flag] = cn_buf_take(&joined, NULL);
}

/* args[*at] is a flag; *at becomes the last argument that belongs to it. */
static int
take(struct cn_torchserve_command *command, int n_args, char **args, int *at, struct cn_error *err)
{
    const char *arg = args[*at], *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    struct cn_str name = {arg, equals ? (size_t)(equals - arg) : strlen(arg)};
    int flag, rc = find_flag(name, &flag, err);
    bool takes_value;

    if (rc != 0)
        return rc;
    takes_value = flags[flag].kind == VALUE || flags[flag].kind == LIST;
    if (!takes_value && equals != NULL)
        return cn_fail(err, CN_E_BAD_REQUEST, "argument %s: ignored explicit argument '%s'",
                       flags[flag].name, equals + 1);
    if (!takes_value) {
        set_value(command, flag, "true");
        return 0;
    }
    if (equals == NULL && (*at + 1 >= n_args || is_flag(args[*at + 1])))
        return cn_fail(err, CN_E_BAD_REQUEST, "argument %s: expected %s", flags[flag].name,
                       flags[flag].kind == LIST ? "at least one argument" : "one argument");
    /* If a flag was given twice, the last one counts, also for a list. */
    cn_free(command->values[flag]);
    command->values[flag] = NULL;
    if (equals != NULL) {
        set_value(command, flag, equals + 1);
        return 0;
    }
    do
        set_value(command, flag, args[++*at]);
    while (flags[flag].kind == LIST && *at + 1 < n_args && !is_flag(args[*at + 1]));
    return 0;
}

static int
check_action(const struct cn_torchserve_command *command, struct cn_error *err)
{
    static const int actions[] = {CN_TS_START, CN_TS_STOP, CN_TS_VERSION};
    int first = -1;

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (command->values[actions[i]] == NULL)
            continue;
        if (first >= 0)
            return cn_fail(err, CN_E_BAD_REQUEST, "argument %s: not allowed with argument %s",
                           flags[actions[i]].name, flags[first].name);
        first = actions[i];
    }
    return 0;
}

int
cn_torchserve_command_parse(int argc, char **argv, struct cn_torchserve_command *out,
                            struct cn_error *err)
{
    int rc = 0;

    *out = (struct cn_torchserve_command){0};
    for (int at = 1; rc == 0 && at < argc; at++) {
        if (is_flag(argv[at]))
            rc = take(out, argc, argv, &at, err);
        else
            rc = cn_fail(err, CN_E_BAD_REQUEST,
                         "unrecognized arguments: %s; --help lists the options", argv[at]);
    }
    if (rc == 0)
        rc = check_action(out, err);
    if (rc != 0)
        cn_torchserve_command_fini(out);
    return rc;
}

void
cn_torchserve_command_fini(struct cn_torchserve_command *command)
{
    for (int i = 0; i < CN_TS_N_FLAGS; i++)
        cn_free(command->values[i]);
    *command = (struct cn_torchserve_command){0};
}
