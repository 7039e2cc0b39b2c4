/* management/api/tokens.c - the keys that callers must show. They are checked on any thread and
 * changed on loop 0.
 *
 * A key is 6 random bytes in base64url, which are 8 characters: one number that can be read and
 * written atomically. A key and its expiry are two numbers, though, and no lock holds them
 * together. So a change stores the expiry 0, the key, and the new expiry, in this order. A reader
 * reads the expiry, the key, and the expiry again; if both expiries are equal, the key belongs to
 * them.
 *
 * A new key is first written to the file and used only when that has succeeded, so the file never
 * has a key that no longer works.
 */
#include "management/api/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/key_text.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/system/random.h"
#include "core/system/write_file.h"
#include "core/time/clock.h"

#define KEY_BYTES 8
#define RANDOM_BYTES 6

struct token {
    _Atomic uint64_t key; /* the 8 characters of the key */
    _Atomic uint64_t expires_wall_ms;
};

struct cn_tokens {
    struct token tokens[CN_N_TOKENS];
    uint64_t lifetime_ms;
    bool renewing;
    char *path, *path_new;
};

static uint64_t
make_key(void)
{
    unsigned char bytes[RANDOM_BYTES];
    char text[KEY_BYTES + 1];
    uint64_t key;

    cn_random_bytes(bytes, sizeof bytes);
    sodium_bin2base64(text, sizeof text, bytes, sizeof bytes,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    memcpy(&key, text, sizeof key);
    return key;
}

static void
put(struct token *token, uint64_t key, uint64_t expires_wall_ms)
{
    atomic_store(&token->expires_wall_ms, 0);
    atomic_store(&token->key, key);
    atomic_store(&token->expires_wall_ms, expires_wall_ms);
}

/* --- the file */

/* Prints the file as it is now, with a new key in the place of one of them. */
static void
show(const struct cn_tokens *tokens, enum cn_token_kind kind, uint64_t key,
     uint64_t expires_wall_ms, char out[512])
{
    uint64_t keys[CN_N_TOKENS], expiries[CN_N_TOKENS];
    char times[CN_N_TOKENS][32];
    int i;

    for (i = 0; i < CN_N_TOKENS; i++) {
        keys[i] = i == (int)kind ? key : atomic_load(&tokens->tokens[i].key);
        expiries[i] =
            i == (int)kind ? expires_wall_ms : atomic_load(&tokens->tokens[i].expires_wall_ms);
        if (i != CN_TOKEN_API)
            cn_wall_format(expiries[i], times[i]);
    }
    snprintf(out, 512,
             "{\n"
             "  \"management\": {\n    \"key\": \"%.8s\",\n    \"expiration time\": \"%s\"\n  },\n"
             "  \"inference\": {\n    \"key\": \"%.8s\",\n    \"expiration time\": \"%s\"\n  },\n"
             "  \"API\": {\n    \"key\": \"%.8s\"\n  }\n"
             "}\n",
             (const char *)&keys[CN_TOKEN_MANAGEMENT], times[CN_TOKEN_MANAGEMENT],
             (const char *)&keys[CN_TOKEN_INFERENCE], times[CN_TOKEN_INFERENCE],
             (const char *)&keys[CN_TOKEN_API]);
}

static int
fail_write(const struct cn_tokens *tokens, int why, struct cn_error *err)
{
    return cn_fail_sys(err, CN_E_CONFIG, why, "cannot write the keys to %s (token-file)",
                       tokens->path);
}

/* On a full disk: writes over the file, which has the same length each time. Only if the file is
 * ours and no other user can read it. Returns 0 or the errno. */
static int
write_over(const struct cn_tokens *tokens, const char *text)
{
    int fd = open(tokens->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC), failed = 0;
    size_t len = strlen(text);
    struct stat st;

    if (fd < 0)
        return ENOSPC;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid() ||
        (st.st_mode & 077) || (size_t)st.st_size != len || pwrite(fd, text, len, 0) != (ssize_t)len)
        failed = ENOSPC;
    close(fd);
    return failed;
}

static int
write_file(const struct cn_tokens *tokens, const char *text, struct cn_error *err)
{
    int failed = cn_write_file_atomically(tokens->path, tokens->path_new, 0600, text, strlen(text));

    if (failed == ENOSPC || failed == EDQUOT)
        failed = write_over(tokens, text);
    return failed ? fail_write(tokens, failed, err) : 0;
}

/* --- begin and end */

int
cn_tokens_create(const char *path, uint64_t lifetime_ms, struct cn_tokens **out,
                 struct cn_error *err)
{
    struct cn_tokens *tokens = cn_alloc(sizeof *tokens);
    uint64_t now_ms = cn_wall_ms();
    char text[512];
    size_t room = strlen(path) + sizeof(".new");
    int i, rc;

    tokens->lifetime_ms = lifetime_ms;
    tokens->path = cn_strdup(path);
    tokens->path_new = cn_alloc(room);
    snprintf(tokens->path_new, room, "%s.new", path);
    for (i = 0; i < CN_N_TOKENS; i++)
        put(&tokens->tokens[i], make_key(),
            i == CN_TOKEN_API ? CN_NEVER : now_ms + tokens->lifetime_ms);
    show(tokens, CN_N_TOKENS, 0, 0, text);
    rc = write_file(tokens, text, err);
    if (rc) {
        cn_tokens_destroy(tokens);
        return rc;
    }
    *out = tokens;
    return 0;
}

void
cn_tokens_destroy(struct cn_tokens *tokens)
{
    if (!tokens)
        return;
    sodium_memzero(tokens->tokens, sizeof tokens->tokens);
    cn_free(tokens->path);
    cn_free(tokens->path_new);
    cn_free(tokens);
}

/* --- a request's key */

/* The key of "Bearer KEY" with any blanks between; empty if it is something else. The scheme
 * must be written in this way, and the key has no blanks. */
static struct cn_str
key_of(struct cn_str authorization)
{
    const struct cn_str key = cn_key_text_of_bearer(authorization);
    size_t i;

    if (!cn_str_begins(authorization, CN_STR("Bearer")))
        return (struct cn_str){NULL, 0};
    for (i = 0; i < key.len; i++)
        if (key.ptr[i] == ' ' || key.ptr[i] == '\t')
            return (struct cn_str){NULL, 0};
    return key;
}

int
cn_tokens_check(const struct cn_tokens *tokens, enum cn_token_kind kind,
                struct cn_str authorization, struct cn_error *err)
{
    const struct token *token = &tokens->tokens[kind];
    struct cn_str given = key_of(authorization);
    uint64_t before = atomic_load(&token->expires_wall_ms), key = atomic_load(&token->key);
    uint64_t after = atomic_load(&token->expires_wall_ms);

    if (given.len == KEY_BYTES && sodium_memcmp(&key, given.ptr, KEY_BYTES) == 0 &&
        before == after && cn_wall_ms() < before)
        return 0;
    return cn_fail(
        err, CN_E_TOKEN,
        "Token Authorization failed. Token either incorrect, expired, or not provided correctly");
}

/* --- renewal */

static void
work_renew(struct cn_file_task *task)
{
    struct cn_token_renewal *renewal = cn_container_of(task, struct cn_token_renewal, task);

    write_file(renewal->tokens, renewal->text, &renewal->err);
    sodium_memzero(renewal->text, sizeof renewal->text);
}

static void
done_renew(struct cn_file_task *task)
{
    struct cn_token_renewal *renewal = cn_container_of(task, struct cn_token_renewal, task);
    struct cn_tokens *tokens = renewal->tokens;

    tokens->renewing = false;
    if (renewal->err.code == 0)
        put(&tokens->tokens[renewal->kind], renewal->key, renewal->expires_wall_ms);
    renewal->on_done(renewal);
}

int
cn_tokens_renew(struct cn_tokens *tokens, struct cn_file_thread *files,
                struct cn_token_renewal *renewal, struct cn_error *err)
{
    cn_assert(renewal->kind != CN_TOKEN_API);
    if (tokens->renewing)
        return cn_fail(err, CN_E_CONFLICT, "another key is being created; try again");
    tokens->renewing = true;
    renewal->tokens = tokens;
    renewal->err.code = 0;
    renewal->key = make_key();
    renewal->expires_wall_ms = cn_wall_ms() + tokens->lifetime_ms;
    show(tokens, renewal->kind, renewal->key, renewal->expires_wall_ms, renewal->text);
    renewal->task.work = work_renew;
    renewal->task.done = done_renew;
    cn_file_thread_run(files, &renewal->task);
    return 0;
}
