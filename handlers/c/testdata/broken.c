/* A handler for another major version of the ABI. For handlers/c/c_runtime_test.c. */
#include <continuo/handler.h>

const struct continuo_handler continuo_handler = {
    .abi = (uint32_t)(CONTINUO_HANDLER_ABI_MAJOR + 1) << 16,
    .size = sizeof(struct continuo_handler),
};
