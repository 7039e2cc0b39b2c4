/* develop/scaffold.c - continuo new: writes the files of a new model. One thread.
 *
 * The files of a new model are templates in develop/templates, which the build puts into the
 * program as arrays. In them @NAME@ stands for the model's name, @PACK@ for the archiver's option,
 * @NEEDS@ for what must be installed, and @STEP@ for the body of a first step:
 *   continuo-archiver --model-name @NAME@ ... @PACK@
 * becomes, for `continuo new lua counter`, ... --handler counter/handler.lua. The values of @PACK@
 * have @NAME@ in them, so fill_in() calls itself for them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "develop/develop.h"

enum { LUA = 1, PYTHON = 2, C = 4, TORCH = 8, ONNX = 16, DEMO = 32 };

#define CN_TEMPLATE(array, file, kinds, program)                                                   \
    extern const unsigned char cn_template_##array[];                                              \
    extern const size_t cn_template_##array##_bytes;
#include "develop/templates.def"
#undef CN_TEMPLATE

static const struct {
    const unsigned char *bytes;
    const size_t *n_bytes;
    const char *file;
    unsigned kinds;
    bool program;
} templates[] = {
#define CN_TEMPLATE(array, file, kinds, program)                                                   \
    {cn_template_##array, &cn_template_##array##_bytes, file, kinds, program},
#include "develop/templates.def"
#undef CN_TEMPLATE
};

/* `pack` is the flag by which continuo-archiver gets the model; `step` is a step for curl; `needs`
 * is a sentence about what must be installed. */
static const struct {
    const char *word;
    unsigned kind;
    const char *pack, *step, *needs;
} kinds[] = {
    {"lua", LUA, "--handler @NAME@/handler.lua", "4", ""},
    {"python", PYTHON, "--handler @NAME@/handler.py", "4", ""},
    {"c", C, "--handler @NAME@/handler.so", "4",
     " `build.sh` compiles the handler with `cc`; the variable `CC` names another compiler."},
    {"torch", TORCH, "--serialized-file @NAME@/model.pt", "{\"x\": [[4]]}",
     " `build.sh` makes the model with PyTorch, so activate an environment that has it "
     "(`pip install torch`), or name its interpreter in the variable `PYTHON`."},
    {"onnx", ONNX, "--serialized-file @NAME@/model.onnx", "{\"x\": [[4]]}",
     " `build.sh` makes the model with the package `onnx`, and the server runs it with "
     "`onnxruntime`, so activate an environment that has both (`pip install onnx onnxruntime`)."},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static bool
is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= CN_DEVELOP_NAME_MAX && strchr("_-.", name[0]) == NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == len;
}

/* Appends the text with the words between @ replaced. */
static void
fill_in(struct cn_str text, const char *name, size_t kind, struct cn_buf *out)
{
    const struct {
        const char *word, *value;
    } words[] = {{"@PACK@", kinds[kind].pack},
                 {"@STEP@", kinds[kind].step},
                 {"@NEEDS@", kinds[kind].needs},
                 {"@NAME@", name}};
    const size_t n_words = sizeof words / sizeof words[0];

    for (size_t at = 0; at < text.len;) {
        size_t i = 0, len = 0;

        for (; i < n_words; i++) {
            len = strlen(words[i].word);
            if (text.len - at >= len && memcmp(text.ptr + at, words[i].word, len) == 0)
                break;
        }
        if (i == n_words) {
            cn_buf_append(out, text.ptr + at++, 1);
            continue;
        }
        if (i == n_words - 1)
            cn_buf_puts(out, name);
        else
            fill_in(cn_str_from(words[i].value), name, kind, out);
        at += len;
    }
}

int
cn_develop_write_file(const char *path, struct cn_str bytes, bool program, struct cn_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, program ? 0777 : 0666), rc = 0;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot write %.300s", path);
    if (write(fd, bytes.ptr, bytes.len) != (ssize_t)bytes.len)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %.300s", path);
    if (close(fd) < 0 && rc == 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %.300s", path);
    return rc;
}

static int
write_project(const char *name, size_t kind, struct cn_error *err)
{
    int rc = 0;

    if (mkdir(name, 0777) < 0)
        return errno == EEXIST
                   ? cn_fail(err, CN_E_CONFLICT,
                             "%s exists already; choose another name, or remove it", name)
                   : cn_fail_sys(err, CN_E_IO, errno, "cannot make the folder %s", name);
    for (size_t i = 0; rc == 0 && i < sizeof templates / sizeof templates[0]; i++) {
        const char *file = strchr(templates[i].file, '/') + 1;
        struct cn_buf text;
        char path[CN_DEVELOP_NAME_MAX + 64];

        if (!(templates[i].kinds & kinds[kind].kind))
            continue;
        cn_buf_init(&text, 0);
        fill_in((struct cn_str){(const char *)templates[i].bytes, *templates[i].n_bytes}, name,
                kind, &text);
        snprintf(path, sizeof path, "%s/%s", name, file);
        rc = cn_develop_write_file(path, cn_buf_str(&text), templates[i].program, err);
        if (rc == 0)
            cn_develop_say(false, "%s", path);
        cn_buf_fini(&text);
    }
    return rc;
}

int
cn_develop_new(int argc, char **argv)
{
    struct cn_error err;
    size_t kind = 0;

    if (argc != 2) {
        fputs("usage: continuo new lua|python|c|torch|onnx NAME\n", stderr);
        return CN_DEVELOP_USAGE;
    }
    while (kind < N_KINDS && strcmp(kinds[kind].word, argv[0]) != 0)
        kind++;
    if (kind == N_KINDS) {
        cn_develop_error("\"%.40s\" is not a kind of model; write lua, python, c, torch or onnx",
                         argv[0]);
        return CN_DEVELOP_USAGE;
    }
    if (!is_name(argv[1])) {
        cn_develop_error("\"%.80s\" cannot be the name of a model: a name has up to %d letters, "
                         "digits, '_', '-' and '.', and begins with a letter or a digit",
                         argv[1], CN_DEVELOP_NAME_MAX);
        return CN_DEVELOP_USAGE;
    }
    if (write_project(argv[1], kind, &err)) {
        cn_develop_error("%s", err.message);
        return CN_DEVELOP_FAILED;
    }
    cn_develop_say(true, "next: continuo test %s, then continuo dev %s", argv[1], argv[1]);
    return CN_DEVELOP_FINE;
}
