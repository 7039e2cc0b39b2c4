/* archiver/import/pbtxt.h - reads protocol buffers as text, such as a config.pbtxt, into a tree
 * with positions.
 *
 * The reader does not know the schema, so the caller must check that a field is what it should be.
 * It understands both ways of writing messages ({} and <>), lists, strings with their escapes,
 * adjacent strings, comments and separators. It does not understand extensions and Any, whose names
 * stand in brackets. Any thread.
 */
#ifndef CN_ARCHIVER_IMPORT_PBTXT_H
#define CN_ARCHIVER_IMPORT_PBTXT_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

#define CN_PBTXT_MAX_BYTES (4u << 20)
#define CN_PBTXT_DEPTH_MAX 32
#define CN_PBTXT_FIELDS_MAX 100000

enum cn_pbtxt_kind {
    CN_PBTXT_MESSAGE,
    CN_PBTXT_STRING,
    CN_PBTXT_NUMBER, /* as written, and checked: 1, -0x1f, 1.5e3; an f at the end is dropped */
    CN_PBTXT_WORD    /* true, TYPE_FP32, inf */
};

/* A field. If a field is a list, each element is a field of the same name. */
struct cn_pbtxt {
    enum cn_pbtxt_kind kind;
    struct cn_str name; /* empty for the whole document */
    struct cn_str text; /* not used for a message; the escapes of a string are resolved */
    unsigned line, column;
    struct cn_pbtxt *first, *next; /* the first field of a message; the field after this one */
};

/* Reads the document into the arena. Names and numbers are borrowed from `bytes`. `name` is used in
 * error messages ("config.pbtxt:3:7: ..."). Returns CN_E_INVALID_MODEL if the text is wrong. */
int cn_pbtxt_parse(const char *name, struct cn_str bytes, struct cn_arena *arena,
                   struct cn_pbtxt **out, struct cn_error *err);
/* Returns the last field of that name, which is the one that counts in protocol buffers, or NULL if
 * there is none. */
const struct cn_pbtxt *cn_pbtxt_get(const struct cn_pbtxt *message, const char *name);

#endif
