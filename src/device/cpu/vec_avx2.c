#define VEC_TABLE ech__vec_avx2
#define VEC_NAME "avx2"
#include "device/cpu/vec_body.h"
