/* frontend/page/page_files.c - the files of the page. Any loop, no state.
 *
 * The build turns each file of page_files.def into an array, so the page works without a folder of
 * its own, without another site and without a tool that packs it. */
#include "frontend/page/page_files.h"

#include <stddef.h>

#include "frontend/endpoints/openapi.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"
#define SVG "image/svg+xml"

#define CN_PAGE_FILE(symbol, name, type)                                                           \
    extern const unsigned char cn_page_##symbol[];                                                 \
    extern const size_t cn_page_##symbol##_bytes;
#include "frontend/page/page_files.def"
#undef CN_PAGE_FILE

static const struct file {
    const char *name, *type;
    const unsigned char *bytes;
    const size_t *n_bytes;
} files[] = {
#define CN_PAGE_FILE(symbol, name, type) {name, type, cn_page_##symbol, &cn_page_##symbol##_bytes},
#include "frontend/page/page_files.def"
#undef CN_PAGE_FILE
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

static void
answer(struct cn_http_request *request, struct cn_str name)
{
    for (size_t i = 0; i < N_FILES; i++) {
        if (!cn_str_eq(name, cn_str_from(files[i].name)))
            continue;
        cn_http_answer_page(request, files[i].type,
                            (struct cn_str){(const char *)files[i].bytes, *files[i].n_bytes});
        return;
    }
    cn_http_answer_error(request, CN_E_NOT_FOUND, "the page has no such file", 0);
}

/* Returns true if the server shows no page, and has said so. */
static bool
is_off(struct cn_http_request *request)
{
    if (request->listener->shared->config->page != CN_PAGE_OFF)
        return false;
    cn_http_answer_error(request, CN_E_NOT_FOUND, "this server shows no page (--page off)", 0);
    return true;
}

void
cn_page_handle(struct cn_http_request *request)
{
    if (!is_off(request))
        answer(request, request->match.n_args ? request->match.args[0] : CN_STR("page.html"));
}

void
cn_page_handle_root(struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (config->dialect == CN_DIALECT_TORCHSERVE || config->page == CN_PAGE_OFF)
        cn_openapi_refuse(request);
    else
        answer(request, CN_STR("page.html"));
}

void
cn_page_handle_try(struct cn_http_request *request)
{
    if (!is_off(request))
        answer(request, CN_STR("try.html"));
}
