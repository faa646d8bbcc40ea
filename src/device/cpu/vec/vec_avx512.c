#define VEC_TABLE ech__vec_avx512
#define VEC_NAME "avx512"
#define VEC_CHANNELS 16
#include "device/cpu/vec/vec_body.h"
