/* management/api/sequence_requests.h - requests about the sequences of a model. Loop 0. */
#ifndef CN_MANAGEMENT_API_SEQUENCE_REQUESTS_H
#define CN_MANAGEMENT_API_SEQUENCE_REQUESTS_H

#include "management/api/api_call.h"

/* Answers GET /models/{m}[/{v}]/sequences. */
void cn_api_list_sequences(struct cn_api_call *call);
/* Answers each method of /models/{m}[/{v}]/sequences/{id}. */
void cn_api_sequence(struct cn_api_call *call);

#endif
