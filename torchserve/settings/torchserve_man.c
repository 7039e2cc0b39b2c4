/* torchserve/settings/torchserve_man.c - prints the manual page torchserve(1) as troff, from the
 * tables of flags and keys. Main thread. */
#include "config/server/server_options.h"
#include "torchserve/settings/torchserve_config.h"

static void
put_flag(FILE *out, const char *name, const char *other, const char *arg, const char *help)
{
    fputs(".TP\n\\fB", out);
    cn_man_text(out, name);
    if (other[0] != '\0') {
        fputs("\\fR, \\fB", out);
        cn_man_text(out, other);
    }
    fprintf(out, "\\fR \\fI%s\\fR\n", arg);
    cn_man_text(out, help);
    fputs(".\n", out);
}

/* `option` is our option that the key sets, or "". */
static void
put_key(FILE *out, const char *key, const char *option, const char *text)
{
    fputs(".TP\n.B ", out);
    cn_man_text(out, key);
    fputc('\n', out);
    if (option[0] != '\0') {
        fputs("Sets the option \\fB\\-\\-", out);
        cn_man_text(out, option);
        fputs("\\fR of\n.BR continuo (1).\n", out);
        return;
    }
    cn_man_text(out, text);
    fputs(".\n", out);
}

void
cn_torchserve_man(FILE *out)
{
    fprintf(out, ".TH TORCHSERVE 1 \"\" \"continuo %s\" \"User Commands\"\n", CN_VERSION);
    fputs(".SH NAME\ntorchserve \\- continuo under TorchServe's name\n"
          ".SH SYNOPSIS\n.B torchserve\n[\\fB\\-\\-start\\fR | \\fB\\-\\-stop\\fR | "
          "\\fB\\-\\-version\\fR] \\fB\\-\\-model\\-store\\fR \\fIDIR\\fR "
          "[\\fIoptions\\fR]\n"
          ".SH DESCRIPTION\nStarts and stops the server with TorchServe's flags and files. Returns "
          "when the server is up, or when it is gone. Continuo's variables override TorchServe's "
          "variables (which count if the file allows them), these override flags, and flags "
          "override the file.\n"
          ".SH OPTIONS\n",
          out);
#define CN_TORCHSERVE_FLAG(id, flag, other, kind, key, arg, help)                                  \
    put_flag(out, flag, other, arg, help);
#include "torchserve/settings/torchserve_flags.def"
#undef CN_TORCHSERVE_FLAG
    fputs(
        ".SH CONFIG.PROPERTIES\nSettings are read from the first of these that is given: the file "
        "that the variable TS_CONFIG_FILE names, the file of\n.BR \\-\\-ts\\-config ,\nthe newest "
        "snapshot in logs/config, config.properties in the working folder. Each option "
        "of\n.BR continuo (1)\nis also a key, with\n.B continuo.\nbefore its name.\n",
        out);
#define CN_PROPERTY(key, kind, env, otherwise, flag, text) put_key(out, key, flag, text);
#include "torchserve/settings/properties.def"
#undef CN_PROPERTY
    fputs(
        ".SH FILES\n"
        ".TP\n.I .model_server.pid\nThe process id of the running server, in TMPDIR, TEMP, TMP or "
        "/tmp.\n"
        ".TP\n.I logs/\nLog files; LOG_LOCATION and METRICS_LOCATION name other folders.\n"
        ".TP\n.I logs/config/\nSnapshots of the configuration.\n"
        ".TP\n.I key_file.json\nThe keys that clients send with --token-auth.\n"
        ".SH SEE ALSO\n.BR continuo (1),\n.BR continuo.yaml (5),\n"
        ".BR continuo\\-archiver (1)\n",
        out);
}
