/* ctl/verbs/backup.c - `backup FILE`: saves all sequences of a running server in one tar archive.
 *
 * Each entry of the archive is one exported sequence (management/api/exported_sequence.h), under a
 * name that is also its path in the management API without "/models/" and "/sequences":
 *
 *     average/1.0/user-7.cnseq
 *     average/1.0/a%2Fb.cnseq       the id is a/b, escaped as in a URL
 *
 * Sequences are independent of each other, so nothing has to stop: each one is saved with the state
 * after its last committed step at the moment when its turn comes. A sequence that ends before that
 * is left out, and one that opens meanwhile may or may not be in the archive.
 *
 * The archive gets its name when it is whole and on the disk. A backup that fails leaves the file
 * of the backup before it as it was. One thread. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "ctl/json_out.h"
#include "ctl/read_models.h"
#include "ctl/verbs/verbs.h"

#define TOKEN_MAX 1024 /* the token that names the next page of a list */

struct backup {
    struct cn_ctl_http *http;
    const struct cn_ctl_options *options;
    struct archive *writer;
    struct cn_buf path, answer; /* of the request */
    struct cn_buf name;         /* of the entry */
    struct cn_ctl_moved moved;
    struct cn_error *err;
};

static int
writer_error(struct backup *b)
{
    const char *text = archive_error_string(b->writer);

    return cn_fail(b->err, CN_E_IO, "cannot write %s: %.300s", b->options->words[0],
                   text ? text : "no reason given");
}

static int
put_entry(struct backup *b)
{
    struct archive_entry *entry = archive_entry_new();
    int rc;

    archive_entry_set_pathname(entry, b->name.data);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0600);
    archive_entry_set_size(entry, (la_int64_t)b->answer.len);
    archive_entry_set_mtime(entry, (time_t)(cn_wall_ms() / 1000), 0);
    rc = archive_write_header(b->writer, entry);
    archive_entry_free(entry);
    if (rc != ARCHIVE_OK ||
        archive_write_data(b->writer, b->answer.data, b->answer.len) != (la_ssize_t)b->answer.len)
        return writer_error(b);
    b->moved.sequences++;
    b->moved.bytes += b->answer.len;
    return 0;
}

/* Exports the sequence `id` of "MODEL/VERSION", which is `model`, and writes it. */
static int
save_sequence(struct backup *b, const char *model, const char *id)
{
    struct cn_ctl_call call = {.method = "GET", .max_bytes = CN_CTL_SEQUENCE_MAX_BYTES};
    int rc;

    cn_buf_reset(&b->name);
    cn_ctl_verb_path(&b->name, "", model);
    cn_buf_puts(&b->name, "/");
    cn_ctl_put_escaped(&b->name, id);
    cn_buf_append(&b->name, CN_CTL_SEQUENCE_SUFFIX, sizeof CN_CTL_SEQUENCE_SUFFIX);
    cn_buf_reset(&b->path);
    cn_ctl_verb_path(&b->path, "/models/", model);
    cn_buf_puts(&b->path, "/sequences/");
    cn_ctl_put_escaped(&b->path, id);
    cn_buf_append(&b->path, "?export=true", sizeof "?export=true");
    call.path = b->path.data;
    rc = cn_ctl_http_call(b->http, b->options->management, &call, &b->answer, b->err);
    if (rc == CN_E_NOT_FOUND || rc == CN_E_SEQUENCE_ENDED) {
        b->moved.left_out++; /* it ended since it was listed */
        return 0;
    }
    return rc ? rc : put_entry(b);
}

/* Saves the sequences of one page of the list. Writes the token of the next page to `token`; it is
 * "" behind the last one. */
static int
save_page(struct backup *b, const char *model, char token[TOKEN_MAX])
{
    json_t *page;
    const char *next;
    int rc;

    cn_buf_reset(&b->path);
    cn_ctl_verb_path(&b->path, "/models/", model);
    cn_buf_puts(&b->path, "/sequences");
    cn_ctl_verb_query(&b->path, "state", "open");
    cn_ctl_verb_query(&b->path, "next_page_token", token[0] ? token : NULL);
    cn_buf_append(&b->path, "", 1);
    rc = cn_ctl_verb_call(b->http, b->options, "GET", b->path.data, false, &page, b->err);
    if (rc)
        return rc;
    const json_t *list = json_object_get(page, "sequences"), *each;
    size_t i;

    json_array_foreach(list, i, each)
    {
        const char *id = json_string_value(json_object_get(each, "sequence"));

        if (rc == 0 && id)
            rc = save_sequence(b, model, id);
        cn_ctl_moved_show(&b->moved, "saved", false);
    }
    next = json_string_value(json_object_get(page, "nextPageToken"));
    snprintf(token, TOKEN_MAX, "%s", next ? next : "");
    json_decref(page);
    return rc;
}

/* Is it the model of --model, which may name a version? */
static bool
is_wanted(const struct cn_ctl_model *model, const char *wanted)
{
    const size_t len = strlen(model->name);

    if (!wanted)
        return true;
    return strncmp(wanted, model->name, len) == 0 &&
           (!wanted[len] || (wanted[len] == '/' && strcmp(wanted + len + 1, model->version) == 0));
}

static int
save_models(struct backup *b, const struct cn_ctl_view *view)
{
    const char *wanted = b->options->verb.model;
    unsigned n = 0;
    int rc = 0;

    for (const struct cn_ctl_model *m = view->models; rc == 0 && m; m = m->next) {
        char token[TOKEN_MAX] = "";
        struct cn_buf name;

        if (!is_wanted(m, wanted) || !m->stateful)
            continue;
        n++;
        cn_buf_init(&name, 0);
        cn_buf_printf(&name, "%s/%s%c", m->name, m->version, '\0');
        do
            rc = save_page(b, name.data, token);
        while (rc == 0 && token[0]);
        cn_buf_fini(&name);
    }
    if (rc == 0 && n == 0 && wanted)
        rc = cn_fail(b->err, CN_E_NOT_FOUND,
                     "no model %s with sequences is registered; continuo-ctl models lists them",
                     wanted);
    return rc;
}

/* Makes an archive that ends here unreadable, because a program that reads the output of a pipe may
 * miss the exit status. The last block stays incomplete, so no reader takes the archive for a whole
 * one. */
static void
break_off(struct backup *b, int fd)
{
    static const char text[] = "The backup ends here with an error.\n";

    archive_write_fail(b->writer); /* otherwise the end of an archive would be written */
    (void)!write(fd, text, sizeof(text) - 1);
}

/* Writes the whole archive to `fd`. */
static int
write_archive(struct backup *b, int fd, const struct cn_ctl_view *view)
{
    int rc;

    b->writer = archive_write_new();
    if (archive_write_set_format_pax_restricted(b->writer) != ARCHIVE_OK ||
        archive_write_open_fd(b->writer, fd) != ARCHIVE_OK)
        rc = writer_error(b);
    else
        rc = save_models(b, view);
    if (rc == 0 && archive_write_close(b->writer) != ARCHIVE_OK)
        rc = writer_error(b);
    if (rc)
        break_off(b, fd);
    archive_write_free(b->writer);
    return rc;
}

/* Writes the archive under another name, brings it to the disk, and renames it. */
static int
write_file(struct backup *b, const struct cn_ctl_view *view)
{
    const char *name = b->options->words[0];
    char *beside;
    int fd, rc;

    if (strcmp(name, "-") == 0)
        return write_archive(b, STDOUT_FILENO, view);
    if (asprintf(&beside, "%s.part%d", name, (int)getpid()) < 0)
        return cn_fail(b->err, CN_E_OUT_OF_MEMORY, "not enough memory");
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        rc = cn_fail_sys(b->err, CN_E_IO, errno, "cannot write %s", beside);
        free(beside);
        return rc;
    }
    rc = write_archive(b, fd, view);
    if (rc == 0 && fsync(fd) < 0)
        rc = cn_fail_sys(b->err, CN_E_IO, errno, "cannot write %s", beside);
    close(fd);
    if (rc == 0 && rename(beside, name) < 0)
        rc = cn_fail_sys(b->err, CN_E_IO, errno, "cannot rename %s to %s", beside, name);
    if (rc)
        unlink(beside);
    free(beside);
    return rc;
}

int
cn_ctl_backup(struct cn_ctl_http *http, const struct cn_ctl_options *options, struct cn_buf *out,
              struct cn_buf *hint, struct cn_error *err)
{
    const struct cn_ctl_server server = {
        .http = http, .management = options->management, .metrics = options->metrics};
    struct backup b = {.http = http, .options = options, .err = err};
    const bool to_stdout = strcmp(options->words[0], "-") == 0;
    struct cn_ctl_view view;
    int rc;

    if (to_stdout && isatty(STDOUT_FILENO))
        return cn_fail(err, CN_E_CONFIG,
                       "a backup is not for a terminal: give a file's name, or "
                       "send the output into a pipe");
    cn_buf_init(&b.path, 0);
    cn_buf_init(&b.answer, 0);
    cn_buf_init(&b.name, 0);
    cn_ctl_view_init(&view);
    rc = cn_ctl_read(&server, &view, err);
    if (rc == 0)
        rc = write_file(&b, &view);
    cn_ctl_moved_show(&b.moved, "saved", true);
    if (rc == 0)
        cn_ctl_moved_put(&b.moved, options, "saved", options->words[0], to_stdout ? hint : out);
    cn_ctl_view_fini(&view);
    cn_buf_fini(&b.path);
    cn_buf_fini(&b.answer);
    cn_buf_fini(&b.name);
    return rc;
}
