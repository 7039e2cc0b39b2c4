/* access/certificate_name.h - the names of clients' certificates: "uri:spiffe://prod/shop",
 * "dns:shop.example", "email:ops@example.com" and "cn:shop". Any thread, no state.
 *
 * A name has its kind before it, so that a certificate authority that may give names of one kind
 * cannot make one of another kind. The key file and a certificate are read by the same function,
 * and so two names are the same if their bytes are. */
#ifndef CN_ACCESS_CERTIFICATE_NAME_H
#define CN_ACCESS_CERTIFICATE_NAME_H

#include <stdbool.h>

#include "access/key_file.h"
#include "core/memory/arena.h"

#define CN_CERTIFICATE_NAME_MAX 512 /* bytes, with the kind */

/* Makes a name of the kind "uri", "dns", "email" or "cn"; the text of a "dns" becomes lower case.
 * False: no key can have it, because it is empty or too long, has a character that cannot be in
 * such a name, or is a DNS or common name with *, which stands for more than one client. */
bool cn_certificate_name_make(struct cn_str kind, struct cn_str text, struct cn_arena *arena,
                              struct cn_str *out);
/* Reads a name with its kind, as it is in the key file. */
bool cn_certificate_name_read(struct cn_str name, struct cn_arena *arena, struct cn_str *out);
/* Hashes a name for the table that has the keys by their hashes. No key's text has such a hash. */
void cn_certificate_name_hash(struct cn_str name, unsigned char hash[CN_KEY_HASH_BYTES]);

#endif
