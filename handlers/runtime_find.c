/* handlers/runtime_find.c - finds a runtime by its name, among those of continuo-worker. The worker
 * of Python models is another program, which leaves this file out. Any thread. */
#include <string.h>

#include "handlers/runtime.h"

const struct cn_runtime_ops *
cn_runtime_find(const char *name)
{
    static const struct cn_runtime_ops *const all[] = {&cn_lua_runtime_ops, &cn_c_runtime_ops};

    for (size_t i = 0; name && i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
