/* Built for an ABI that no server has. For handlers/c_runtime_test.c. */
#include <continuo/handler.h>

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI + 98,
    .size = sizeof(struct continuo_handler),
};
