#define IMAGE_TABLE ech__image_generic
#define B 8
#include "device/cpu/image_body.h"
