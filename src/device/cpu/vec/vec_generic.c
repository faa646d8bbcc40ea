#define VEC_TABLE ech__vec_generic
#define VEC_NAME "generic"
#define VEC_CHANNELS 8
#include "device/cpu/vec/vec_body.h"
