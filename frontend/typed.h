/* frontend/typed.h - predictions of typed models: a body becomes tensors, tensors become JSON.
 *
 * On the loop of the request.
 */
#ifndef CN_FRONTEND_TYPED_H
#define CN_FRONTEND_TYPED_H

#include "core/error.h"
#include "proto/message.h"

struct cn_answer_box;
struct cn_http_request;
struct cn_model_queue;

/* The row's one body becomes the inputs that the model declares: from JSON, {name: values}, or else from
 * the bytes of its only input. CN_E_BAD_REQUEST: no such body, or not what the model takes. */
int cn_typed_read(struct cn_http_request *request, const struct cn_model_queue *queue,
                  struct cn_row *row, struct cn_error *err);
/* A whole answer made of tensors becomes JSON, {name: values}, or an error; any other stays as it is.
 * What the box holds afterwards lives as long as the request. */
void cn_typed_write(struct cn_http_request *request, struct cn_answer_box *box);

#endif
