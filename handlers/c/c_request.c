/* handlers/c/c_request.c - the functions behind include/continuo/handler.h by which a handler reads
 * the request of an item. Worker's thread. */
#include <math.h>

#include "core/time/clock.h"
#include "handlers/c/c_priv.h"
#include "handlers/reply.h"

/* Returns bytes whose pointer is not NULL, because NULL means "absent" in this interface. */
static struct continuo_bytes
present(struct cn_str text)
{
    return (struct continuo_bytes){text.ptr ? text.ptr : "", text.len};
}

static const struct continuo_bytes absent = {NULL, 0};

static const struct cn_row *
row_of(struct continuo_item *handle)
{
    return cn_c_item(handle)->item->row;
}

size_t
cn_c_part_count(struct continuo_item *handle)
{
    return row_of(handle)->n_parts;
}

struct continuo_part
cn_c_part_at(struct continuo_item *handle, size_t index)
{
    const struct cn_row *row = row_of(handle);
    struct continuo_part part = {absent, absent, absent};

    if (index >= row->n_parts)
        return part;
    part.name = present(row->parts[index].name);
    part.data = present(row->parts[index].data);
    if (row->parts[index].content_type.len > 0)
        part.content_type = present(row->parts[index].content_type);
    return part;
}

/* If several parts have the same name, the last one counts, as in TorchServe. */
struct continuo_bytes
cn_c_part(struct continuo_item *handle, const char *name)
{
    const struct cn_row *row = row_of(handle);

    for (uint32_t i = row->n_parts; i-- > 0;)
        if (cn_str_eq(row->parts[i].name, cn_str_from(name)))
            return present(row->parts[i].data);
    return absent;
}

struct continuo_bytes
cn_c_body(struct continuo_item *handle)
{
    return present(cn_row_body(row_of(handle)));
}

struct continuo_bytes
cn_c_header(struct continuo_item *handle, const char *name)
{
    const struct cn_row *row = row_of(handle);

    for (uint32_t i = 0; i < row->n_headers; i++)
        if (cn_str_eq_header(row->headers[i].name, cn_str_from(name)))
            return present(row->headers[i].value);
    return absent;
}

struct continuo_bytes
cn_c_sequence_id(struct continuo_item *handle)
{
    const struct cn_row *row = row_of(handle);

    return row->flags & CN_ROW_STATEFUL ? present(row->sequence_id) : absent;
}

struct continuo_bytes
cn_c_request_id(struct continuo_item *handle)
{
    return present(row_of(handle)->request_id);
}

int
cn_c_is_start(struct continuo_item *handle)
{
    return cn_c_item(handle)->fresh;
}

int
cn_c_is_end(struct continuo_item *handle)
{
    return (row_of(handle)->flags & CN_ROW_END) != 0;
}

int
cn_c_is_cancelled(struct continuo_item *handle)
{
    return cn_c_item(handle)->item->stop != CN_STOP_NONE;
}

uint64_t
cn_c_step(struct continuo_item *handle)
{
    return cn_c_item(handle)->item->step;
}

double
cn_c_seconds_left(struct continuo_item *handle)
{
    uint64_t deadline_ms = cn_c_item(handle)->item->deadline_ms, now_ms = cn_now_ms();

    if (deadline_ms == CN_NEVER)
        return (double)INFINITY;
    return deadline_ms > now_ms ? (double)(deadline_ms - now_ms) / 1000.0 : 0.0;
}

/* The body is parsed as JSON at the first call, and kept for the item's later calls. A body that is
 * not JSON behaves like one without members. */
static json_t *
json_of(struct continuo_item *handle, const char *path)
{
    struct c_item *item = cn_c_item(handle);
    struct cn_str body = cn_row_body(item->item->row);

    if (!item->json_tried) {
        item->json_tried = true;
        item->json =
            json_loadb(body.ptr ? body.ptr : "", body.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    }
    return cn_c_json_at(item->json, path);
}

int
cn_c_json_int(struct continuo_item *handle, const char *path, int64_t *out)
{
    json_t *value = json_of(handle, path);

    if (!json_is_integer(value))
        return -1;
    *out = json_integer_value(value);
    return 0;
}

int
cn_c_json_double(struct continuo_item *handle, const char *path, double *out)
{
    json_t *value = json_of(handle, path);

    if (!json_is_number(value))
        return -1;
    *out = json_number_value(value);
    return 0;
}

struct continuo_bytes
cn_c_json_string(struct continuo_item *handle, const char *path)
{
    json_t *value = json_of(handle, path);

    if (!json_is_string(value))
        return absent;
    return (struct continuo_bytes){json_string_value(value), json_string_length(value)};
}
