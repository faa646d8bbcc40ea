/* The made-up set of images: a source of data/images.h, which says what is in it. */
#ifndef ECH_DATA_SYNTHETIC_H
#define ECH_DATA_SYNTHETIC_H

#include "data/images.h"

/* Fills count, labels, source and state of a set whose shapes are set. The caller closes it, also on failure. */
ech_status ech__synthetic_open(ech__images *set, ech__split split);

#endif
