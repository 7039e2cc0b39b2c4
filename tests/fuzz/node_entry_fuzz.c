/* cn_fuzz: core management */
/* tests/fuzz/node_entry_fuzz.c - any bytes as another node's entry in the shared store. */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "management/nodes/node_entry.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *entry = cn_node_parse((struct cn_str){(const char *)data, size});
    struct cn_node_seen seen;

    if (!entry)
        return 0;
    cn_assert(json_is_string(json_object_get(entry, "name")));
    cn_node_see(entry, &seen);
    cn_assert(memchr(seen.instance, '\0', sizeof(seen.instance)));
    json_decref(entry);
    return 0;
}
