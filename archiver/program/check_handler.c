/* archiver/program/check_handler.c - finds mistakes in a handler's source before it is packed.
 * Archiver only, one thread.
 *
 * A worker would find the same mistakes when it loads the model, but then the archive is on the
 * server already. The source is compiled and never run: a handler may need packages, devices or
 * files that this machine lacks. Names of functions are therefore read from the text, line by line,
 * and what is found there is a warning only. */
#include "archiver/program/check_handler.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/python_handler.h"
#include "core/memory/mem.h"
#include "proto/handler_names.h"

#define SOURCE_MAX_BYTES (16u << 20) /* the worker reads no larger Lua file */

/* How a handler's function begins in a line of Lua and of Python. */
static const char *const begins[] = {
    [CN_HANDLER_IN_LUA] = "function ", [CN_HANDLER_IN_PYTHON] = "def "};

/* The exit status of the program below for a syntax error, whose text it prints. */
#define PYTHON_FOUND_ERROR 3
static const char python_program[] =
    "import sys\n"
    "try:\n"
    "    compile(open(sys.argv[1], 'rb').read(), 'h', 'exec')\n"
    "except SyntaxError as e:\n"
    "    print(f'{e.lineno}: {type(e).__name__}: {e.msg}', end='')\n"
    "    sys.exit(3)\n"
    "except ValueError as e:\n"
    "    print(f'1: {e}', end='')\n"
    "    sys.exit(3)\n";

extern char **environ;

/* --- misspelt functions --- */

/* The name of the function that the line defines; empty if it defines none. */
static struct cn_str
defined_function(struct cn_str line, enum cn_handler_language language)
{
    const char *word = begins[language];
    const char *end = line.ptr + line.len, *at, *name;

    for (at = line.ptr; at < end && (*at == ' ' || *at == '\t'); at++)
        ;
    if ((size_t)(end - at) > 6 && memcmp(at, "async ", 6) == 0)
        at += 6;
    if ((size_t)(end - at) < strlen(word) || memcmp(at, word, strlen(word)) != 0)
        return (struct cn_str){NULL, 0};
    name = at += strlen(word);
    for (; at < end && (isalnum((unsigned char)*at) || *at == '_' || *at == '.'); at++)
        if (*at == '.')
            name = at + 1;
    return (struct cn_str){name, (size_t)(at - name)};
}

/* Takes the next line from `rest`. */
static struct cn_str
take_line(struct cn_str *rest)
{
    const char *end = memchr(rest->ptr, '\n', rest->len);
    struct cn_str line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t taken = line.len + (end ? 1 : 0);

    *rest = (struct cn_str){rest->ptr + taken, rest->len - taken};
    return line;
}

static void
check_names(const char *file, struct cn_str source, enum cn_handler_language language,
            cn_config_warn_fn warn, void *ctx)
{
    uint32_t present = 0, entry_points = cn_handler_name_bit(CN_STR("step"), language) |
                                         cn_handler_name_bit(CN_STR("batch"), language);
    struct cn_str rest = source;

    while (rest.len)
        present |= cn_handler_name_bit(defined_function(take_line(&rest), language), language);
    if (!(present & entry_points)) /* TorchServe's or Triton's, or a table without functions */
        return;
    rest = source;
    for (unsigned number = 1; rest.len; number++) {
        struct cn_str name = defined_function(take_line(&rest), language);
        bool certain;
        const char *meant = cn_handler_name_meant(name, present, language, &certain);
        char text[512];

        if (!meant)
            continue;
        snprintf(text, sizeof text, "%.200s:%u: %.*s is never called: the server calls %s", file,
                 number, (int)(name.len < 80 ? name.len : 80), name.ptr, meant);
        warn(ctx, text);
    }
}

/* --- syntax --- */

/* The length of what the worker leaves out at the beginning of a Lua file: a byte order mark, and a
 * first line that begins with #. */
static size_t
skipped_head(struct cn_str source)
{
    size_t at = source.len >= 3 && memcmp(source.ptr, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (at < source.len && source.ptr[at] == '#')
        while (at < source.len && source.ptr[at] != '\n')
            at++;
    return at;
}

static int
check_lua(const char *file, struct cn_str source, struct cn_error *err)
{
    lua_State *L = luaL_newstate();
    size_t head = skipped_head(source);
    char chunk[300];
    int rc = 0;

    if (!L)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to check %s", file);
    snprintf(chunk, sizeof chunk, "@%s", file);
    if (luaL_loadbufferx(L, source.ptr + head, source.len - head, chunk, "t") != LUA_OK)
        rc = cn_fail(err, CN_E_BAD_REQUEST, "%s", lua_tostring(L, -1));
    lua_close(L);
    return rc;
}

/* Reads what the program prints until it ends. Returns its exit status, or -1. */
static int
python_output(const char *path, char *out, size_t room)
{
    const char *const argv[] = {"python3", "-IS", "-Wignore", "-c", python_program, path, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], status = -1, rc;
    size_t len = 0;
    ssize_t n;
    pid_t pid;

    if (pipe(fds) < 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fds[0]);
    posix_spawn_file_actions_addclose(&actions, fds[1]);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    if (rc == 0) {
        while (len < room - 1 &&
               ((n = read(fds[0], out + len, room - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
            len += n > 0 ? (size_t)n : 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(fds[0]);
    out[len] = '\0';
    return rc == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int
check_python(const char *file, const char *path, struct cn_error *err)
{
    char text[400];

    if (python_output(path, text, sizeof text) != PYTHON_FOUND_ERROR)
        return 0; /* it compiles, or there is no interpreter that could tell */
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "%s:%s (found by the python3 of this machine; --no-check packs it as it is)",
                   file, text);
}

/* --- the file --- */

/* Reads the file into `source`; empty where that is not possible. */
static void
read_source(const char *path, struct cn_buf *source)
{
    FILE *file = fopen(path, "rbe");
    char bytes[16384];
    size_t n;

    while (file && (n = fread(bytes, 1, sizeof bytes, file)) > 0)
        cn_buf_append(source, bytes, n);
    if (file)
        fclose(file);
}

int
cn_archiver_check_handler(const struct cn_pack_spec *spec, cn_config_warn_fn warn, void *ctx,
                          struct cn_error *err)
{
    enum cn_handler_language language = CN_HANDLER_IN_LUA;
    char path[CN_ARCHIVE_PATH_MAX];
    const char *name;
    struct cn_buf source;
    struct stat st;
    int rc = 0;

    if (!spec->handler)
        return 0;
    snprintf(path, sizeof path, "%s", spec->handler);
    if (cn_has_suffix(path, ".so") || cn_python_handler_is_built_in(spec->handler))
        return 0;
    if (!cn_has_suffix(path, ".lua")) {
        language = CN_HANDLER_IN_PYTHON;
        if (!cn_python_handler_file(spec->handler, path, sizeof path))
            return 0;
    }
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)SOURCE_MAX_BYTES)
        return 0;
    name = cn_basename(path);
    cn_buf_init(&source, SOURCE_MAX_BYTES + 16384);
    read_source(path, &source);
    if (source.len) {
        rc = language == CN_HANDLER_IN_LUA ? check_lua(name, cn_buf_str(&source), err)
                                           : check_python(name, path, err);
        if (rc == 0)
            check_names(name, cn_buf_str(&source), language, warn, ctx);
    }
    cn_buf_fini(&source);
    return rc;
}
