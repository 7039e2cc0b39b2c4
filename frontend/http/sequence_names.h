/* frontend/http/sequence_names.h - the names of the headers that say which sequence a step belongs
 * to.
 *
 * TorchServe lets operators rename them (ts_header_key_sequence_...). They are set once, before
 * loops run, and only read after that, by any thread.
 */
#ifndef CN_FRONTEND_HTTP_SEQUENCE_NAMES_H
#define CN_FRONTEND_HTTP_SEQUENCE_NAMES_H

#include "config/server/server_config.h"
#include "core/text/str.h"

enum cn_sequence_name { CN_NAME_ID, CN_NAME_START, CN_NAME_END, CN_N_SEQUENCE_NAMES };

#define CN_SEQUENCE_NAME_MAX 64

/* The short name of the id's header. It cannot be renamed and has no underscore, which nginx
 * drops. */
#define CN_SHORT_SEQUENCE_HEADER "Continuo-Sequence"

/* In small letters: gRPC's metadata have no others, and HTTP doesn't tell them apart. A C string,
 * too. */
struct cn_str cn_sequence_name(enum cn_sequence_name which);

/* The name under which a generated id is told. */
#define CN_SEQUENCE_HEADER (cn_sequence_name(CN_NAME_ID).ptr)

/* Is it one of the three, or the short name of the id, in any case of letters and with - for _?
 * CN_N_SEQUENCE_NAMES: none. */
enum cn_sequence_name cn_sequence_name_find(struct cn_str name);

/* Takes the names from the options. CN_E_CONFIG: one is empty, too long, has another character than
 * letters, digits, '-', '_' and '.', means something else already, or two are the same. */
int cn_sequence_names_use(const struct cn_server_config *config, struct cn_error *err);

#endif
