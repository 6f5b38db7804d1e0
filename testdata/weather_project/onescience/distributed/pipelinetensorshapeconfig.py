class PipelineTensorShapeConfig:
    """Shapes of the tensors that cross between pipeline stages: one entry for every stage but the last."""

    def __init__(self, num_stages, stage_shapes):
        if len(stage_shapes) != num_stages - 1:
            raise ValueError(f"{num_stages} stages have {num_stages - 1} boundaries, {len(stage_shapes)} are described")
        self.num_stages = num_stages
        self.stage_shapes = stage_shapes
