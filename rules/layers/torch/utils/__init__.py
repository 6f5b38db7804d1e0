from torch.utils import checkpoint
