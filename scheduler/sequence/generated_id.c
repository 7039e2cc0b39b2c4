/* scheduler/sequence/generated_id.c - see the header. */
#include "scheduler/sequence/generated_id.h"

#include <string.h>

#include "core/system/random.h"

#define PREFIX "ts-seq-" /* TorchServe's, which its clients know */

struct cn_str
cn_generated_id_make(char out[CN_GENERATED_ID_BYTES])
{
    _Static_assert(CN_GENERATED_ID_BYTES == sizeof(PREFIX) + 36, "a UUID has 36 characters");

    memcpy(out, PREFIX, sizeof(PREFIX) - 1);
    cn_random_uuid(out + sizeof(PREFIX) - 1);
    return (struct cn_str){out, CN_GENERATED_ID_BYTES - 1};
}
