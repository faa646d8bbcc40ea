#define TABLE ech__int8_loops_generic
#include "device/cpu/int8/loops_body.h"
