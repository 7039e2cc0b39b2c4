/* proto/handler_names.c - see proto/handler_names.h. Any thread. */
#include "proto/handler_names.h"

#include <string.h>

#include "core/text/suggest.h"

static const struct {
    const char *name;
    bool in[2];
    const char *signature[2];
} functions[] = {
#define CN_HANDLER_FUNCTION(name, lua, python, lua_signature, python_signature)                    \
    {name, {lua, python}, {lua_signature, python_signature}},
#include "proto/handler_names.def"
#undef CN_HANDLER_FUNCTION
};
#define N_FUNCTIONS (sizeof functions / sizeof functions[0])

uint32_t
cn_handler_name_bit(struct cn_str name, enum cn_handler_language language)
{
    for (size_t i = 0; i < N_FUNCTIONS; i++)
        if (functions[i].in[language] && cn_str_eq(name, cn_str_from(functions[i].name)))
            return 1u << i;
    return 0;
}

const char *
cn_handler_name_meant(struct cn_str name, uint32_t present, enum cn_handler_language language,
                      bool *certain)
{
    static const char prefix[] = "on_";
    struct cn_str rest = name;

    *certain = name.len > 3 && memcmp(name.ptr, prefix, 3) == 0;
    if (*certain)
        rest = (struct cn_str){name.ptr + 3, name.len - 3};
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        struct cn_str known = cn_str_from(functions[i].name);
        /* One edit is few in a word of five letters, and two edits make most short words alike. */
        unsigned limit = *certain ? 0 : known.len > 5 ? 2 : 1;
        unsigned distance = cn_edit_distance(rest, known);

        if (!functions[i].in[language] || distance > limit)
            continue;
        if (present & 1u << i || (distance == 0 && !*certain))
            return NULL;
        return functions[i].signature[language];
    }
    return NULL;
}
