class Dataset:
    pass


class IterableDataset(Dataset):
    pass


class DataLoader:
    def __init__(self, *args, **kwargs):
        pass


class Sampler:
    pass
