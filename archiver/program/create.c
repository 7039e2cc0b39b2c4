/* archiver/program/create.c - continuo-archiver create: packs an archive with the flags of
 * torch-model-archiver.
 *
 * Scripts that call TorchServe's archiver must go on working, so the flags are read as Python's
 * argparse reads them, which differs from getopt in four ways: a long flag may be shortened as long
 * as it stays unique (--model-n), a value may stand behind an equals sign (--version=1.0), behind a
 * letter without a space (-v1.0) or in the next argument, and that next argument must not begin
 * with a dash. Wrong command lines end with status 2 and a message in argparse's form.
 *
 * The flags are rows of archiver_options.def: each names the member of cn_pack_spec that gets its
 * value, and --help and the manual page are printed from the same rows. Four flags are not rows
 * because their values are not strings: --archive-format, --force, --no-check and --help. They are
 * numbered behind the rows. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "archiver/archive/archive_path.h"
#include "archiver/pack/pack.h"
#include "archiver/program/check_handler.h"
#include "archiver/program/subcommands.h"
#include "config/server/server_config.h"
#include "core/memory/mem.h"
#include "core/text/suggest.h"

static const struct {
    size_t offset;
    const char *flag, *arg, *help;
    char letter;
    bool required;
} options[] = {
#define CN_ARCHIVER_OPTION(field, flag, letter, arg, required, help)                               \
    {offsetof(struct cn_pack_spec, field), flag, arg, help, letter, required},
#include "archiver/program/archiver_options.def"
#undef CN_ARCHIVER_OPTION
};
#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

/* Behind the table's rows, by index. */
enum { FLAG_FORMAT = N_OPTIONS, FLAG_FORCE, FLAG_NO_CHECK, FLAG_HELP, N_FLAGS };

static const char *const formats[] = {"default", "zip-store", "tgz", "no-archive"};
static const char *const runtimes[] = {"python", "python3", "LSP", "lua", "c", "torch", "onnx"};

struct parse {
    const char *program;
    struct cn_pack_spec spec;
    bool help;
};

/* Does the flag stand alone, without a value? */
static bool
is_switch(size_t flag)
{
    return flag == FLAG_FORCE || flag == FLAG_NO_CHECK || flag == FLAG_HELP;
}

static const char *
flag_name(size_t flag)
{
    return flag == FLAG_FORMAT     ? "archive-format"
           : flag == FLAG_FORCE    ? "force"
           : flag == FLAG_NO_CHECK ? "no-check"
           : flag == FLAG_HELP     ? "help"
                                   : options[flag].flag;
}

static int
usage_error(const struct parse *p, const char *text, const char *detail)
{
    fprintf(stderr,
            "usage: %s --model-name NAME --version VERSION --handler FILE [options]\n"
            "%s: error: %s%s\n",
            p->program, p->program, text, detail);
    return CN_EXIT_USAGE;
}

/* Finds a long flag by its name or by a beginning of it that only one flag has. Returns N_FLAGS if
 * no flag, or more than one, begins so. */
static size_t
find_long(struct cn_str name)
{
    size_t found = N_FLAGS;

    for (size_t i = 0; i < N_FLAGS; i++) {
        struct cn_str full = cn_str_from(flag_name(i));

        if (cn_str_eq(full, name))
            return i;
        if (name.len > 0 && name.len < full.len && memcmp(full.ptr, name.ptr, name.len) == 0)
            found = found == N_FLAGS ? i : N_FLAGS + 1;
    }
    return found > N_FLAGS ? N_FLAGS : found;
}

static size_t
find_short(char letter)
{
    if (letter == 'f')
        return FLAG_FORCE;
    if (letter == 'h')
        return FLAG_HELP;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (options[i].letter != '\0' && options[i].letter == letter)
            return i;
    }
    return N_FLAGS;
}

static int
unknown_flag(const struct parse *p, const char *arg)
{
    const char *names[N_FLAGS], *near;
    char detail[256], shown[CN_YAML_SHOWN_MAX];
    struct cn_str word = {arg, strcspn(arg, "=")};

    while (word.len > 0 && word.ptr[0] == '-') {
        word.ptr++;
        word.len--;
    }
    for (size_t i = 0; i < N_FLAGS; i++)
        names[i] = flag_name(i);
    near = cn_suggest(word, names, N_FLAGS);
    cn_yaml_shown(cn_str_from(arg), shown);
    if (near != NULL)
        snprintf(detail, sizeof(detail), "%s (did you mean --%s?)", shown, near);
    else
        snprintf(detail, sizeof(detail), "%s", shown);
    return usage_error(p, "unrecognized arguments: ", detail);
}

static int
choose(const struct parse *p, const char *flag, const char *value, const char *const *words,
       size_t n, size_t *chosen)
{
    char text[256], shown[CN_YAML_SHOWN_MAX];
    size_t used;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(value, words[i]) == 0) {
            *chosen = i;
            return 0;
        }
    }
    used = (size_t)snprintf(text, sizeof(text), "argument --%s: invalid choice: '%s' (choose from",
                            flag, cn_yaml_shown(cn_str_from(value), shown));
    for (size_t i = 0; i < n; i++)
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s '%s'", i ? "," : "", words[i]);
    snprintf(text + used, sizeof(text) - used, ")");
    return usage_error(p, text, "");
}

/* Stores the value of a flag. A row's value is a string, which is put at the row's offset in
 * cn_pack_spec. */
static int
take(struct parse *p, size_t flag, const char *value)
{
    size_t chosen = 0;
    int rc = 0;

    if (flag == FLAG_FORCE) {
        p->spec.force = true;
    } else if (flag == FLAG_NO_CHECK) {
        p->spec.no_check = true;
    } else if (flag == FLAG_HELP) {
        p->help = true;
    } else if (flag == FLAG_FORMAT) {
        rc = choose(p, "archive-format", value, formats, 4, &chosen);
        if (rc == 0) /* `formats` is in the enum's order */
            p->spec.format = (enum cn_pack_format)chosen;
    } else {
        if (strcmp(options[flag].flag, "runtime") == 0)
            rc = choose(p, "runtime", value, runtimes, sizeof(runtimes) / sizeof(*runtimes),
                        &chosen);
        *(const char **)((char *)&p->spec + options[flag].offset) = value;
    }
    return rc;
}

static int
parse(struct parse *p, int argc, char **argv)
{
    for (int i = 0; i < argc && !p->help; i++) {
        const char *arg = argv[i], *value = NULL;
        size_t flag;
        int rc;

        if (strncmp(arg, "--", 2) == 0) {
            size_t len = strcspn(arg + 2, "=");
            flag = find_long((struct cn_str){arg + 2, len});
            value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
        } else {
            flag = arg[0] == '-' && arg[1] != '\0' ? find_short(arg[1]) : N_FLAGS;
            value = flag < N_FLAGS && arg[2] != '\0' ? arg + 2 : NULL; /* -v1.0 */
        }
        if (flag == N_FLAGS || (value != NULL && is_switch(flag)))
            return unknown_flag(p, arg);
        if (value == NULL && !is_switch(flag)) {
            if (i + 1 >= argc || (argv[i + 1][0] == '-' && argv[i + 1][1] != '\0')) {
                char text[96];
                snprintf(text, sizeof(text), "argument --%s: expected one argument",
                         flag_name(flag));
                return usage_error(p, text, "");
            }
            value = argv[++i];
        }
        rc = take(p, flag, value);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
check_required(const struct parse *p)
{
    char missing[256] = "";

    for (size_t i = 0; i < N_OPTIONS; i++) {
        const char *value = *(const char *const *)((const char *)&p->spec + options[i].offset);

        if (!options[i].required || value != NULL)
            continue;
        if (strcmp(options[i].flag, "handler") == 0 && cn_pack_is_model(&p->spec))
            continue;
        if (missing[0] != '\0')
            strcat(missing, ", ");
        strcat(missing, "--");
        strcat(missing, options[i].flag);
    }
    return missing[0] ? usage_error(p, "the following arguments are required: ", missing) : 0;
}

static void
warn(void *ctx, const char *line)
{
    fprintf(stderr, "%s: warning: %s\n", (const char *)ctx, line);
}

/* Says what was written, and how it is served. */
static void
show_result(const struct cn_pack_spec *spec, const struct cn_pack_result *result)
{
    const char *file = cn_basename(result->path);
    const char *store = spec->export_path ? spec->export_path : ".";

    if (result->sha256[0] != '\0')
        printf("%s: %" PRIu64 " bytes, sha256 %s\n", result->path, result->bytes, result->sha256);
    else
        printf("%s: folder\n", result->path);
    printf("model %s, version %s; %s %s; settings: %s\n", spec->model_name, spec->version,
           spec->handler ? "handler" : "file",
           cn_basename(spec->handler ? spec->handler : spec->serialized_file),
           spec->config_file ? cn_basename(spec->config_file) : "the defaults");
    printf("serve it: continuo --model-store %s --models %s=%s\n", store, spec->model_name, file);
}

int
cn_archiver_create(const char *program, int argc, char **argv, bool quiet)
{
    struct parse p = {.program = program};
    struct cn_pack_result result;
    struct cn_error err = {0};
    int rc = parse(&p, argc, argv);

    if (rc == 0 && p.help) {
        cn_archiver_help(program, stdout);
        return 0;
    }
    if (rc == 0)
        rc = check_required(&p);
    if (rc != 0)
        return rc;
    if (!p.spec.no_check)
        rc = cn_archiver_check_handler(&p.spec, warn, (void *)(uintptr_t)program, &err);
    if (rc != 0 || cn_pack(&p.spec, warn, (void *)(uintptr_t)program, &result, &err) != 0) {
        fprintf(stderr, "%s: error: %s\n", program, err.message);
        return CN_EXIT_FAILED;
    }
    if (!quiet)
        show_result(&p.spec, &result);
    cn_free(result.path);
    return 0;
}

static void
put_man(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fprintf(out, *text == '-' ? "\\%c" : "%c", *text);
}

/* Returns whether help should say "required". The help of --handler says itself when it is. */
static bool
is_plainly_required(size_t option)
{
    return options[option].required && strstr(options[option].help, "required") == NULL;
}

void
cn_archiver_help(const char *program, FILE *out)
{
    fprintf(
        out,
        "usage: %s [create] --model-name NAME --version VERSION --handler FILE [options]\n"
        "       %s import DIR [--handler FILE] [--export-path DIR] [--force]\n"
        "       %s inspect [--json] ARCHIVE\n"
        "       %s verify [--trusted-keys FILE] ARCHIVE ...\n"
        "       %s keygen --secret-key FILE --public-key FILE [--no-password]\n"
        "       %s sign --secret-key FILE [--comment LINE] ARCHIVE ...\n"
        "       %s suggest MODEL.onnx|MODEL.pt|MODEL.pt2\n\n"
        "  create   packs a model archive; it has the flags of torch-model-archiver, and under "
        "that\n"
        "           name the program prints nothing on success\n"
        "  import   makes archives of the folder of a model in a Triton repository, and lists the\n"
        "           settings that it could not carry over\n"
        "  inspect  shows what is in an archive\n"
        "  verify   checks an archive, and its signature if --trusted-keys is given\n"
        "  keygen   makes a pair of keys in the format of minisign\n"
        "  sign     writes ARCHIVE.minisig, which a server with --trusted-keys requires\n"
        "  suggest  guesses the YAML of a model of ONNX or PyTorch and prints it\n\n"
        "These are the flags of create:\n\n",
        program, program, program, program, program, program, program);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        char flag[64], help[512], letter[5] = "";

        if (options[i].letter)
            snprintf(letter, sizeof(letter), "-%c, ", options[i].letter);
        snprintf(flag, sizeof(flag), "%s--%s %s", letter, options[i].flag, options[i].arg);
        snprintf(help, sizeof(help), "%s%s", options[i].help,
                 is_plainly_required(i) ? " (required)" : "");
        cn_print_flag(out, flag, help);
    }
    cn_print_flag(out, "--archive-format WORD",
                  "default (.mar), zip-store (.mar), tgz (.tar.gz) or no-archive");
    cn_print_flag(out, "-f, --force", "overwrite an existing archive");
    cn_print_flag(out, "--no-check",
                  "do not look for mistakes in the handler's source and in declared tensors");
    fputs("\nExit status: 0 on success, 1 on failure, 2 for a wrong command line.\n", out);
}

void
cn_archiver_man(FILE *out)
{
    fprintf(out, ".TH CONTINUO\\-ARCHIVER 1 \"\" \"continuo %s\" \"User Commands\"\n", CN_VERSION);
    fputs(".SH NAME\ncontinuo\\-archiver \\- pack, inspect and verify model archives\n"
          ".SH SYNOPSIS\n.B continuo\\-archiver\n[\\fBcreate\\fR] \\fIoptions\\fR\n.br\n"
          ".B continuo\\-archiver import\n\\fIDIR\\fR [\\fB\\-\\-handler\\fR \\fIFILE\\fR] "
          "[\\fB\\-\\-export\\-path\\fR \\fIDIR\\fR] [\\fB\\-\\-force\\fR]\n.br\n"
          ".B continuo\\-archiver inspect\n[\\fB\\-\\-json\\fR] \\fIARCHIVE\\fR\n.br\n"
          ".B continuo\\-archiver verify\n[\\fB\\-\\-trusted\\-keys\\fR \\fIFILE\\fR] "
          "\\fIARCHIVE\\fR ...\n.br\n"
          ".B continuo\\-archiver keygen\n\\fB\\-\\-secret\\-key\\fR \\fIFILE\\fR "
          "\\fB\\-\\-public\\-key\\fR \\fIFILE\\fR [\\fB\\-\\-no\\-password\\fR]\n.br\n"
          ".B continuo\\-archiver sign\n\\fB\\-\\-secret\\-key\\fR \\fIFILE\\fR "
          "[\\fB\\-\\-comment\\fR \\fILINE\\fR] \\fIARCHIVE\\fR ...\n.br\n"
          ".B continuo\\-archiver suggest\n\\fIMODEL\\fR\n"
          ".SH DESCRIPTION\nWithout a command, or called as torch\\-model\\-archiver, it takes the "
          "flags of that program and prints nothing on success. The same input always gives the "
          "same bytes: the times in an archive are 1980, and SOURCE_DATE_EPOCH sets the manifest's "
          "createdOn. import turns the folder of a model in a Triton repository (config.pbtxt and "
          "numbered versions) into archives, and lists the settings that it could not carry over. "
          "suggest guesses the YAML of an ONNX model (.onnx), a TorchScript model (.pt), or a "
          "package of AOTInductor or an exported program (.pt2), and prints it.\n.PP\n"
          "keygen makes a pair of Ed25519 keys in the file formats of minisign(1). It reads a "
          "password for the secret key, unless \\-\\-no\\-password is given. sign writes "
          "\\fIARCHIVE\\fR.minisig beside each archive, with the time and the file's name as its "
          "trusted comment. A server with trusted\\-keys, and verify with "
          "\\-\\-trusted\\-keys, refuse an archive without the signature of one of these keys.\n"
          ".SH OPTIONS\n",
          out);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        fputs(".TP\n", out);
        if (options[i].letter)
            fprintf(out, "\\fB\\-%c\\fR, ", options[i].letter);
        fputs("\\fB\\-\\-", out);
        put_man(out, options[i].flag);
        fprintf(out, "\\fR \\fI%s\\fR\n", options[i].arg);
        put_man(out, options[i].help);
        fputs(is_plainly_required(i) ? ". Required.\n" : ".\n", out);
    }
    fputs(".TP\n.B \\-\\-archive\\-format\ndefault (.mar), zip\\-store (.mar, not compressed), tgz "
          "(.tar.gz) or no\\-archive (a folder).\n"
          ".TP\n.BR \\-f \", \" \\-\\-force\nOverwrite an existing archive.\n"
          ".TP\n.B \\-\\-no\\-check\nDo not look for mistakes in the handler's source.\n"
          ".SH EXIT STATUS\n0 on success, 1 on failure, 2 for a wrong command line.\n"
          ".SH SEE ALSO\n.BR continuo (1),\n.BR continuo.yaml (5)\n",
          out);
}
