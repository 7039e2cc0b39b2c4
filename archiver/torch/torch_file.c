/* archiver/torch/torch_file.c - finds the texts in the zip file that PyTorch writes. Archiver only.
 *
 * All names in the file begin with a folder, which has the name of the file when it was saved:
 *   model/data.pkl                            TorchScript: its first bytes name the module's class
 *   model/code/__torch__/weather.py           TorchScript: the code of class __torch__.weather.X
 *   model/models/model.json                   an exported program
 *   model/data/aotinductor/model/x.wrapper.cpp    a package of AOTInductor */
#include "archiver/torch/torch_file.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>

#include "archiver/torch/torch_parse.h"

#define TEXT_BYTES_MAX (64 << 20) /* of one text */
#define HEAD_BYTES 4096           /* of data.pkl, whose rest is not read */
#define ENTRIES_MAX 1000000

struct zip {
    const char *name; /* for error messages */
    struct cn_str bytes;
    struct cn_arena *arena;
    struct cn_error *err;
};

static int
damaged(const struct zip *zip, const char *what)
{
    return cn_fail(zip->err, CN_E_INVALID_MODEL, "%.300s: %s", zip->name, what);
}

/* Returns the rest of the path, after the first folder. */
static struct cn_str
below_folder(const char *path)
{
    const char *slash = path ? strchr(path, '/') : NULL;

    return cn_str_from(slash ? slash + 1 : "");
}

static bool
ends(struct cn_str text, struct cn_str with)
{
    return text.len >= with.len && memcmp(text.ptr + text.len - with.len, with.ptr, with.len) == 0;
}

static int
read_text(const struct zip *zip, struct archive *reader, int64_t size, size_t max,
          struct cn_str *out)
{
    size_t want = size < 0 || (uint64_t)size > max ? max : (size_t)size, got = 0;
    char *text = cn_arena_try_alloc(zip->arena, want + 1);

    if (!text)
        return cn_fail(zip->err, CN_E_OUT_OF_MEMORY,
                       "%.300s: out of memory for a text of %zu bytes", zip->name, want);
    while (got < want) {
        la_ssize_t n = archive_read_data(reader, text + got, want - got);

        if (n < 0)
            return damaged(zip, "it is damaged: an entry cannot be unpacked");
        if (n == 0)
            break;
        got += (size_t)n;
    }
    text[got] = '\0';
    *out = (struct cn_str){text, got};
    return 0;
}

/* Looks for the entry whose path, below the first folder, begins and ends so. `out` is empty if
 * there is none. At most `max` bytes are read; an entry that is longer than TEXT_BYTES_MAX is
 * refused. */
static int
find(const struct zip *zip, struct cn_str begin, struct cn_str end, size_t max, struct cn_str *out)
{
    struct archive *reader = archive_read_new();
    struct archive_entry *entry;
    int rc = 0, got = ARCHIVE_EOF;

    *out = (struct cn_str){"", 0};
    if (!reader)
        return cn_fail(zip->err, CN_E_OUT_OF_MEMORY, "%.300s: out of memory", zip->name);
    archive_read_support_format_zip_seekable(reader);
    if (archive_read_open_memory(reader, zip->bytes.ptr, zip->bytes.len) != ARCHIVE_OK)
        rc = damaged(zip, "it is not a zip file, as PyTorch writes them, or it is cut off");
    for (uint32_t n = 0; rc == 0; n++) {
        got = archive_read_next_header(reader, &entry);
        struct cn_str path = {"", 0};

        if (got == ARCHIVE_EOF || n == ENTRIES_MAX)
            break;
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            rc = damaged(zip, "it is damaged: its entries cannot be read");
            break;
        }
        path = below_folder(archive_entry_pathname(entry));
        if (!cn_str_begins(path, begin) || !ends(path, end))
            continue;
        if (max == TEXT_BYTES_MAX && archive_entry_size(entry) > TEXT_BYTES_MAX)
            rc = damaged(zip, "the text of its code has more than 64 MiB");
        else
            rc = read_text(zip, reader, archive_entry_size(entry), max, out);
        break;
    }
    archive_read_free(reader);
    return rc;
}

/* data.pkl begins with the version of pickle and with the class of the module:
 *   80 02 'c' "__torch__.weather" '\n' "Weather" '\n' */
static bool
class_of(struct cn_str pickle, struct cn_str *module, struct cn_str *class_name)
{
    if (!cn_str_begins(pickle, CN_STR("\x80\002c")))
        return false;
    pickle = (struct cn_str){pickle.ptr + 3, pickle.len - 3};
    *module = cn_str_cut(&pickle, '\n');
    *class_name = cn_str_cut(&pickle, '\n');
    return cn_str_begins(*module, CN_STR("__torch__")) && class_name->len > 0;
}

static int
read_script(const struct zip *zip, struct cn_str pickle, struct cn_torch_file *out)
{
    struct cn_str module, class_name, code;
    const char *wrong;
    char *path;
    int rc;

    if (!class_of(pickle, &module, &class_name))
        return damaged(zip, "it is not TorchScript: save it with torch.jit.script(model).save() "
                            "and not with torch.save()");
    path = cn_arena_try_alloc(zip->arena, module.len + sizeof("code/.py"));
    if (!path)
        return cn_fail(zip->err, CN_E_OUT_OF_MEMORY, "%.300s: out of memory", zip->name);
    memcpy(path, "code/", 5);
    for (size_t i = 0; i < module.len; i++)
        path[5 + i] = module.ptr[i] == '.' ? '/' : module.ptr[i];
    memcpy(path + 5 + module.len, ".py", 4);
    rc = find(zip, cn_str_from(path), CN_STR(".py"), TEXT_BYTES_MAX, &code);
    if (rc)
        return rc;
    wrong = cn_torch_script_parse(code, class_name, zip->arena, out);
    return wrong ? damaged(zip, wrong) : 0;
}

int
cn_torch_file_read(const char *name, struct cn_str bytes, struct cn_arena *arena,
                   struct cn_torch_file *out, struct cn_error *err)
{
    const size_t size = CN_TORCH_VALUES_MAX * sizeof(struct cn_torch_value);
    struct zip zip = {name, bytes, arena, err};
    struct cn_str text;
    const char *wrong;
    int rc;

    memset(out, 0, sizeof(*out));
    out->arguments = cn_arena_alloc(arena, size);
    out->results = cn_arena_alloc(arena, size);
    rc = find(&zip, CN_STR("data/aotinductor/"), CN_STR(".wrapper.cpp"), TEXT_BYTES_MAX, &text);
    if (rc)
        return rc;
    if (text.len > 0) {
        out->kind = CN_TORCH_PACKAGE;
        wrong = cn_torch_package_parse(text, out);
        return wrong ? damaged(&zip, wrong) : 0;
    }
    rc = find(&zip, CN_STR("models/"), CN_STR(".json"), TEXT_BYTES_MAX, &text);
    if (rc)
        return rc;
    if (text.len > 0) {
        out->kind = CN_TORCH_EXPORTED;
        wrong = cn_torch_exported_parse(text, arena, out);
        return wrong ? damaged(&zip, wrong) : 0;
    }
    rc = find(&zip, CN_STR("data.pkl"), CN_STR("data.pkl"), HEAD_BYTES, &text);
    if (rc)
        return rc;
    if (text.len == 0)
        return damaged(&zip, "it is a zip file, and neither TorchScript (.pt) nor a package of "
                             "AOTInductor (.pt2): it has no data.pkl");
    out->kind = CN_TORCH_SCRIPT;
    return read_script(&zip, text, out);
}

struct cn_torch_value *
cn_torch_value_add(struct cn_torch_value *values, uint32_t *n)
{
    struct cn_torch_value *value = *n < CN_TORCH_VALUES_MAX ? &values[(*n)++] : NULL;

    if (value)
        *value = (struct cn_torch_value){0};
    return value;
}
