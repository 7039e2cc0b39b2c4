/* frontend/endpoints/row_input.c - the headers and parts of a row, from an HTTP request. On the
 * loop of the request.
 *
 * The handler gets the headers of the request, plus those that TorchServe adds by itself:
 * `explain`, and `url_path` for the route that has one. They are put before the client's headers,
 * where places are free (CN_HTTP_SPARE_HEADERS).
 *
 * Parts come from the query (where the route allows it), from the fields of a form, or the whole
 * body is one part named `body`. A body that curl marks as a form by default, without being one, is
 * taken as a plain body: it has no "=". */
#include "frontend/endpoints/row_input.h"

#include "frontend/http/form.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"

struct cn_str
cn_input_mime_type(struct cn_str content_type)
{
    size_t len = 0;

    while (len < content_type.len && content_type.ptr[len] != ';')
        len++;
    return cn_str_trim((struct cn_str){content_type.ptr, len});
}

void
cn_input_headers(struct cn_http_request *request, struct cn_row *row)
{
    const struct cn_route_match *match = &request->match;

    row->headers = request->headers;
    row->n_headers = request->n_headers;
    if (match->route->flags & CN_ROUTE_EXPLAIN) {
        *--row->headers = (struct cn_header){CN_STR("explain"), CN_STR("True")};
        row->n_headers++;
        row->flags |= CN_ROW_EXPLAIN;
    } else if (!(match->route->flags & CN_ROUTE_QUERY) &&
               request->listener->shared->config->dialect == CN_DIALECT_TORCHSERVE) {
        *--row->headers = (struct cn_header){CN_STR("explain"), CN_STR("False")};
        row->n_headers++;
    }
    if (match->n_args == CN_ROUTE_ARGS_MAX) {
        *--row->headers = (struct cn_header){CN_STR("url_path"), match->args[2]};
        row->n_headers++;
    }
}

static int
add_query(struct cn_http_request *request, struct cn_parts *parts, struct cn_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < request->n_query && !rc; i++) {
        struct cn_part part = {0};

        if (!cn_http_decode(&request->arena, request->query[i].name, true, &part.name) ||
            !cn_http_decode(&request->arena, request->query[i].value, true, &part.data))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the query has %%00 or an escape that is not %% and two hex digits");
        rc = cn_parts_add(parts, &request->arena, part, err);
    }
    return rc;
}

static int
add_body(struct cn_http_request *request, struct cn_parts *parts, struct cn_error *err)
{
    const struct cn_header *header =
        cn_header_find(request->headers, request->n_headers, CN_STR("content-type"));
    struct cn_str body = cn_http_request_body_str(request);
    struct cn_str type = header ? header->value : CN_STR(""), mime = cn_input_mime_type(type);

    if (cn_str_eq_nocase(mime, CN_STR("multipart/form-data")))
        return cn_form_multipart(&request->arena, type, body, parts, err);
    if (cn_str_eq_nocase(mime, CN_STR("application/x-www-form-urlencoded")) && body.len &&
        memchr(body.ptr, '=', body.len))
        return cn_form_urlencoded(&request->arena, body, parts, err);
    return cn_parts_add(parts, &request->arena, (struct cn_part){CN_STR("body"), mime, body}, err);
}

int
cn_input_parts(struct cn_http_request *request, struct cn_row *row, struct cn_error *err)
{
    struct cn_parts parts = {.max = request->listener->shared->config->max_request_parts};
    int rc = 0;

    if (request->match.route->flags & CN_ROUTE_QUERY)
        rc = add_query(request, &parts, err);
    if (!rc)
        rc = add_body(request, &parts, err);
    row->parts = parts.list;
    row->n_parts = parts.n;
    return rc;
}

struct cn_str
cn_input_find(const struct cn_row *row, struct cn_str name)
{
    for (uint32_t i = row->n_parts; i-- > 0;)
        if (cn_str_eq(row->parts[i].name, name))
            return row->parts[i].data;
    return (struct cn_str){NULL, 0};
}
