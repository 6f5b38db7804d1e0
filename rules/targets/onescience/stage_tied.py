tied = ({tied})  # parameters that the first and the last stage hold: the names of each

def shared_embedding_or_output_weight(self):
    """Megatron asks for it once a step, on the first and the last stage, and sums its gradient over the two."""
    return sum_tied(self)
