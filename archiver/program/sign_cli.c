/* archiver/program/sign_cli.c - continuo-archiver keygen and sign: key pairs, and signatures beside
 * archives. Archiver only.
 *
 * The files have minisign's formats, so the other side of each may be minisign itself. A password
 * is read from the terminal without echo. If standard input is not a terminal, its first line is
 * the password.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "archiver/program/subcommands.h"
#include "archiver/sign/sign.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"

static int
failed(const struct cn_error *err)
{
    fprintf(stderr, "continuo-archiver: error: %s\n", err->message);
    return CN_EXIT_FAILED;
}

/* Takes the value of a flag, "--flag VALUE" or "--flag=VALUE". */
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

/* Reads one line of standard input into `password`, without its end. The prompt goes to standard
 * error, because standard output may be a file that lists the signatures. */
static int
read_password(const char *prompt, char password[CN_SIGN_PASSWORD_MAX], struct cn_error *err)
{
    struct termios usual, quiet;
    bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &usual) == 0;
    size_t len;
    bool got;

    if (terminal) {
        fputs(prompt, stderr);
        quiet = usual;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    }
    got = fgets(password, CN_SIGN_PASSWORD_MAX, stdin) != NULL;
    if (terminal) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &usual);
        fputc('\n', stderr);
    }
    len = got ? strcspn(password, "\r\n") : 0;
    if (len == 0 || (password[len] == '\0' && !feof(stdin))) /* the line goes on */
        return cn_fail(err, CN_E_CONFIG, "a password must have 1 to %d bytes",
                       CN_SIGN_PASSWORD_MAX - 2);
    password[len] = '\0';
    return 0;
}

static int
new_password(char password[CN_SIGN_PASSWORD_MAX], struct cn_error *err)
{
    char again[CN_SIGN_PASSWORD_MAX];
    int rc = read_password("Password of the secret key: ", password, err);

    if (rc == 0 && isatty(STDIN_FILENO)) {
        rc = read_password("The same password again: ", again, err);
        if (rc == 0 && strcmp(password, again) != 0)
            rc = cn_fail(err, CN_E_CONFIG, "the two passwords differ");
        sodium_memzero(again, sizeof again);
    }
    return rc;
}

/* --- keygen */

/* Writes a new file. A key that is there already is never overwritten. */
static int
write_new(const char *path, mode_t mode, const struct cn_buf *text, struct cn_error *err)
{
    int error, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot make the key file %s", path);
    error = cn_write_out(fd, text->data, text->len);
    if (error)
        unlink(path);
    return error ? cn_fail_sys(err, CN_E_IO, error, "cannot write the key file %s", path) : 0;
}

static int
make_keys(const char *secret_path, const char *public_path, const char *password,
          struct cn_error *err)
{
    struct cn_sign_secret secret;
    struct cn_sign_public public;
    struct cn_buf secret_text, public_text;
    int rc;

    crypto_sign_keypair(public.key, secret.key);
    randombytes_buf(secret.id, sizeof secret.id);
    memcpy(public.id, secret.id, sizeof public.id);
    cn_buf_init(&secret_text, 0);
    cn_buf_init(&public_text, 0);
    cn_sign_public_print(&public, &public_text);
    rc = cn_sign_secret_print(&secret, password, &secret_text, err);
    if (rc == 0)
        rc = write_new(secret_path, 0600, &secret_text, err);
    if (rc == 0 && (rc = write_new(public_path, 0644, &public_text, err)) != 0)
        unlink(secret_path);
    if (rc == 0) {
        char id[CN_SIGN_ID_TEXT];

        printf("key %s: secret key in %s, public key in %s\n", cn_sign_id_text(public.id, id),
               secret_path, public_path);
    }
    sodium_memzero(&secret, sizeof secret);
    if (secret_text.len)
        sodium_memzero(secret_text.data, secret_text.len);
    cn_buf_fini(&secret_text);
    cn_buf_fini(&public_text);
    return rc;
}

int
cn_archiver_keygen(int argc, char **argv)
{
    const char *secret = NULL, *public = NULL;
    char password[CN_SIGN_PASSWORD_MAX];
    struct cn_error err = {0};
    bool plain = false, wrong = false;
    int rc = 0;

    for (int i = 0; i < argc; i++) {
        if (take_flag(argc, argv, &i, "--secret-key", &secret) ||
            take_flag(argc, argv, &i, "--public-key", &public))
            continue;
        if (strcmp(argv[i], "--no-password") == 0)
            plain = true;
        else
            wrong = true;
    }
    if (wrong || !secret || !public) {
        fputs("usage: continuo-archiver keygen --secret-key FILE --public-key FILE "
              "[--no-password]\n",
              stderr);
        return CN_EXIT_USAGE;
    }
    if (sodium_init() < 0)
        rc = cn_fail(&err, CN_E_INTERNAL, "libsodium cannot be used on this machine");
    if (rc == 0 && !plain)
        rc = new_password(password, &err);
    if (rc == 0)
        rc = make_keys(secret, public, plain ? NULL : password, &err);
    sodium_memzero(password, sizeof password);
    return rc ? failed(&err) : 0;
}

/* --- sign */

static int
read_secret(const char *path, struct cn_sign_secret *out, struct cn_error *err)
{
    char password[CN_SIGN_PASSWORD_MAX];
    struct cn_str text;
    int rc = cn_sign_read_file(path, &text, err);

    if (rc != 0)
        return rc;
    rc = cn_sign_secret_parse(path, text, NULL, out, err);
    if (rc == CN_SIGN_NEEDS_PASSWORD) {
        rc = read_password("Password of the secret key: ", password, err);
        if (rc == 0)
            rc = cn_sign_secret_parse(path, text, password, out, err);
        sodium_memzero(password, sizeof password);
    }
    sodium_memzero((void *)(uintptr_t)text.ptr, text.len);
    cn_free((void *)(uintptr_t)text.ptr);
    return rc;
}

int
cn_archiver_sign(int argc, char **argv)
{
    const char *secret_path = NULL, *comment = NULL;
    struct cn_sign_secret secret;
    struct cn_error err = {0};
    int rc, first = 0;

    while (first < argc && argv[first][0] == '-' &&
           (take_flag(argc, argv, &first, "--secret-key", &secret_path) ||
            take_flag(argc, argv, &first, "--comment", &comment)))
        first++;
    if (!secret_path || first >= argc || argv[first][0] == '-' ||
        (comment && !cn_sign_is_comment(cn_str_from(comment)))) {
        fputs("usage: continuo-archiver sign --secret-key FILE [--comment LINE] ARCHIVE ...\n",
              stderr);
        return CN_EXIT_USAGE;
    }
    if (sodium_init() < 0)
        rc = cn_fail(&err, CN_E_INTERNAL, "libsodium cannot be used on this machine");
    else
        rc = read_secret(secret_path, &secret, &err);
    for (; rc == 0 && first < argc; first++) {
        rc = cn_sign_file(&secret, argv[first], comment, &err);
        if (rc == 0)
            printf("%s" CN_SIGN_ENDING "\n", argv[first]);
    }
    sodium_memzero(&secret, sizeof secret);
    return rc ? failed(&err) : 0;
}
