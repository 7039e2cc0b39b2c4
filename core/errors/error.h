/* core/errors/error.h - one error argument, instead of errno or a thread's last message.
 *
 * A function that can fail for a reason outside the program returns 0 or one of the negative codes
 * below, and fills the caller's struct cn_error. errors.def, and no other file, says which HTTP
 * status, gRPC status and type name belong to a code. */
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
    int sys_errno;                      /* of cn_fail_sys; 0: there is none */
    char message[CN_ERROR_MESSAGE_MAX]; /* one line, no final newline */
};

struct cn_error_info {
    int code;
    const char *word; /* the word for programs, as in the Continuo-Error header: "queue_full" */
    int http_status;
    int grpc_status;
    const char *type; /* TorchServe's exception name for the JSON body */
};

/* Fills `err` (NULL is allowed) and returns `code`, so that a caller can write `return cn_fail(err,
 * CN_E_NOT_FOUND, "...")`. Text beyond the limit is cut. The arguments may point into the old
 * err->message. Any thread. */
int cn_fail(struct cn_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Does what cn_fail does, and appends ": " and the system's text for `sys_errno`. */
int cn_fail_sys(struct cn_error *err, int code, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The table's row for a code. Never NULL: an unknown code gets the row of CN_E_INTERNAL. */
const struct cn_error_info *cn_error_info(int code);

#endif
