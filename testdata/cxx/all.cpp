// All models of this folder in one translation unit: Clang reads LibTorch's headers once for their tests.
#include "gpt.h"
#include "swin.h"
#include "translate.h"
#include "unet.h"
#include "vit.hpp"
