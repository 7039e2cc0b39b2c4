/* frontend/intake/sequence_names.h - the names of the headers that say which sequence a step
 * belongs to.
 *
 * TorchServe lets operators rename these headers (ts_header_key_sequence_...), so we do, too. The
 * names are set once, before loops run, and only read after that, by any thread.
 */
#ifndef CN_FRONTEND_INTAKE_SEQUENCE_NAMES_H
#define CN_FRONTEND_INTAKE_SEQUENCE_NAMES_H

#include "config/server/server_config.h"
#include "core/text/str.h"

enum cn_sequence_name { CN_NAME_ID, CN_NAME_START, CN_NAME_END, CN_N_SEQUENCE_NAMES };

#define CN_SEQUENCE_NAME_MAX 64

/* The short name of the id's header. It cannot be renamed, and it has no underscore, because nginx
 * drops headers with underscores. */
#define CN_SHORT_SEQUENCE_HEADER "Continuo-Sequence"
/* Means the same. Clients of the v2 protocol expect this name, after their field sequence_id. */
#define CN_LONG_SEQUENCE_HEADER "Continuo-Sequence-Id"

/* Returns the name in lower case, because gRPC allows no other in metadata, and HTTP ignores case.
 * The text ends with a NUL. */
struct cn_str cn_sequence_name(enum cn_sequence_name which);

/* The name of the header in which the server sends an id that it made. */
#define CN_SEQUENCE_HEADER (cn_sequence_name(CN_NAME_ID).ptr)

/* Returns which of the three names it is. Upper and lower case are the same, and so are - and _;
 * the short and the long name count as the id. Returns CN_N_SEQUENCE_NAMES for any other name. */
enum cn_sequence_name cn_sequence_name_find(struct cn_str name);

/* Is it one of the three names as they are without the options? */
bool cn_sequence_name_is_default(struct cn_str name);

/* Reads the names from the options. Returns CN_E_CONFIG when a name is empty, too long, has a
 * character other than letters, digits, '-', '_' and '.', is used by the server for something else,
 * or occurs twice. */
int cn_sequence_names_use(const struct cn_server_config *config, struct cn_error *err);

#endif
