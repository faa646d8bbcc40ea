#define REDUCE_TABLE ech__reduce_avx512
#define REDUCE_NAME "avx512"
#include "comm/collective/reduce_body.h"
