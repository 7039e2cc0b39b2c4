/* ctl/verbs/key_commands.c - makes, lists and revokes the named keys of a server's file (--keys),
 * and shows what they use.
 *
 * Except for the last, these commands work on the file alone: they need no server, and no server
 * may have to be reached when a key has leaked. The server reads the file again on SIGHUP. The
 * folder of the file is locked while a command changes it, so that of two commands at once neither
 * loses the other's change. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/key_certificates.h"
#include "access/key_limits.h"
#include "access/key_text.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "core/time/clock.h"
#include "ctl/columns.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

#define ADVICE                                                                                     \
    "The key is shown only now; the file has its hash. A running server reads the file again on "  \
    "SIGHUP.\n"

/* The file while a command changes it. */
struct change {
    char *path; /* of the file itself, if a link leads to it */
    struct cn_key_file file;
    int folder; /* locked */
    bool is_new;
    struct stat old; /* the file before, if it is not new */
};

/* Locks the folder and reads the file. A missing file has no keys yet, if `may_begin`. */
static int
change_begin(struct change *change, const char *path, bool may_begin, struct cn_error *err)
{
    char *real = realpath(path, NULL), *folder, *slash;
    int rc;

    change->path = cn_strdup(real ? real : path);
    free(real); /* realpath's */
    folder = cn_strdup(change->path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    change->folder = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cn_free(folder);
    change->is_new = false;
    if (change->folder < 0 || flock(change->folder, LOCK_EX) < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot lock the folder of %s", path);
    else if (stat(change->path, &change->old) == 0 || errno != ENOENT || !may_begin)
        rc = cn_key_file_read(path, &change->file, err);
    else {
        cn_key_file_init(&change->file);
        change->is_new = true;
        rc = 0;
    }
    if (rc && change->folder >= 0)
        close(change->folder);
    if (rc)
        cn_free(change->path);
    return rc;
}

static void
change_end(struct change *change)
{
    cn_key_file_fini(&change->file);
    close(change->folder);
    cn_free(change->path);
}

/* The file keeps its owner, because the server may run as a user who could not read it
 * otherwise. */
static int
change_write(const struct change *change, struct cn_error *err)
{
    struct cn_buf text, beside;
    int failed;

    cn_buf_init(&text, 0);
    cn_buf_init(&beside, 0);
    cn_key_file_write(&change->file, &text);
    cn_buf_printf(&beside, "%s.new%c", change->path, '\0');
    if (change->is_new)
        failed = cn_write_file_atomically(change->path, beside.data, 0600, text.data, text.len);
    else
        failed = cn_replace_file(change->path, beside.data, &change->old, text.data, text.len);
    cn_buf_fini(&text);
    cn_buf_fini(&beside);
    return failed ? cn_fail_sys(err, CN_E_IO, failed, "cannot write %s", change->path) : 0;
}

/* --- add */

static int
read_scopes(const char *list, unsigned *out, struct cn_error *err)
{
    struct cn_str rest = cn_str_from(list);

    *out = 0;
    while (rest.len) {
        const struct cn_str word = cn_str_cut(&rest, ',');
        const unsigned scope = cn_key_scope_read(word);

        if (!scope)
            return cn_fail(err, CN_E_CONFIG,
                           "--scopes has \"%.*s\"; it must be a list of infer, manage and observe",
                           word.len > 40 ? 40 : (int)word.len, word.ptr);
        *out |= scope;
    }
    return *out ? 0
                : cn_fail(err, CN_E_CONFIG,
                          "--scopes is empty; it must be a list of infer, manage and observe");
}

static int
read_limits(const struct cn_ctl_verb_options *verb, struct cn_key_limits *limits,
            struct cn_error *err)
{
    const struct {
        const char *flag, *text;
    } given[CN_N_KEY_LIMITS] = {{"--rate", verb->rate},
                                {"--burst", verb->burst},
                                {"--concurrency", verb->concurrency},
                                {"--max-num-sequence", verb->max_num_sequence},
                                {"--stored-bytes", verb->stored_bytes}};
    int rc = 0;

    for (unsigned i = 0; !rc && i < CN_N_KEY_LIMITS; i++)
        if (given[i].text)
            rc = cn_key_limit_read(i, given[i].flag, given[i].text, limits, err);
    return rc ? rc : cn_key_limits_check("the key", limits, err);
}

/* Reads the flags of add into an entry; its texts are borrowed, and `models` is the caller's. */
static int
read_entry(const struct cn_ctl_options *options, struct cn_str *models, uint32_t n_max,
           struct cn_key_entry *entry, struct cn_error *err)
{
    const struct cn_ctl_verb_options *verb = &options->verb;
    struct cn_str rest = cn_str_from(verb->models);

    *entry = (struct cn_key_entry){
        .name = cn_str_from(options->words[1]),
        .models = models,
        .expires_wall_ms = CN_NEVER,
    };
    if (verb->expires && !cn_key_time_read(cn_str_from(verb->expires), &entry->expires_wall_ms))
        return cn_fail(err, CN_E_CONFIG,
                       "--expires is \"%.40s\"; it must be a day or time in UTC, such as "
                       "2027-01-31 or 2027-01-31T12:00:00Z",
                       verb->expires);
    while (rest.len) {
        const struct cn_str pattern = cn_str_cut(&rest, ',');

        if (!pattern.len || pattern.len > CN_KEY_PATTERN_MAX || entry->n_models == n_max)
            return cn_fail(err, CN_E_CONFIG,
                           "--models must be a list of up to %u names of at most %d bytes, as in "
                           "counter,asr-*",
                           n_max, CN_KEY_PATTERN_MAX);
        models[entry->n_models++] = pattern;
    }
    if (read_limits(verb, &entry->limits, err))
        return err->code;
    return read_scopes(verb->scopes ? verb->scopes : "infer", &entry->scopes, err);
}

/* Appends an entry to the file. */
static int
append(const char *path, const struct cn_key_entry *entry, struct cn_error *err)
{
    struct change change;
    int rc = change_begin(&change, path, true, err);

    if (rc)
        return rc;
    rc = cn_key_file_add(&change.file, entry, err);
    if (!rc)
        rc = change_write(&change, err);
    change_end(&change);
    return rc;
}

/* Adds a key that nobody can send: its clients connect with a certificate. */
static int
add_certificates(const struct cn_ctl_options *options, const char *path, struct cn_key_entry *entry,
                 struct cn_buf *out, struct cn_buf *hint, struct cn_error *err)
{
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = cn_key_certificates_read("--certificates", options->verb.certificates, &arena, entry, err);
    if (!rc)
        rc = append(path, entry, err);
    cn_arena_fini(&arena);
    if (!rc && options->json)
        cn_buf_printf(out, "{\"name\": \"%s\"}\n", options->words[1]);
    if (!rc)
        cn_buf_puts(hint,
                    "A client with such a certificate needs no key. A running server reads the "
                    "file again on SIGHUP.\n");
    return rc;
}

static int
add_key(const struct cn_ctl_options *options, const char *path, struct cn_buf *out,
        struct cn_buf *hint, struct cn_error *err)
{
    struct cn_str models[64];
    char text[CN_KEY_TEXT_MAX];
    struct cn_key_entry entry;
    int rc = read_entry(options, models, 64, &entry, err);

    if (!rc && options->verb.certificates)
        return add_certificates(options, path, &entry, out, hint, err);
    if (rc)
        return rc;
    cn_key_text_make(text);
    entry.has_hash = cn_key_text_hash(cn_str_from(text), entry.hash);
    rc = append(path, &entry, err);
    if (!rc && options->json)
        cn_buf_printf(out, "{\"name\": \"%s\", \"key\": \"%s\"}\n", options->words[1], text);
    else if (!rc) {
        cn_buf_printf(out, "%s\n", text);
        cn_buf_puts(hint, ADVICE);
    }
    sodium_memzero(text, sizeof text);
    return rc;
}

/* --- revoke and ls */

static int
revoke_key(const struct cn_ctl_options *options, const char *path, struct cn_buf *out,
           struct cn_buf *hint, struct cn_error *err)
{
    const char *name = options->words[1];
    struct cn_key_entry *entry;
    struct change change;
    int rc = change_begin(&change, path, false, err);

    if (rc)
        return rc;
    entry = cn_key_file_find(&change.file, cn_str_from(name));
    if (!entry)
        rc = cn_fail(err, CN_E_NOT_FOUND,
                     "%s has no key %.64s; continuo-ctl keys ls lists the keys", path, name);
    else {
        entry->revoked = true;
        rc = change_write(&change, err);
    }
    change_end(&change);
    if (!rc && options->json)
        cn_buf_printf(out, "{\"name\": \"%s\", \"revoked\": true}\n", name);
    else if (!rc)
        cn_buf_printf(out, "the key %s is revoked\n", name);
    if (!rc)
        cn_buf_puts(hint, "A running server reads the file again on SIGHUP.\n");
    return rc;
}

static const char *
state_of(const struct cn_key_entry *entry)
{
    if (entry->revoked)
        return "revoked";
    return cn_wall_ms() >= entry->expires_wall_ms ? "expired" : "valid";
}

static void
put_row(const struct cn_key_entry *entry, struct cn_ctl_table *table)
{
    struct cn_buf words;
    char time[25] = "never";

    cn_buf_init(&words, 0);
    cn_key_scopes_write(entry->scopes, &words);
    cn_ctl_table_add(table, "%.*s", CN_STR_ARG(entry->name));
    cn_ctl_table_add(table, "%s", state_of(entry));
    cn_ctl_table_add(table, "%.*s", CN_STR_ARG(cn_buf_str(&words)));
    cn_buf_reset(&words);
    for (uint32_t i = 0; i < entry->n_models; i++)
        cn_buf_printf(&words, "%s%.*s", i ? ", " : "", CN_STR_ARG(entry->models[i]));
    if (!entry->n_models)
        cn_buf_puts(&words, "every model");
    cn_ctl_table_add(table, "%.*s", CN_STR_ARG(cn_buf_str(&words)));
    if (entry->expires_wall_ms != CN_NEVER)
        cn_wall_format(entry->expires_wall_ms, time);
    cn_ctl_table_add(table, "%s", time);
    cn_buf_reset(&words);
    cn_key_limits_show(&entry->limits, &words);
    cn_ctl_table_add(table, "%.*s", CN_STR_ARG(cn_buf_str(&words)));
    cn_buf_reset(&words);
    for (uint32_t i = 0; i < entry->n_certificates; i++)
        cn_buf_printf(&words, "%s%.*s", i ? ", " : "", CN_STR_ARG(entry->certificates[i]));
    cn_ctl_table_add(table, "%.*s", CN_STR_ARG(words.len ? cn_buf_str(&words) : CN_STR("none")));
    cn_buf_fini(&words);
}

static int
list_keys(const struct cn_ctl_options *options, const char *path, struct cn_buf *out,
          struct cn_error *err)
{
    static const char *const heads[] = {"NAME",    "STATE",  "SCOPES",      "MODELS",
                                        "EXPIRES", "LIMITS", "CERTIFICATES"};
    struct cn_ctl_table table;
    struct cn_key_file file;
    int rc = cn_key_file_read(path, &file, err);

    if (rc)
        return rc;
    if (options->json) {
        cn_key_file_write(&file, out);
    } else {
        cn_ctl_table_init(&table, "lllllll");
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
            cn_ctl_table_add(&table, "%s", heads[i]);
        for (uint32_t i = 0; i < file.n; i++)
            put_row(&file.entries[i], &table);
        cn_ctl_table_print(&table, out);
        cn_ctl_table_fini(&table);
    }
    cn_key_file_fini(&file);
    return 0;
}

/* --- use */

/* Shows a number, and the limit that it has in `limits` under `limit`. */
static void
put_number(struct cn_ctl_table *table, const json_t *key, const char *member, const char *limit)
{
    const json_t *most = json_object_get(json_object_get(key, "limits"), limit);
    const long long now = (long long)json_integer_value(json_object_get(key, member));

    if (most)
        cn_ctl_table_add(table, "%lld/%lld", now, (long long)json_integer_value(most));
    else
        cn_ctl_table_add(table, "%lld", now);
}

static void
put_use(const json_t *key, struct cn_ctl_table *table)
{
    const json_t *refused = json_object_get(key, "refused"), *count;
    const json_int_t rate =
        json_integer_value(json_object_get(json_object_get(key, "limits"), "rate"));
    long long sum = 0;
    const char *word;

    json_object_foreach((json_t *)refused, word, count) sum += json_integer_value(count);
    cn_ctl_table_add(table, "%s", json_string_value(json_object_get(key, "name")));
    put_number(table, key, "requests", "");
    if (rate)
        cn_ctl_table_add(table, "%lld/s", (long long)rate);
    else
        cn_ctl_table_add(table, "-");
    put_number(table, key, "inFlight", "concurrency");
    put_number(table, key, "sequences", "maxNumSequence");
    put_number(table, key, "storedBytes", "storedBytes");
    cn_ctl_table_add(table, "%lld", sum);
}

static int
show_use(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
         struct cn_buf *hint, struct cn_error *err)
{
    static const char *const heads[] = {"NAME",      "REQUESTS",     "RATE",   "IN FLIGHT",
                                        "SEQUENCES", "STORED BYTES", "REFUSED"};
    struct cn_ctl_table table;
    json_t *value;
    const json_t *keys, *key;
    size_t i;
    int rc = cn_ctl_verb_call(http, options, "GET", "/keys", false, &value, err);

    if (rc)
        return rc;
    keys = json_object_get(value, "keys");
    if (options->json) {
        cn_ctl_json_print(value, false, out);
        return 0;
    }
    cn_ctl_table_init(&table, "lrrrrrr");
    for (i = 0; i < sizeof heads / sizeof *heads; i++)
        cn_ctl_table_add(&table, "%s", heads[i]);
    json_array_foreach(keys, i, key) put_use(key, &table);
    if (json_array_size(keys))
        cn_ctl_table_print(&table, out);
    else
        cn_buf_puts(hint, "The server has no named keys (--keys).\n");
    cn_ctl_table_fini(&table);
    json_decref(value);
    return 0;
}

int
cn_ctl_keys(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
            struct cn_buf *hint, struct cn_error *err)
{
    const char *path = options->verb.keys;

    if (strcmp(options->words[0], "use") == 0)
        return show_use(http, options, out, hint, err);
    if (strcmp(options->words[0], "add") == 0)
        return add_key(options, path, out, hint, err);
    if (strcmp(options->words[0], "revoke") == 0)
        return revoke_key(options, path, out, hint, err);
    return list_keys(options, path, out, err);
}
