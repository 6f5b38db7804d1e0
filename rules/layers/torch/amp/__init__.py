from torch import autocast
from torch.cuda.amp import custom_bwd, custom_fwd, GradScaler


def is_autocast_available(device_type):
    return True
