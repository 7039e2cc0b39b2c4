/* access/audit.h - the log's lines about who has changed the server. Any thread. */
#ifndef CN_ACCESS_AUDIT_H
#define CN_ACCESS_AUDIT_H

#include "access/keys.h"

/* Writes "event=audit key=NAME method=DELETE path=/models/m status=200". `method` and `path` come
 * from outside and are quoted where that is necessary. The line has the key's name and never the
 * key. `status`: of HTTP, or gRPC's number. */
void cn_key_audit(const struct cn_key *key, struct cn_str method, struct cn_str path, int status);

#endif
