/* frontend/page/feed.h - what the page shows, as one stream of server-sent events.
 *
 * GET /events answers with a stream that goes on for ever. Its first event is complete, and each
 * further one, --page-interval later, has only what changed. All clients get the same events, so
 * another client costs no more than its bytes, and nothing is computed while nobody watches. A
 * client that does not read gets no further event until it has taken the last one; then it gets a
 * complete one. So the server keeps at most one event per client. Loop 0. */
#ifndef CN_FRONTEND_PAGE_FEED_H
#define CN_FRONTEND_PAGE_FEED_H

struct cn_feed;
struct cn_http_request;
struct cn_http_shared;

/* Makes the feed, before any loop runs. `shared` is borrowed. */
struct cn_feed *cn_feed_create(const struct cn_http_shared *shared);
/* Frees it, when no loop runs. NULL is allowed. */
void cn_feed_destroy(struct cn_feed *feed);

/* The function behind GET /events. */
void cn_feed_handle(struct cn_http_request *request);
/* Ends all streams, because the server stops. Later requests are refused. */
void cn_feed_end(struct cn_feed *feed);

#endif
