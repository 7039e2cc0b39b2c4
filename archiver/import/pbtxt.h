/* archiver/import/pbtxt.h - protocol buffers as text, such as a config.pbtxt, as a tree with
 * positions.
 *
 * It knows the form, not the messages: whoever asks for a field knows what it must be. Both ways of
 * writing messages ({} and <>), lists, strings with their escapes and one behind the other,
 * comments, separators. Not: extensions and Any ([...] as a name). Any thread.
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
    CN_PBTXT_NUMBER, /* as written, checked: 1, -0x1f, 1.5e3 (without its f) */
    CN_PBTXT_WORD    /* true, TYPE_FP32, inf */
};

/* A field; of a list each element is one, under the same name. */
struct cn_pbtxt {
    enum cn_pbtxt_kind kind;
    struct cn_str name; /* empty for the document */
    struct cn_str text; /* not of a message; a string's has its escapes resolved */
    unsigned line, column;
    struct cn_pbtxt *first, *next; /* of a message: its fields; beside it: the next one */
};

/* The document, in the arena; names and numbers are borrowed from `bytes`. `name` stands in
 * messages ("config.pbtxt:3:7: ..."). CN_E_INVALID_MODEL. */
int cn_pbtxt_parse(const char *name, struct cn_str bytes, struct cn_arena *arena,
                   struct cn_pbtxt **out, struct cn_error *err);
/* The last field of that name, as protocol buffers have it; NULL: there is none. */
const struct cn_pbtxt *cn_pbtxt_get(const struct cn_pbtxt *message, const char *name);

#endif
