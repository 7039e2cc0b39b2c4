/* access/key_certificates.c - the member `certificates` of a key. Any thread, no state. */
#include "access/key_certificates.h"

#include "access/certificate_name.h"
#include "config/yaml/yaml.h"
#include "config/yaml/yaml_write.h"
#include "core/text/utf8.h"

#define EXPECTED                                                                                   \
    "a list of up to 64 names of certificates, such as dns:shop.example, uri:spiffe://prod/shop, " \
    "email:ops@example.com or cn:shop (for a certificate without subject alternative names); a "   \
    "name stands for one client, so a dns or cn name has no *"

int
cn_key_certificates_take(const char *file, const struct cn_yaml *node, struct cn_arena *arena,
                         struct cn_key_entry *entry, struct cn_error *err)
{
    if (node->kind != CN_YAML_LIST || node->n_items == 0 || node->n_items > CN_KEY_CERTIFICATES_MAX)
        return cn_yaml_refuse(file, node, "certificates", EXPECTED, err);
    entry->certificates = cn_arena_alloc(arena, node->n_items * sizeof *entry->certificates);
    for (uint32_t i = 0; i < node->n_items; i++) {
        const struct cn_yaml *item = node->items[i];

        if (item->kind != CN_YAML_STRING ||
            !cn_certificate_name_read(item->text, arena, &entry->certificates[i]))
            return cn_yaml_refuse(file, item, "certificates", EXPECTED, err);
    }
    entry->n_certificates = node->n_items;
    return 0;
}

int
cn_key_certificates_read(const char *flag, const char *list, struct cn_arena *arena,
                         struct cn_key_entry *entry, struct cn_error *err)
{
    struct cn_str rest = cn_str_from(list);

    entry->certificates =
        cn_arena_alloc(arena, CN_KEY_CERTIFICATES_MAX * sizeof *entry->certificates);
    do {
        const struct cn_str name = cn_str_cut(&rest, ',');

        if (entry->n_certificates == CN_KEY_CERTIFICATES_MAX ||
            !cn_certificate_name_read(name, arena, &entry->certificates[entry->n_certificates++]))
            return cn_fail(err, CN_E_CONFIG, "%s has \"%.*s\"; it must be " EXPECTED, flag,
                           (int)cn_utf8_cut(name, 80), name.ptr);
    } while (rest.len);
    return 0;
}

void
cn_key_certificates_write(const struct cn_key_entry *entry, struct cn_buf *out)
{
    for (uint32_t i = 0; i < entry->n_certificates; i++) {
        cn_buf_puts(out, i ? ", " : ", \"certificates\": [");
        cn_yaml_write_text(entry->certificates[i], out);
    }
    if (entry->n_certificates)
        cn_buf_puts(out, "]");
}
