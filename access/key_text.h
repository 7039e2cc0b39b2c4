/* access/key_text.h - a key as its client sends it: made, recognised and hashed. Any thread. */
#ifndef CN_ACCESS_KEY_TEXT_H
#define CN_ACCESS_KEY_TEXT_H

#include <stdbool.h>

#include "access/key_file.h"

/* "continuo-", which lets programs that search for leaked secrets find a key, and 32 random bytes
 * in base64url. */
#define CN_KEY_TEXT_PREFIX "continuo-"
#define CN_KEY_TEXT_LEN 52
#define CN_KEY_TEXT_MAX (CN_KEY_TEXT_LEN + 1)

/* Makes a new key, with a NUL. */
void cn_key_text_make(char out[CN_KEY_TEXT_MAX]);
/* Hashes a key. False: the text cannot be a key, because its form is another one. */
bool cn_key_text_hash(struct cn_str text, unsigned char hash[CN_KEY_HASH_BYTES]);
/* The key in "Bearer KEY"; the scheme may be written in any case. Empty: it is something else. */
struct cn_str cn_key_text_of_bearer(struct cn_str authorization);

#endif
