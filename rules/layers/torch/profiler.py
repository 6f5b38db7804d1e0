from torch.autograd.profiler import record_function, profile
