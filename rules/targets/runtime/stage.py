input_tensor = None
needs_inputs = ({inputs})  # arguments of the model's forward that this stage reads
{passes}

def set_input_tensor(self, tensors):
    """Receives what the previous stage returned; called before forward."""
    self.input_tensor = tensors
