#define REDUCE_TABLE ech__reduce_generic
#define REDUCE_NAME "generic"
#include "comm/collective/reduce_body.h"
