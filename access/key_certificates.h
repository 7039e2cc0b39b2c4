/* access/key_certificates.h - the member `certificates` of a key: read from the key file or from a
 * command line, and written. Any thread. */
#ifndef CN_ACCESS_KEY_CERTIFICATES_H
#define CN_ACCESS_KEY_CERTIFICATES_H

#include "access/key_file.h"

struct cn_yaml;

#define CN_KEY_CERTIFICATES_MAX 64 /* names of one key */

/* Reads the member `node` of the key file; the names lie in the arena. CN_E_CONFIG with name, line
 * and column. */
int cn_key_certificates_take(const char *file, const struct cn_yaml *node, struct cn_arena *arena,
                             struct cn_key_entry *entry, struct cn_error *err);
/* Reads the list of a flag: "dns:a.example,cn:shop". CN_E_CONFIG. */
int cn_key_certificates_read(const char *flag, const char *list, struct cn_arena *arena,
                             struct cn_key_entry *entry, struct cn_error *err);
/* Appends `, "certificates": ["dns:a.example"]`, or nothing if the key has none. */
void cn_key_certificates_write(const struct cn_key_entry *entry, struct cn_buf *out);

#endif
