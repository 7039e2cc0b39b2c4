/* handlers/python/py_error.c - exceptions that leave the handler: into the reply, and into the log.
 * Worker's thread.
 *
 * continuo._runtime.report says what an exception means: the handler refuses the request, its time
 * or its memory is used up, or it has a mistake. All but the first are logged, with the traceback,
 * which takes as many events as it needs.
 */
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/text/utf8.h"
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"

/* The event of the error has its message and the sequence, too: up to 2 kB. */
#define FIRST_PART_BYTES 1500
#define LINE_ROOM 3600

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

/* How many bytes the character takes in a line of the log, in whichever form takes the most: a line
 * end begins an indented line, and a control character becomes \u001b in JSON. */
static size_t
room_of(unsigned char c)
{
    if (c == '\n')
        return 5;
    if (c == '"' || c == '\\')
        return 2;
    return c < 0x20 || c == 0x7f ? 6 : 1;
}

size_t
cn_py_log_part(const char *text, size_t room)
{
    size_t len = 0, lines = 0, used = 0;

    for (; text[len] && used + room_of((unsigned char)text[len]) <= room; len++) {
        used += room_of((unsigned char)text[len]);
        if (text[len] == '\n')
            lines = len + 1;
    }
    if (!text[len])
        return len;
    return lines ? lines : cn_utf8_cut(cn_str_from(text), len);
}

/* Writes a part of a traceback, without the line end behind it, as it stands in an event. */
static const char *
quote_part(const char *part, size_t len, char out[LINE_ROOM])
{
    if (len > 0 && part[len - 1] == '\n')
        len--;
    return cn_log_quote(part, len, out, LINE_ROOM);
}

/* Logs what follows the part of a traceback that stands in the event of the error. */
static void
log_rest(const struct py_rt *rt, const char *traceback)
{
    char quoted[LINE_ROOM];
    size_t len;

    for (unsigned part = 2; *traceback; part++, traceback += len) {
        len = cn_py_log_part(traceback, CN_PY_LOG_PART);
        cn_log(CN_LOG_WARN, "event=handler_traceback model=%s version=%s part=%u traceback=%s",
               rt->model, rt->version, part, quote_part(traceback, len, quoted));
    }
}

static void
log_error(const struct py_rt *rt, const char *message, const char *traceback)
{
    const size_t first = cn_py_log_part(traceback, FIRST_PART_BYTES);
    char error[1200], sequence[300] = "", quoted[320], trace[LINE_ROOM];

    if (rt->row && rt->row->sequence_id.len) {
        struct cn_str id = cn_sequence_id_shown(rt->row->sequence_id);

        snprintf(sequence, sizeof(sequence), " sequence=%s",
                 cn_log_quote(id.ptr, id.len, quoted, 280));
    }
    cn_log(CN_LOG_WARN, "event=handler_error model=%s version=%s%s error=%s%s%s", rt->model,
           rt->version, sequence, cn_log_quote(message, strlen(message), error, sizeof(error)),
           traceback[0] ? " traceback=" : "",
           traceback[0] ? quote_part(traceback, first, trace) : "");
    log_rest(rt, traceback + first);
}

struct told {
    PyObject *report; /* keeps the texts; may be NULL */
    const char *kind, *message, *traceback;
    int status;
};

static void
read_report(struct py_rt *rt, struct told *out)
{
    cn_py_call_end(rt); /* what follows is not the handler's time */
    *out = (struct told){take_report(rt), "failed", UNKNOWN, "", 0};
    if (out->report && !PyArg_ParseTuple(out->report, "siss", &out->kind, &out->status,
                                         &out->message, &out->traceback)) {
        PyErr_Clear();
        out->kind = "failed";
        out->message = UNKNOWN;
        out->traceback = "";
    }
    rt->out_of_memory = rt->out_of_memory || strcmp(out->kind, "memory") == 0;
    if (strcmp(out->kind, "refused") != 0 && strcmp(out->kind, "lost") != 0)
        log_error(rt, out->message, out->traceback);
}

static int
code_of(const char *kind)
{
    if (strcmp(kind, "memory") == 0)
        return CN_E_OUT_OF_MEMORY;
    return strcmp(kind, "deadline") == 0 ? CN_E_HANDLER_DEADLINE : CN_E_HANDLER_FAILED;
}

void
cn_py_fail_reply(struct py_rt *rt, struct cn_reply *reply)
{
    struct told told;

    read_report(rt, &told);
    if (code_of(told.kind) != CN_E_HANDLER_FAILED)
        cn_reply_fail(reply, code_of(told.kind), "Prediction failed: %s", told.message);
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
    if (code_of(told.kind) != CN_E_HANDLER_FAILED && code != CN_E_LOAD_FAILED)
        code = code_of(told.kind);
    cn_fail(err, code, "%s", told.message);
    if (err)
        err->message[strcspn(err->message, "\n")] = '\0'; /* more stands in the log */
    Py_XDECREF(told.report);
    return code;
}
