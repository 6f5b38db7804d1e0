pre_process = None
share_embeddings_and_output_weights = {shares}
input_tensor = None
needs_inputs = ({inputs})  # arguments of the model's forward that this stage reads

def set_input_tensor(self, input_tensor):
    """Receives what the previous stage returned; called before forward."""
    self.input_tensor = input_tensor

def state_dict_for_save_checkpoint(self, prefix="", keep_vars=False):
    return self.state_dict(prefix=prefix, keep_vars=keep_vars)

def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
    return stage_state_dict(self, prefix, sharded_offsets)
