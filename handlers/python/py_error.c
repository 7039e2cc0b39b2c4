/* handlers/python/py_error.c - exceptions that leave the handler: into the reply, and into the log.
 * Worker's thread.
 *
 * continuo._runtime.report says what an exception means: the handler refuses the request, memory is
 * used up, or the handler has a mistake. Only the last two are logged, with the traceback.
 */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"

#define UNKNOWN "the handler raised an exception that cannot be shown"

/* Takes the exception that is set, and returns what report() says of it; NULL if that fails. */
static PyObject *
take_report(struct py_rt *rt)
{
    PyObject *type, *value, *traceback, *told = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback)
        PyException_SetTraceback(value, traceback);
    if (value && rt && rt->report)
        told = PyObject_CallFunctionObjArgs(rt->report, value, NULL);
    if (!told)
        PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return told;
}

static void
log_error(const struct py_rt *rt, const char *message, const char *traceback)
{
    char error[1200], sequence[300] = "", quoted[320], trace[3400];

    if (rt->row && rt->row->sequence_id.len) {
        struct cn_str id = cn_sequence_id_shown(rt->row->sequence_id);

        snprintf(sequence, sizeof(sequence), " sequence=%s",
                 cn_log_quote(id.ptr, id.len, quoted, 280));
    }
    cn_log(CN_LOG_WARN, "event=handler_error model=%s version=%s%s error=%s%s%s", rt->model,
           rt->version, sequence, cn_log_quote(message, strlen(message), error, sizeof(error)),
           traceback[0] ? " traceback=" : "",
           traceback[0] ? cn_log_quote(traceback, strlen(traceback), trace, sizeof(trace)) : "");
}

struct told {
    PyObject *report; /* keeps the texts; may be NULL */
    const char *kind, *message, *traceback;
    int status;
};

static void
read_report(struct py_rt *rt, struct told *out)
{
    *out = (struct told){take_report(rt), "failed", UNKNOWN, "", 0};
    if (out->report && !PyArg_ParseTuple(out->report, "siss", &out->kind, &out->status,
                                         &out->message, &out->traceback)) {
        PyErr_Clear();
        out->kind = "failed";
        out->message = UNKNOWN;
        out->traceback = "";
    }
    if (strcmp(out->kind, "refused") != 0 && strcmp(out->kind, "lost") != 0)
        log_error(rt, out->message, out->traceback);
}

void
cn_py_fail_reply(struct py_rt *rt, struct cn_reply *reply)
{
    struct told told;

    read_report(rt, &told);
    if (strcmp(told.kind, "memory") == 0)
        cn_reply_fail(reply, CN_E_OUT_OF_MEMORY, "Prediction failed: %s", told.message);
    else
        cn_reply_refuse(reply, told.status, cn_str_from(told.message));
    if (strcmp(told.kind, "lost") == 0)
        reply->close_reason = CN_CLOSE_WORKER_LOST;
    Py_XDECREF(told.report);
}

int
cn_py_fail_error(struct py_rt *rt, int code, struct cn_error *err)
{
    struct told told;

    read_report(rt, &told);
    if (strcmp(told.kind, "memory") == 0)
        code = CN_E_OUT_OF_MEMORY;
    cn_fail(err, code, "%s", told.message);
    if (err)
        err->message[strcspn(err->message, "\n")] = '\0'; /* more stands in the log */
    Py_XDECREF(told.report);
    return code;
}
