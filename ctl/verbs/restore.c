/* ctl/verbs/restore.c - `restore FILE`: imports the sequences of an archive that `backup` made, and
 * what both commands have in common.
 *
 * The name of an entry says where it belongs: average/1.0/user-7.cnseq becomes the request
 * PUT /models/average/1.0/sequences/user-7. Names are checked first, since the archive may come
 * from anybody: an entry can name nothing but a sequence of a model.
 *
 * A sequence that is open already is kept, and counted, unless --replace is given; so a restore
 * that broke off can simply be run again. Any other refusal ends the restore with the server's own
 * words, because it would meet the next sequences, too: the model is not registered, its handler
 * cannot read the state, the disk is full. One thread. */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "ctl/json_out.h"
#include "ctl/verbs/verbs.h"

#define SHOW_EVERY_US 500000
#define BLOCK_BYTES (256u << 10)

/* --- progress and result of both commands */

void
cn_ctl_moved_show(struct cn_ctl_moved *moved, const char *done, bool last)
{
    const uint64_t now_us = cn_now_us();

    if (!isatty(STDERR_FILENO) || (last && !moved->shown_us) ||
        (!last && now_us - moved->shown_us < SHOW_EVERY_US))
        return;
    moved->shown_us = now_us;
    fprintf(stderr, "\r%" PRIu64 " sequences %s, %" PRIu64 " MB%s", moved->sequences, done,
            moved->bytes >> 20, last ? "\n" : "");
}

void
cn_ctl_moved_put(const struct cn_ctl_moved *moved, const struct cn_ctl_options *options,
                 const char *done, const char *file, struct cn_buf *out)
{
    if (options->json) {
        cn_ctl_json_print(json_pack("{s:s, s:I, s:I, s:I}", "file", file, "sequences",
                                    (json_int_t)moved->sequences, "bytes", (json_int_t)moved->bytes,
                                    "leftOut", (json_int_t)moved->left_out),
                          false, out);
        return;
    }
    cn_buf_printf(out, "%" PRIu64 " sequences %s (%" PRIu64 " bytes)\n", moved->sequences, done,
                  moved->bytes);
}

/* --- restore */

struct restore {
    struct cn_ctl_http *http;
    const struct cn_ctl_options *options;
    struct archive *reader;
    struct cn_buf path, file, answer;
    struct cn_ctl_moved moved;
    char refusal[300]; /* the server's words about the first sequence that was kept */
    struct cn_error *err;
};

static int
reader_error(struct restore *r)
{
    const char *text = archive_error_string(r->reader);

    return cn_fail(r->err, CN_E_IO, "cannot read %s: %.300s; is it a file of continuo-ctl backup?",
                   r->options->words[0], text ? text : "no reason given");
}

/* Can the text be a part of a path as cn_ctl_put_escaped() writes it? */
static bool
is_part(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              memchr("-._~%", c, 5)))
            return false;
    }
    return text.len > 0;
}

/* Writes the path of the request that imports the entry `name`. */
static int
set_path(struct restore *r, const char *name)
{
    struct cn_str rest = cn_str_from(name), model = cn_str_cut(&rest, '/'),
                  version = cn_str_cut(&rest, '/');
    const size_t suffix = sizeof CN_CTL_SEQUENCE_SUFFIX - 1;

    if (rest.len <= suffix || memcmp(rest.ptr + rest.len - suffix, CN_CTL_SEQUENCE_SUFFIX, suffix))
        rest.len = 0;
    else
        rest.len -= suffix;
    if (!is_part(model) || !is_part(version) || !is_part(rest))
        return cn_fail(
            r->err, CN_E_PROTOCOL,
            "%s has an entry \"%.200s\", which is not MODEL/VERSION/ID" CN_CTL_SEQUENCE_SUFFIX
            "; it is not a file of continuo-ctl backup",
            r->options->words[0], name);
    cn_buf_reset(&r->path);
    cn_buf_printf(&r->path, "/models/%.*s/%.*s/sequences/%.*s%s%c", (int)model.len, model.ptr,
                  (int)version.len, version.ptr, (int)rest.len, rest.ptr,
                  r->options->seq.replace ? "?replace=true" : "", '\0');
    return 0;
}

/* Reads the entry's bytes into `r->file`. */
static int
read_entry(struct restore *r)
{
    la_ssize_t n = 1;

    cn_buf_reset(&r->file);
    r->file.max_bytes = CN_CTL_SEQUENCE_MAX_BYTES;
    while (n > 0) {
        char *to = cn_buf_reserve(&r->file, BLOCK_BYTES);

        if (!to)
            return cn_fail(r->err, CN_E_IO,
                           "%s has an entry of more than 1 GiB; no exported sequence is that large",
                           r->options->words[0]);
        n = archive_read_data(r->reader, to, BLOCK_BYTES);
        if (n < 0)
            return reader_error(r);
        r->file.len += (size_t)n;
    }
    return 0;
}

static int
restore_entry(struct restore *r, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    struct cn_ctl_call call = {.method = "PUT", .max_bytes = 1u << 20};
    int rc = set_path(r, name ? name : "");

    if (rc == 0 && archive_entry_filetype(entry) != AE_IFREG)
        rc = cn_fail(r->err, CN_E_PROTOCOL,
                     "%s has an entry \"%.200s\", which is not a file, so continuo-ctl backup "
                     "has not written it",
                     r->options->words[0], name);
    if (rc == 0)
        rc = read_entry(r);
    if (rc)
        return rc;
    call.path = r->path.data;
    call.body = cn_buf_str(&r->file);
    rc = cn_ctl_http_call(r->http, r->options->management, &call, &r->answer, r->err);
    if (rc == CN_E_CONFLICT) {
        if (r->moved.left_out++ == 0)
            snprintf(r->refusal, sizeof r->refusal, "%.299s", r->err->message);
        rc = 0;
    } else if (rc == 0) {
        r->moved.sequences++;
        r->moved.bytes += r->file.len;
    }
    return rc;
}

static int
restore_all(struct restore *r)
{
    const char *name = r->options->words[0];
    struct archive_entry *entry;
    int rc = 0, next;

    r->reader = archive_read_new();
    archive_read_support_format_tar(r->reader);
    archive_read_support_filter_all(r->reader); /* somebody may have compressed it */
    if (archive_read_open_filename(r->reader, strcmp(name, "-") == 0 ? NULL : name, BLOCK_BYTES) !=
        ARCHIVE_OK)
        rc = reader_error(r);
    while (rc == 0) {
        next = archive_read_next_header(r->reader, &entry);
        if (next == ARCHIVE_EOF)
            break;
        rc = next < ARCHIVE_WARN ? reader_error(r) : restore_entry(r, entry);
        cn_ctl_moved_show(&r->moved, "restored", false);
    }
    archive_read_free(r->reader);
    return rc;
}

int
cn_ctl_restore(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
               struct cn_buf *hint, struct cn_error *err)
{
    struct restore r = {.http = http, .options = options, .err = err};
    int rc;

    cn_buf_init(&r.path, 0);
    cn_buf_init(&r.file, 0);
    cn_buf_init(&r.answer, 0);
    rc = restore_all(&r);
    cn_ctl_moved_show(&r.moved, "restored", true);
    if (rc == 0)
        cn_ctl_moved_put(&r.moved, options, "restored", options->words[0], out);
    else
        cn_buf_printf(hint, "%" PRIu64 " sequences were restored before that.\n",
                      r.moved.sequences);
    if (r.moved.left_out)
        cn_buf_printf(hint,
                      "%" PRIu64 " sequences are open on this server and were kept as they are; "
                      "--replace closes them first. The first refusal: %s\n",
                      r.moved.left_out, r.refusal);
    cn_buf_fini(&r.path);
    cn_buf_fini(&r.file);
    cn_buf_fini(&r.answer);
    return rc;
}
