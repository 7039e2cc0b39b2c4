/* frontend/intake/intake.h - how a request becomes a job, whichever protocol it came by.
 *
 * The HTTP endpoints and the gRPC services read what their client sent into struct cn_intake.
 * cn_intake_fill then makes the job, by rules that are the same for all of them. It runs on the
 * loop of the request, and allocates and copies nothing where sequences have no owners.
 *
 * Sequences belong to whoever opens them: from here on the id of a sequence begins with the name of
 * its owner and "/". So equal ids of two owners are two sequences, and no owner can name a sequence
 * of another one, by any protocol.
 */
#ifndef CN_FRONTEND_INTAKE_INTAKE_H
#define CN_FRONTEND_INTAKE_INTAKE_H

#include "core/errors/error.h"
#include "frontend/intake/step_headers.h"
#include "scheduler/queue/job.h"

struct cn_model_queue;

/* What a request says, besides its row's headers and parts. All bytes are borrowed and stay in
 * place until the job has its final answer. */
struct cn_intake {
    const struct cn_model_queue *queue; /* the model version that the job will be given to */
    struct cn_loop *loop;               /* the calling loop; answers come back to it */
    const struct cn_job_ops *ops;
    struct cn_str version; /* as the client named it; empty: any version */
    struct cn_str request_id;
    struct cn_sequence_headers sequence;
    const struct cn_header *headers; /* these may have the step's number and its idempotency key */
    uint32_t n_headers;
    bool key_first;              /* if both headers are wrong, report the key and not the number */
    uint64_t client_deadline_ms; /* cn_now_ms(); CN_NEVER: the client has not set one */
    int connection;              /* as in struct cn_job */
    const atomic_bool *left;     /* as in struct cn_job */
    uint32_t client;             /* as in struct cn_job */
    uint64_t begun_us;           /* as in struct cn_job */
    struct cn_str owner;         /* name of the owner of sequences; empty: they have none */
    struct cn_account *account;  /* of the request's named key; NULL: there is none */
    struct cn_arena *arena;      /* of the request: has the whole id where there are owners */
};

/* Fills `job`. The caller has set it to zero, except for the row's headers and parts and those
 * flags of the row that only the caller's protocol has. Returns CN_E_BAD_REQUEST if a model with
 * sequences was sent a step number or an idempotency key that is not valid, or an id that is too
 * long with its owner. */
int cn_intake_fill(struct cn_job *job, const struct cn_intake *intake, struct cn_error *err);

/* The longest id of a request, with its NUL. */
#define CN_REQUEST_ID_MAX 128
#define CN_REQUEST_ID_NEW 37 /* length of an id that the server makes, with its NUL */

/* Makes a new id for a request. */
void cn_intake_make_request_id(char out[CN_REQUEST_ID_NEW]);
/* Chooses the request's id: the client's id in the header, if it is printable ASCII without blanks
 * and fits; otherwise, and for NULL, a new one. */
void cn_intake_choose_request_id(const struct cn_header *given, char out[CN_REQUEST_ID_MAX]);

#endif
