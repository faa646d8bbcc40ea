#define IMAGE_TABLE ech__image_generic
#define B 8
#include "device/cpu/image/image_body.h"
