# Recurrent layers: parameters and shapes; the recurrence itself is one opaque operation.
import torch
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class RNNBase(Module):
    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates = {"LSTM": 4, "GRU": 3}.get(mode, 1)
        directions = 2 if bidirectional else 1
        out = proj_size if proj_size > 0 else hidden_size
        for layer in range(num_layers):
            for direction in range(directions):
                suffix = "_reverse" if direction == 1 else ""
                size = input_size if layer == 0 else out * directions
                setattr(self, f"weight_ih_l{layer}{suffix}", Parameter(torch.empty((gates * hidden_size, size), dtype=dtype)))
                setattr(self, f"weight_hh_l{layer}{suffix}", Parameter(torch.empty((gates * hidden_size, out), dtype=dtype)))
                if bias:
                    setattr(self, f"bias_ih_l{layer}{suffix}", Parameter(torch.empty(gates * hidden_size, dtype=dtype)))
                    setattr(self, f"bias_hh_l{layer}{suffix}", Parameter(torch.empty(gates * hidden_size, dtype=dtype)))
                if proj_size > 0:
                    setattr(self, f"weight_hr_l{layer}{suffix}", Parameter(torch.empty((proj_size, hidden_size), dtype=dtype)))

    def flatten_parameters(self):
        return None

    def reset_parameters(self):
        return None

    def forward(self, input, hx=None):
        if not isinstance(input, torch.Tensor):
            return torch._unknown("packed sequences are not followed")
        directions = 2 if self.bidirectional else 1
        width = self.proj_size if self.proj_size > 0 else self.hidden_size
        operands = [input] + list(self.parameters())
        if hx is not None:
            operands += list(hx) if isinstance(hx, tuple) else [hx]
        out = torch._opaque("torch.nn." + self.mode, tuple(input.shape[:-1]) + (width * directions,), input.dtype, *operands)
        batch = input.shape[0] if self.batch_first else input.shape[1]
        lead = (self.num_layers * directions, batch) if input.dim() == 3 else (self.num_layers * directions,)
        h = torch._opaque("torch.nn." + self.mode, lead + (width,), input.dtype, *operands)
        if self.mode == "LSTM":
            return out, (h, torch._opaque("torch.nn." + self.mode, lead + (self.hidden_size,), input.dtype, *operands))
        return out, h


class RNN(RNNBase):
    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0, bidirectional=False, device=None, dtype=None):
        super().__init__("RNN", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)


class LSTM(RNNBase):
    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)


class GRU(RNNBase):
    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, device=None, dtype=None):
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)


class RNNCellBase(Module):
    gates = 1

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.weight_ih = Parameter(torch.empty((self.gates * hidden_size, input_size), dtype=dtype))
        self.weight_hh = Parameter(torch.empty((self.gates * hidden_size, hidden_size), dtype=dtype))
        if bias:
            self.bias_ih = Parameter(torch.empty(self.gates * hidden_size, dtype=dtype))
            self.bias_hh = Parameter(torch.empty(self.gates * hidden_size, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)

    def _step(self, input, hx):
        operands = [input] + list(self.parameters())
        if hx is not None:
            operands += list(hx) if isinstance(hx, tuple) else [hx]
        return torch._opaque("torch.nn." + type(self).__name__, tuple(input.shape[:-1]) + (self.hidden_size,), input.dtype, *operands)

    def forward(self, input, hx=None):
        return self._step(input, hx)


class RNNCell(RNNCellBase):
    pass


class GRUCell(RNNCellBase):
    gates = 3


class LSTMCell(RNNCellBase):
    gates = 4

    def forward(self, input, hx=None):
        return self._step(input, hx), self._step(input, hx)
