/* access/audit.c - the log's lines about who has changed the server. Any thread, no state. */
#include "access/audit.h"

#include "core/log/log.h"

void
cn_key_audit(const struct cn_key *key, struct cn_str method, struct cn_str path, int status)
{
    char shown_method[64], shown_path[1024];

    cn_log(CN_LOG_INFO, "event=audit key=%s method=%s path=%s status=%d", cn_key_name(key),
           cn_log_quote(method.ptr, method.len, shown_method, sizeof(shown_method)),
           cn_log_quote(path.ptr, path.len, shown_path, sizeof(shown_path)), status);
}
