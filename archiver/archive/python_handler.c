/* archiver/archive/python_handler.c - see python_handler.h. Any thread. */
#include "archiver/archive/python_handler.h"

#include <stdio.h>
#include <string.h>

#include "archiver/archive/archive_path.h"

static const char *const built_in[] = {
    "base_handler",    "text_classifier",       "image_classifier", "object_detector",
    "image_segmenter", "dali_image_classifier", "vllm_handler",     "trt_llm_handler"};

bool
cn_python_handler_is_built_in(const char *handler)
{
    for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
        if (strcmp(handler, built_in[i]) == 0)
            return true;
    return false;
}

bool
cn_python_handler_file(const char *handler, char *out, size_t cap)
{
    const char *colon = strrchr(handler, ':');
    size_t len = colon && strchr(colon, '/') == NULL ? (size_t)(colon - handler) : strlen(handler);
    bool whole = len >= 3 && memcmp(handler + len - 3, ".py", 3) == 0;
    int n = snprintf(out, cap, "%.*s%s", (int)len, handler, whole ? "" : ".py");

    return n >= 0 && (size_t)n < cap;
}

/* Skips a version, "3.11" or "3.11.*", and returns what follows it. Returns NULL if the text does
 * not begin with a version. */
static const char *
pass_version(const char *c)
{
    static const char digits[] = "0123456789";

    for (;;) {
        size_t n = strspn(c, digits);

        if (n == 0 || n > 5)
            return NULL;
        c += n;
        if (c[0] == '.' && c[1] == '*')
            return c + 2;
        if (c[0] != '.')
            return c;
        c++;
    }
}

const char *
cn_python_constraint_problem(const char *constraint)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "~=", "<", ">"};
    const char *c = constraint;

    if (strlen(constraint) > 200)
        return "it is longer than 200 characters";
    for (;;) {
        size_t len = 0;

        c += strspn(c, " ");
        for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]) && len == 0; i++)
            if (strncmp(c, operators[i], strlen(operators[i])) == 0)
                len = strlen(operators[i]);
        if (len == 0)
            return "each part must begin with ==, !=, <, <=, >, >= or ~=";
        c += len;
        c += strspn(c, " ");
        c = pass_version(c);
        if (c == NULL)
            return "an operator must be followed by a version such as 3.9 or 3.12.1";
        c += strspn(c, " ");
        if (*c == '\0')
            return NULL;
        if (*c++ != ',')
            return "parts must be separated by commas";
    }
}
