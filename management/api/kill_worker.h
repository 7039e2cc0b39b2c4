/* management/api/kill_worker.h - DELETE /models/{m}/{v}/workers/{index}. Loop 0. */
#ifndef CN_MANAGEMENT_API_KILL_WORKER_H
#define CN_MANAGEMENT_API_KILL_WORKER_H

#include "management/api/api_call.h"

/* Kills the worker that the path names, and answers the call. */
void cn_api_kill_worker(struct cn_api_call *call);

#endif
