/* What the stand-in for onnxruntime tells its tests, as the symbol fake_ort. */
#ifndef CN_HANDLERS_ONNX_TESTDATA_FAKE_ONNXRUNTIME_H
#define CN_HANDLERS_ONNX_TESTDATA_FAKE_ONNXRUNTIME_H

struct fake_ort {
    int alive; /* objects that were made and not released */
    int runs, binds;
    int mode, optimization, threads, inter_op_threads;
    int device;         /* the device that the CUDA provider was given */
    char provider[128]; /* the provider that was added last by its name, with its first option */
    char entry[128];    /* the last entry of the session's configuration */
};

__attribute__((visibility("default"))) extern struct fake_ort fake_ort;

#endif
