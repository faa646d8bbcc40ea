#define VEC_TABLE ech__vec_avx2
#define VEC_NAME "avx2"
#define VEC_CHANNELS 8
#include "device/cpu/vec/vec_body.h"
