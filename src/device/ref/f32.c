#define REAL float
#define TABLE ech__ref_f32
#include "device/ref/body.inc"
