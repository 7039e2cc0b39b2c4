/* bench/connection.h - one keep-alive HTTP/1.1 connection with one request in flight.
 *
 * Made for little work per step: the request is formatted once and patched in
 * place (same length each time), so a step costs one send and one recv.
 */
#ifndef CN_BENCH_CONNECTION_H
#define CN_BENCH_CONNECTION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEQUENCE_DIGITS 9 /* of the number behind the prefix of a sequence id */
#define RETRY_DIGITS 3    /* after an error the sequence starts anew under the next id */

struct connection {
    int fd;       /* -1: not connected */
    bool waiting; /* a request is in flight */
    bool stalled; /* its answer took over a second: counted once a connection */
    uint64_t sent_us, due_us;
    uint32_t sequence;         /* of the request in flight */
    uint64_t turn;             /* requests started: chooses the sequence */
    uint32_t ahead;            /* or chance does, a step ahead: the sequence of the next request */
    uint64_t backlog;          /* fixed rate: arrivals that wait for this connection */
    uint64_t arrivals_started; /* fixed rate: gives the scheduled time of the next */
    char *request;             /* this connection's copy of the template */
    size_t received;
    char answer[4096];
};

/* The bytes of a request, and where its changing parts are. */
struct request_template {
    char bytes[1024];
    size_t len, sequence_at, retry_at; /* the body is the last byte */
};

/* A complete answer, pointing into the connection's buffer. */
struct answer {
    int status;
    const char *body;
    size_t body_len;
    bool closes; /* the server said Connection: close */
};

/* -1 when it does not fit. */
int request_template_init(struct request_template *t, const char *host, const char *path,
                          const char *prefix);

/* Connects (blocking) and then turns the socket non-blocking. -1: errno says why. */
int connection_open(struct connection *c, const struct sockaddr_in *address);
void connection_close(struct connection *c);
/* Sends the one-digit `body` as the next step of a sequence. -1: errno says why. */
int connection_send(struct connection *c, const struct request_template *t, uint32_t sequence,
                    uint32_t retry, char body);
/* Reads what has come. 1: `out` is complete; 0: more must come; -1: closed or not HTTP, `*why`
 * says. */
int connection_receive(struct connection *c, struct answer *out, const char **why);

#endif
