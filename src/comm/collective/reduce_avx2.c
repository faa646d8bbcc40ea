#define REDUCE_TABLE ech__reduce_avx2
#define REDUCE_NAME "avx2"
#include "comm/collective/reduce_body.h"
