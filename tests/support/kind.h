/* The kind of device that a test trains on: the CPU, or what ECHELON_DEVICE names. Tests run again as
 * NAME@hidden on the reference in memory that the host cannot touch; it is plain C, so they are smaller
 * there. */
#pragma once

#include "device/device.h"

ech__device_kind asked_kind(void);
bool on_cpu(void);
