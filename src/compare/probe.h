/* What else happens on the cores: how fast each of them is, what the hypervisor takes from it, and what other
 * programs use.
 *
 *     ech__probe *probe;
 *     ECH_TRY(ech__probe_open(ctx, &probe));
 *     ech__probe_begin(probe, arm_cpu_s);              the processor time of the arm so far
 *     ... the arm runs ...
 *     ech__probe_end(probe, arm_cpu_s, &seen);
 *     ech__probe_close(probe);
 *
 * Busy and stolen time are the kernel's (/proc/stat, in ticks of some milliseconds); what this process and the arm
 * used is subtracted. The speed of a core is the time of a short loop, on all cores at once and on some of them
 * alone, while no arm runs. Virtual cores that share a physical one are recognised by the difference, and those
 * that were moved apart by the time of a message between them: the system does not know of either.
 */
#pragma once

#include "compare/rounds.h"

typedef struct ech__probe ech__probe;

ech_status ech__probe_open(ech_ctx *ctx, ech__probe **out);
void ech__probe_close(ech__probe *probe);
void ech__probe_begin(ech__probe *probe, double arm_cpu_s);
void ech__probe_end(ech__probe *probe, double arm_cpu_s, ech__disturbance *out);
/* Watches for so long, while no arm runs. */
void ech__probe_watch(ech__probe *probe, double seconds, ech__disturbance *out);
int ech__probe_cores(const ech__probe *probe);
