import torch


def load_state_dict_from_url(*args, **kwargs):
    return torch._unknown("weights from the network")


def load(*args, **kwargs):
    return torch._unknown("a model from the network")


def get_dir():
    return "hub"
