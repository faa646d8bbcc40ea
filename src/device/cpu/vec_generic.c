#define VEC_TABLE ech__vec_generic
#define VEC_NAME "generic"
#include "device/cpu/vec_body.h"
