/* Moves data between the host and memory of a device, and between devices, whether the host can
 * touch that memory or not.
 *
 *     ECH_TRY(ech__device_scatter(device, layout, 4, 0, elems, canonical, address));    to the device
 *     ECH_TRY(ech__device_gather(device, layout, 4, 0, elems, address, canonical));     and back
 *
 * What the host can touch is moved as it is; all else goes through the functions of the device's
 * memory, and through a buffer on the host where a layout is not row-major. */
#pragma once

#include "plan/kernel.h"

/* ech__layout_scatter and ech__layout_gather for memory of a device. */
ech_status ech__device_scatter(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                               int64_t first, int64_t count, const void *canonical, void *memory);
ech_status ech__device_gather(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                              int64_t first, int64_t count, const void *memory, void *canonical);

/* Between any two devices, in a job of one of them. */
ech_status ech__device_copy(ech__device *device, void *dst, ech__device *from, const void *src,
                            int64_t bytes);

/* From a row-major tensor on one device into a laid-out one on another, in a job of one of them. */
ech_status ech__device_send(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                            int64_t count, void *dst, ech__device *from, const void *src);

/* Whether count elements on a device are all finite. */
ech_status ech__device_all_finite(ech__device *device, ech_dtype dtype, int64_t count,
                                  const void *memory, bool *out);
