/* frontend/http/transport/http_status.c - the words for statuses, and answers that no request asks
 * for. Any thread. */
#include <time.h>

#include "core/memory/buf.h"
#include "core/time/clock.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "management/management.h"

const char *
cn_http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *words;
    } reasons[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {203, "Non-Authoritative Information"},
        {204, "No Content"},
        {205, "Reset Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {423, "Locked"},
        {424, "Failed Dependency"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {451, "Unavailable For Legal Reasons"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        {511, "Network Authentication Required"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].words;
    return "Unknown";
}

/* A thread formats the date once a second. */
void
cn_http_put_date(struct cn_buf *out)
{
    static _Thread_local char line[48];
    static _Thread_local size_t len;
    static _Thread_local time_t of;
    const time_t now = (time_t)(cn_wall_ms() / 1000);
    struct tm parts;

    if (now != of || len == 0) {
        gmtime_r(&now, &parts);
        len = strftime(line, sizeof(line), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
        of = now;
    }
    cn_buf_append(out, line, len);
}

void
cn_http_format_refusal(int code, unsigned status, const char *message, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(code);
    struct cn_buf body;

    if (status == 0)
        status = (unsigned)info->http_status;
    cn_buf_init(&body, 0);
    cn_error_json_as(status, info->type, message, 0, &body);
    cn_buf_printf(out, "HTTP/1.1 %u %s\r\n", status, cn_http_reason(status));
    cn_http_put_date(out);
    cn_buf_printf(out,
                  "Content-Type: application/json\r\nContinuo-Error: %s\r\n"
                  "Connection: close\r\nContent-Length: %zu\r\n\r\n",
                  info->word, body.len);
    cn_buf_append_str(out, cn_buf_str(&body));
    cn_buf_fini(&body);
}
