/* frontend/page/page_files.h - the files of the page, which are built into the program.
 * On the loop of the request. */
#ifndef CN_FRONTEND_PAGE_PAGE_FILES_H
#define CN_FRONTEND_PAGE_PAGE_FILES_H

struct cn_http_request;

/* The function behind GET /, which is the page except in TorchServe's dialect. */
void cn_page_handle_root(struct cn_http_request *request);
/* The function behind GET /page and GET /page/{file}. */
void cn_page_handle(struct cn_http_request *request);
/* The function behind GET /try/{model} of the inference address. */
void cn_page_handle_try(struct cn_http_request *request);

#endif
