/* scheduler/sequence/generated_id.h - the id of a sequence whose client sent none. Any thread. */
#ifndef CN_SCHEDULER_SEQUENCE_GENERATED_ID_H
#define CN_SCHEDULER_SEQUENCE_GENERATED_ID_H

#include "core/text/str.h"
#include "scheduler/queue/job.h"

/* Writes "ts-seq-" and a random UUID into `out`, with a NUL, and returns that text. */
struct cn_str cn_generated_id_make(char out[CN_GENERATED_ID_BYTES]);

#endif
