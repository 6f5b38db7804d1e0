from torch.nn import *
from torch.nn import (Module, Linear, Identity, Sequential, ModuleList, ModuleDict, LayerNorm, Dropout, Embedding, MultiheadAttention)
