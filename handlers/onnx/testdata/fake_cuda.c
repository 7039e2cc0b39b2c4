/* A stand-in for libcuda.so.1 with three devices. */
#define SHOWN __attribute__((visibility("default")))

SHOWN int cuInit(unsigned flags);
SHOWN int cuDeviceGetCount(int *n);

static int ready;

int
cuInit(unsigned flags)
{
    ready = flags == 0;
    return ready ? 0 : 1;
}

int
cuDeviceGetCount(int *n)
{
    *n = 3;
    return ready ? 0 : 3; /* CUDA_ERROR_NOT_INITIALIZED */
}
