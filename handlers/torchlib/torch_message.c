/* handlers/torchlib/torch_message.c - finds the cause in a message of libtorch, and logs the
 * message. Worker's thread. */
#include "handlers/torchlib/torch_message.h"

#include <string.h>

#include "core/log/log.h"

/* If arguments do not fit a method, the cause stands above the method's declaration:
 *   forward() Expected a value of type 'Tensor' for argument 'h' but instead found type
 *   'List[Tensor]'.
 *   Position: 2
 *   Declaration: forward(__torch__.Model self, Tensor x, Tensor h) -> Tensor */
static struct cn_str
cause_above(const char *message)
{
    const char *declared = strstr(message, "\nDeclaration: "), *at = message, *found = NULL;

    if (!declared)
        return (struct cn_str){NULL, 0};
    while ((at = strstr(at, "Expected ")) && at < declared)
        found = at++;
    return found ? (struct cn_str){found, strcspn(found, "\n")} : (struct cn_str){NULL, 0};
}

struct cn_str
cn_torch_cause(const char *message, bool last)
{
    struct cn_str text = cause_above(message);
    const char *at;

    if (text.ptr)
        return text;
    text = cn_str_from(message);

    while (text.len && strchr(" \n", text.ptr[text.len - 1]))
        text.len--;
    while (text.len && strchr(" \n", text.ptr[0])) {
        text.ptr++;
        text.len--;
    }
    at = text.len ? last ? memrchr(text.ptr, '\n', text.len) : memchr(text.ptr, '\n', text.len)
                  : NULL;
    if (at && last)
        return (struct cn_str){at + 1, text.len - (size_t)(at + 1 - text.ptr)};
    if (at)
        text.len = (size_t)(at - text.ptr);
    return text;
}

void
cn_torch_log(const char *event, const char *model, const char *version, const char *message)
{
    char quoted[3500];
    size_t len = strlen(message), from = len > 3000 ? len - 3000 : 0;

    if (len)
        cn_log(CN_LOG_WARN, "event=%s model=%s version=%s text=%s", event, model, version,
               cn_log_quote(message + from, len - from, quoted, sizeof(quoted)));
}
