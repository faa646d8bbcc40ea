#define REAL double
#define TABLE ech__ref_f64
#include "device/ref/body.inc"
