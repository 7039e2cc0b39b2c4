/* kserve/models/kserve_index.h - the index of the v2 protocol's model repository, whatever
 * transport asks. On the request's loop. */
#ifndef CN_KSERVE_MODELS_KSERVE_INDEX_H
#define CN_KSERVE_MODELS_KSERVE_INDEX_H

struct cn_buf;
struct cn_repository_order;

/* Writes the result of an index order that is done, as the protocol's JSON array. */
void cn_v2_write_repository_index(const struct cn_repository_order *order, struct cn_buf *out);

#endif
