#define IMAGE_TABLE ech__image_avx512
#define B 16
#include "device/cpu/image/image_body.h"
