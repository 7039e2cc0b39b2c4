/* store/link/valkey_cluster.h - finds the primaries of a cluster. The link's thread. */
#ifndef CN_STORE_LINK_VALKEY_CLUSTER_H
#define CN_STORE_LINK_VALKEY_CLUSTER_H

#include "store/link/link.h"

void cn_valkey_cluster_init(struct cn_valkey_link *link);
void cn_valkey_cluster_fini(struct cn_valkey_link *link);
/* Asks the hosts of the URL, until one knows which servers have the places.
 * CN_E_STORE_UNREACHABLE: none answers, or the cluster has no owners for them. CN_E_STATE_STORE:
 * one refuses the password, or is not a server of a cluster. */
int cn_valkey_cluster_find(struct cn_valkey_link *link, uint64_t deadline_us, struct cn_error *err);
/* Asks again if it is time, or if something is not right. Keeps what is known if nobody answers. */
void cn_valkey_cluster_refresh(struct cn_valkey_link *link, uint64_t deadline_us);

#endif
