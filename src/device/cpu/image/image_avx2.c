#define IMAGE_TABLE ech__image_avx2
#define B 8
#include "device/cpu/image/image_body.h"
