/* core/errors/panic.h - checks of what can never happen, in every build.
 *
 * cn_assert states what only a bug could break; input from outside never reaches it. A failed check
 * prints one line with its place in the source and aborts. That costs one restart of a worker or of
 * the server, and no committed step. */
#ifndef CN_CORE_ERRORS_PANIC_H
#define CN_CORE_ERRORS_PANIC_H

#include <stdint.h>

/* Prints "panic at FILE:LINE: ..." on standard error and aborts. Any thread. */
_Noreturn void cn_panic(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define cn_assert(cond)                                                                            \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            cn_panic(__FILE__, __LINE__, "assertion failed: %s", #cond);                           \
    } while (0)

#define cn_unreachable() cn_panic(__FILE__, __LINE__, "unreachable")

/* An object that is passed as a void * begins with `uint32_t magic`, and cn_cast checks that on the
 * way back. `p` is evaluated once. */
#define cn_cast(type, p, magic_value)                                                              \
    ({                                                                                             \
        type *cn_cast_p = (p);                                                                     \
        cn_assert(cn_cast_p != NULL && cn_cast_p->magic == (magic_value));                         \
        cn_cast_p;                                                                                 \
    })

#endif
