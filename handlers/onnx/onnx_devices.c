/* handlers/onnx/onnx_devices.c - how many CUDA devices there are. Worker's thread.
 *
 * onnxruntime's table has no function for that, so the driver is asked, which follows
 * CUDA_VISIBLE_DEVICES as onnxruntime does.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "handlers/onnx/onnx_model.h"

#define DRIVER "libcuda.so.1"

int
cn_onnx_devices(uint32_t *count, char *error, size_t n)
{
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    int (*get_count)(int *), (*init)(unsigned), rc, found = 0;

    if (!driver) {
        snprintf(error, n, "deviceType is gpu, but CUDA's driver cannot be opened: %s", dlerror());
        return -1;
    }
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    rc = init && get_count ? init(0) : -1;
    if (rc == 0)
        rc = get_count(&found);
    if (rc != 0 || found < 1) {
        snprintf(error, n, "deviceType is gpu, but " DRIVER " finds no device (error %d)", rc);
        return -1;
    }
    *count = (uint32_t)found;
    return 0;
}
