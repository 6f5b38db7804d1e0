"""
args: {dim: 8, depth: 4}
inputs: {ids: "i64[2,6]<11", mask: "bool[2,6]", targets: "i64[2,6]<11"}
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, drop_path=0.0, index=0):
        super().__init__()
        self.index = index
        self.drop_path = drop_path
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask=None, scale=1.0):
        h = torch.tanh(self.fc(self.norm(x)))
        if mask is not None:
            h = h.masked_fill(mask[..., None], 0.0)
        x = x + self.out(h) * scale
        return x


class Model(nn.Module):
    def __init__(self, dim, depth, vocab=11, rate=0.1):
        super().__init__()
        self.depth = depth
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(16, dim)
        dpr = [x.item() for x in torch.linspace(0, rate, depth)]  # stochastic depth
        self.layers = nn.ModuleList([
            Block(dim, drop_path=dpr[i], index=i)
            for i in range(depth)
        ])
        self.scales = [1.0 / (i + 1) for i in range(depth)]
        self.more = nn.ModuleList([])
        for _ in range(3):
            self.more.append(Block(dim))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight
        self.num_features = self.norm.normalized_shape[0]
        self.apply(self._init_weights)
        for i, layer in enumerate(self.layers):
            nn.init.constant_(layer.out.bias, 0.01 * i)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.1)

    def forward(self, ids, mask=None, targets=None):
        B, T = ids.size()
        positions = torch.arange(T, device=ids.device)
        x = self.tok(ids) + self.pos(positions)
        # the blocks
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, scale=self.scales[i])
        for layer in self.more[:2]:
            x = layer(x, mask=mask)
        for i in range(len(self.more)):
            x = self.more[i](x)
        x = x.view(B, T, self.num_features)
        logits = self.head(self.norm(x))
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
            return logits, loss
        return logits, None
