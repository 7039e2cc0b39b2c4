/* management/api/shared_states.h - /shared-states/{model}/{version}: how many sequences the shared
 * store has of a model version, and their removal when no node serves it any more. Loop 0. */
#ifndef CN_MANAGEMENT_API_SHARED_STATES_H
#define CN_MANAGEMENT_API_SHARED_STATES_H

#include "management/api/api_call.h"

/* GET counts. DELETE removes up to 16,384 sequences and says how many are left, so the caller
 * repeats it until none is left. */
void cn_api_shared_states(struct cn_api_call *call, bool removes);

#endif
