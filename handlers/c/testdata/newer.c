/* A handler for a newer minor version of the ABI. For handlers/c/c_runtime_test.c. */
#include <continuo/handler.h>

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI + 1,
    .size = sizeof(struct continuo_handler),
};
