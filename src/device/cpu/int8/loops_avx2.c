#define TABLE ech__int8_loops_avx2
#include "device/cpu/int8/loops_body.h"
