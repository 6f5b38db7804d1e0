# The classes of torch.nn, each in the file that PyTorch has it in.
from torch.nn.parameter import Parameter, UninitializedParameter, UninitializedBuffer, Buffer
from torch.nn.modules.module import Module
from torch.nn.modules.linear import Identity, Linear, Bilinear, LazyLinear
from torch.nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from torch.nn.modules.activation import (Threshold, ReLU, RReLU, Hardtanh, ReLU6, Sigmoid, Hardsigmoid, Tanh, SiLU, Mish, Hardswish, ELU, CELU, SELU, GLU, GELU, Hardshrink,
                                         LeakyReLU, LogSigmoid, Softplus, Softshrink, MultiheadAttention, PReLU, Softsign, Tanhshrink, Softmin, Softmax, Softmax2d, LogSoftmax)
from torch.nn.modules.loss import (L1Loss, NLLLoss, KLDivLoss, MSELoss, BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, SmoothL1Loss, HuberLoss, GaussianNLLLoss, PoissonNLLLoss,
                                   CosineEmbeddingLoss, MarginRankingLoss, TripletMarginLoss, CTCLoss, HingeEmbeddingLoss, SoftMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss2d)
from torch.nn.modules.container import Container, Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict
from torch.nn.modules.pooling import (AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d, LPPool1d, LPPool2d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d,
                                      AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d)
from torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm
from torch.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from torch.nn.modules.normalization import LocalResponseNorm, LayerNorm, GroupNorm, RMSNorm
from torch.nn.modules.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout
from torch.nn.modules.padding import (ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
                                      ConstantPad1d, ConstantPad2d, ConstantPad3d, CircularPad1d, CircularPad2d, CircularPad3d)
from torch.nn.modules.sparse import Embedding, EmbeddingBag
from torch.nn.modules.rnn import RNNBase, RNN, LSTM, GRU, RNNCell, LSTMCell, GRUCell
from torch.nn.modules.pixelshuffle import PixelShuffle, PixelUnshuffle
from torch.nn.modules.upsampling import Upsample, UpsamplingNearest2d, UpsamplingBilinear2d
from torch.nn.modules.distance import CosineSimilarity, PairwiseDistance
from torch.nn.modules.fold import Fold, Unfold
from torch.nn.modules.channelshuffle import ChannelShuffle
from torch.nn.modules.flatten import Flatten, Unflatten
from torch.nn.modules.transformer import Transformer, TransformerEncoder, TransformerDecoder, TransformerEncoderLayer, TransformerDecoderLayer
from torch.nn.parallel import DataParallel
import torch.nn.functional as functional
import torch.nn.init as init
import torch.nn.utils as utils
import torch.nn.modules as modules
