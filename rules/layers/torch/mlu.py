from torch._absent_device import *
