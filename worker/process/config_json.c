/* worker/process/config_json.c - reads a model's YAML and writes it as JSON. Worker's thread,
 * once. */
#include "worker/process/config_json.h"

#include "config/yaml/yaml_write.h"

int
cn_config_json(const char *path, struct cn_buf *out, struct cn_error *err)
{
    struct cn_yaml_doc *doc;
    int rc;

    if ((rc = cn_yaml_parse_file(path, &doc, err)) != 0)
        return rc;
    cn_yaml_write(cn_yaml_root(doc), CN_YAML_AS_JSON, out);
    cn_yaml_destroy(doc);
    return out->failed ? cn_fail(err, CN_E_OUT_OF_MEMORY,
                                 "%s: not enough memory to convert it to JSON", path)
                       : 0;
}
