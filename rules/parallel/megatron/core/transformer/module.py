import torch.nn as nn


class MegatronModule(nn.Module):
    def __init__(self, config=None, *args, **kwargs):
        super().__init__()
        self.config = config

    def state_dict_for_save_checkpoint(self, prefix="", keep_vars=False):
        return self.state_dict(prefix=prefix, keep_vars=keep_vars)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        return {}


class GraphableMegatronModule(MegatronModule):
    pass


class Float16Module(MegatronModule):
    pass
