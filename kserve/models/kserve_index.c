/* kserve/models/kserve_index.c - writes the index of the model repository; see kserve_index.h. */
#include "kserve/models/kserve_index.h"

#include "core/memory/buf.h"
#include "kserve/repository_requests.h"
#include "management/repository/repository.h"

void
cn_v2_write_repository_index(const struct cn_repository_order *order, struct cn_buf *out)
{
    cn_buf_puts(out, "[");
    for (uint32_t i = 0; i < order->n_entries; i++) {
        const struct cn_repository_entry *entry = &order->entries[i];

        if (i > 0)
            cn_buf_puts(out, ",");
        cn_v2_write_index_entry(entry->name, entry->version, entry->state, entry->reason, out);
    }
    cn_buf_puts(out, "]");
}
