/* management/api/sequence_json.h - sequences as the management API shows them, and tokens of
 * pages. */
#ifndef CN_MANAGEMENT_API_SEQUENCE_JSON_H
#define CN_MANAGEMENT_API_SEQUENCE_JSON_H

#include <jansson.h>

#include "config/model/model_config.h"
#include "proto/query.h"
#include "scheduler/queue/model_queue.h"

/* What stored numbers and, where the queue knows it as open (`live` not NULL), the queue say. */
json_t *cn_sequence_json(const struct cn_sequence_info *info, const struct cn_sequence_live *live,
                         const struct cn_model_config *config, uint64_t now_wall_ms);

/* Where a list goes on: behind `id` at the worker of this index (0: any). */
json_t *cn_page_token_json(uint32_t worker, struct cn_str id);
/* Into `id`, of CN_SEQUENCE_ID_MAX bytes. CN_E_BAD_REQUEST: no such token was given out. */
int cn_page_token_parse(const char *token, uint32_t *worker, char *id, size_t *id_len,
                        struct cn_error *err);

/* 1 to CN_SEQUENCE_ID_MAX bytes of UTF-8 without control characters, as a header's id must be; else
 * CN_E_BAD_REQUEST. */
int cn_sequence_id_check(const char *id, struct cn_error *err);

#endif
