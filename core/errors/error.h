/* core/errors/error.h - one error argument instead of errno or thread-local text.
 *
 * A function that can fail for a reason outside the program returns 0 or one
 * of the negative codes below and fills the caller's struct cn_error. Which
 * HTTP status, gRPC status and type name a code gets stands in errors.def and
 * nowhere else.
 */
#ifndef CN_CORE_ERRORS_ERROR_H
#define CN_CORE_ERRORS_ERROR_H

#define CN_ERROR_MESSAGE_MAX 1024

enum cn_error_code {
    CN_OK = 0,
    CN_E_FIRST_ = -1000,
#define CN_ERROR(code, word, http, grpc, type) code,
#include "core/errors/errors.def"
#undef CN_ERROR
    CN_E_END_
};

struct cn_error {
    int code;                           /* 0 or CN_E_... */
    char message[CN_ERROR_MESSAGE_MAX]; /* one line, no final newline */
};

struct cn_error_info {
    int code;
    const char *word; /* machine word, as in the Continuo-Error header: "queue_full" */
    int http_status;
    int grpc_status;
    const char *type; /* TorchServe's exception name for the JSON body */
};

/* Fills `err` (NULL allowed) and returns `code`, so that callers can write
 * `return cn_fail(err, CN_E_NOT_FOUND, "...")`. Text over the limit is cut. */
int cn_fail(struct cn_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As cn_fail, with ": <strerror(sys_errno)>" at the end. */
int cn_fail_sys(struct cn_error *err, int code, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Never NULL: an unknown code is described as CN_E_INTERNAL. */
const struct cn_error_info *cn_error_info(int code);

#endif
