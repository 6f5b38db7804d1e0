def parse_shape(x, pattern):
    return {name: size for name, size in zip(pattern.split(), x.shape) if name != "_"}


def pack(tensors, pattern):
    import torch
    names = pattern.split()
    at = names.index("*")
    after = len(names) - at - 1
    shapes = []
    flat = []
    for t in tensors:
        middle = t.shape[at:t.dim() - after]
        shapes.append(tuple(middle))
        flat.append(t.reshape(*t.shape[:at], -1, *t.shape[t.dim() - after:]))
    return torch.cat(flat, dim=at), shapes


def unpack(tensor, packed_shapes, pattern):
    import torch
    names = pattern.split()
    at = names.index("*")
    sizes = []
    for s in packed_shapes:
        n = 1
        for d in s:
            n *= d
        sizes.append(n)
    parts = torch.split(tensor, sizes, dim=at)
    return [p.reshape(*tensor.shape[:at], *s, *tensor.shape[at + 1:]) for p, s in zip(parts, packed_shapes)]


def asnumpy(x):
    return x
