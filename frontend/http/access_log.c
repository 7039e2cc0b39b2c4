/* frontend/http/access_log.c - one line for each request, as text or JSON. The request's loop
 * formats the line and puts it into the log's ring buffer; another thread writes the file.
 *
 * A text line begins like TorchServe's access log, so that tools for that log can read it: address,
 * quoted request line, status, milliseconds. Continuo's own values follow as key=value, for example
 * `model=counter sequence=42 step=7 us=812`. A JSON line has the same values as members.
 */
#include "frontend/http/access_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/log/log_files.h"
#include "core/time/clock.h"

#define SHOWN_BYTES 1024 /* bytes of a path with its quotes and escapes; longer paths are cut */

static bool enabled, as_json;

void
cn_access_log_setup(const struct cn_server_config *config)
{
    enabled = config->access_log == 2 || (config->access_log == 0 && config->log_dir);
    as_json = config->log_format == 1;
}

bool
cn_access_log_enabled(void)
{
    return enabled;
}

/* Writes ` key=value` or ` key="quoted value"`, with the leading blank. Writes nothing when the
 * value is empty. */
static size_t
put_text(char *out, size_t room, const char *key, struct cn_str value)
{
    char quoted[SHOWN_BYTES];
    int n;

    if (value.len == 0)
        return 0;
    n = snprintf(out, room, " %s=%s", key,
                 cn_log_quote(value.ptr, value.len, quoted, sizeof(quoted)));
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static struct cn_str
text_of(const char *text)
{
    return text ? cn_str_from(text) : (struct cn_str){NULL, 0};
}

/* Writes Continuo's own values as key=value, each with a leading blank. They always fit, because
 * long texts were cut before. */
static size_t
put_members(const struct cn_access *access, char *out, size_t room)
{
    size_t len = 0;

    len += put_text(out + len, room - len, "model", text_of(access->model));
    len += put_text(out + len, room - len, "version", text_of(access->version));
    len += put_text(out + len, room - len, "sequence", access->sequence);
    if (access->step)
        len += (size_t)snprintf(out + len, room - len, " step=%" PRIu64, access->step);
    len += (size_t)snprintf(out + len, room - len, " us=%" PRIu64 " in=%" PRIu64 " out=%" PRIu64,
                            access->us, access->bytes_in, access->bytes_out);
    if (access->request_id)
        len += (size_t)snprintf(out + len, room - len, " id=%s", access->request_id);
    return len;
}

unsigned long
cn_access_log_format(const struct cn_access *access, bool json, uint64_t wall_ms,
                     char out[CN_ACCESS_LINE_MAX])
{
    char when[25], path[SHOWN_BYTES], method[64], members[2560];
    const char *client = access->client ? access->client : "-";
    size_t len;

    cn_wall_format(wall_ms, when);
    cn_log_quote(access->path.ptr, access->path.len, path, sizeof(path));
    cn_log_quote(access->method.ptr, access->method.len, method, sizeof(method));
    method[strlen(method) - 1] = '\0'; /* without its quotes */
    members[put_members(access, members, sizeof(members))] = '\0';
    if (!json) {
        path[strlen(path) - 1] = '\0'; /* the protocol stands inside the quotes */
        len = (size_t)snprintf(out, CN_ACCESS_LINE_MAX, "%s - %s%s \"%s %s %s\" %u %" PRIu64 "%s",
                               when, access->client ? "/" : "", client, method + 1, path + 1,
                               access->protocol, access->status, access->us / 1000, members);
    } else {
        char plain[SHOWN_BYTES + sizeof(members) + 128];

        snprintf(plain, sizeof(plain), "client=\"%s\" method=%s\" path=%s protocol=%s status=%u%s",
                 client, method, path, access->protocol, access->status, members);
        len = (size_t)snprintf(out, CN_ACCESS_LINE_MAX, "{\"time\":\"%s\",", when);
        len += cn_log_json_members(plain, out + len, CN_ACCESS_LINE_MAX - len - 2);
        out[len++] = '}';
    }
    if (len > CN_ACCESS_LINE_MAX - 1)
        len = CN_ACCESS_LINE_MAX - 1;
    out[len++] = '\n';
    return len;
}

void
cn_access_log_put(const struct cn_access *access)
{
    char line[CN_ACCESS_LINE_MAX];

    cn_log_files_put(CN_LOG_ACCESS, line,
                     cn_access_log_format(access, as_json, cn_wall_ms(), line));
}
