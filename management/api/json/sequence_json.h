/* management/api/json/sequence_json.h - sequences as the management API shows them, and the tokens
 * of its pages. */
#ifndef CN_MANAGEMENT_API_JSON_SEQUENCE_JSON_H
#define CN_MANAGEMENT_API_JSON_SEQUENCE_JSON_H

#include <jansson.h>

#include "config/model/model_config.h"
#include "proto/query.h"
#include "scheduler/queue/model_queue.h"

/* The JSON of a sequence, from the store's numbers and, if the queue has it open (`live` not NULL),
 * the queue's. */
json_t *cn_sequence_json(const struct cn_sequence_info *info, const struct cn_sequence_live *live,
                         const struct cn_model_config *config, uint64_t now_wall_ms);

/* The token with which a list goes on: behind `id`, at the worker with this index (0: any). */
json_t *cn_page_token_json(uint32_t worker, struct cn_str id);
/* Reads a token into `id`, which has CN_SEQUENCE_ID_MAX bytes. CN_E_BAD_REQUEST: it is not a token
 * of ours. */
int cn_page_token_parse(const char *token, uint32_t *worker, char *id, size_t *id_len,
                        struct cn_error *err);

/* Checks an id: 1 to CN_SEQUENCE_ID_MAX bytes of UTF-8 without control characters, as in a header;
 * else CN_E_BAD_REQUEST. */
int cn_sequence_id_check(const char *id, struct cn_error *err);

#endif
