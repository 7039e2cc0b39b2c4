/* core/containers/phase.c - the message about a move that a table of phases forbids. Any thread. */
#include "core/containers/phase.h"

#include "core/errors/panic.h"

void
cn_phase_illegal(const char *object, const struct cn_phase *from, const struct cn_phase *to)
{
    cn_panic(__FILE__, __LINE__, "%s is %s and cannot become %s", object, from->name, to->name);
}
