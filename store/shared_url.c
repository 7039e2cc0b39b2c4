/* store/shared_url.c - turns the URL of a shared store into options. Any thread. */
#include "store/shared_url.h"

#include <string.h>

int
cn_shared_url_read(const char *text, struct cn_shared_url *out, struct cn_error *err)
{
    struct cn_state_store_url *url = &out->url;
    int rc;

    memset(out, 0, sizeof(*out));
    if ((rc = cn_state_store_url_parse(cn_str_from(text), url, err)) != 0)
        return rc;
    if (!url->shared)
        return cn_fail(err, CN_E_CONFIG, "an embedded store is not shared");
    out->tls = (struct cn_shared_tls){url->ca, url->certificate, url->key, url->name};
    for (uint32_t i = 0; i < url->n_hosts; i++)
        out->hosts[i] =
            (struct cn_shared_host){.host = url->hosts[i].host, .port = url->hosts[i].port};
    out->options = (struct cn_shared_options){.hosts = out->hosts,
                                              .n_hosts = url->n_hosts,
                                              .master = url->master,
                                              .cluster = url->cluster,
                                              .tls = url->tls ? &out->tls : NULL,
                                              .user = url->user,
                                              .password = url->password,
                                              .prefix = url->prefix,
                                              .model = "",
                                              .version = ""};
    return 0;
}
