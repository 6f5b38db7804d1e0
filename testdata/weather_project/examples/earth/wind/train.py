import logging
import os
import time

import h5py
import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

from onescience.models.wind import Wind

current_path = os.path.dirname(os.path.abspath(__file__))
logging.basicConfig(level=logging.INFO)
logger = logging.getLogger("wind")


class WindDataset(Dataset):
    """Two successive time steps of an HDF5 file."""

    def __init__(self, path, first, last):
        self.path, self.first, self.last = path, first, last
        self.file = None

    def __len__(self):
        return self.last - self.first - 1

    def __getitem__(self, index):
        if self.file is None:  # opened in the worker that reads
            self.file = h5py.File(self.path, "r")
        fields = self.file["fields"]
        return torch.from_numpy(fields[self.first + index]), torch.from_numpy(fields[self.first + index + 1])


def load_config(path):
    with open(path) as f:
        return yaml.safe_load(f)


def main():
    cfg = load_config(os.path.join(current_path, "conf/config.yaml"))
    data_root = os.environ.get("WIND_DATA", current_path)
    dtype = torch.float64 if os.environ.get("WIND_DTYPE") == "f64" else torch.float32
    torch.set_default_dtype(dtype)
    torch.manual_seed(cfg["training"]["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    # static masks: land-sea, soil type, topography
    masks = torch.stack(
        [torch.from_numpy(np.load(os.path.join(data_root, cfg["datapipe"]["masks"], name + "_mask.npy"))) for name in ("land", "soil", "topography")]
    ).to(device, dtype=dtype)

    train_dataset = WindDataset(os.path.join(data_root, cfg["datapipe"]["file"]), 0, 11)
    val_dataset = WindDataset(os.path.join(data_root, cfg["datapipe"]["file"]), 10, 14)
    train_loader = DataLoader(train_dataset, batch_size=cfg["datapipe"]["batch_size"], shuffle=False, drop_last=True)
    val_loader = DataLoader(val_dataset, batch_size=cfg["datapipe"]["batch_size"], shuffle=False)

    model = Wind(
        img_size=cfg["model"]["img_size"],
        patch_size=cfg["model"]["patch_size"],
        embed_dim=cfg["model"]["embed_dim"],
        num_heads=cfg["model"]["num_heads"],
        window_size=cfg["model"]["window_size"],
    ).to(device)
    criterion = nn.L1Loss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["training"]["lr"], weight_decay=cfg["training"]["weight_decay"])
    best = float("inf")

    for epoch in range(cfg["training"]["max_epoch"]):
        model.train()
        started = time.time()
        for step, data in enumerate(train_loader):
            invar, outvar = data[0].to(device, dtype=dtype), data[1].to(device, dtype=dtype)
            # the masks go between the surface fields and those aloft
            invar = torch.cat([invar[:, :4], masks.unsqueeze(0).expand(invar.shape[0], -1, -1, -1), invar[:, 4:]], dim=1)
            target_surface, target_aloft = outvar[:, :4], outvar[:, 4:]

            out_surface, out_aloft = model(invar)
            loss_surface = criterion(out_surface, target_surface)
            loss_aloft = criterion(out_aloft, target_aloft)
            loss = cfg["training"]["surface_weight"] * loss_surface + loss_aloft

            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            logger.info("epoch %d step %d loss %.16e", epoch, step, loss.item())

        model.eval()
        with torch.no_grad():
            total = 0.0
            for data in val_loader:
                invar, outvar = data[0].to(device, dtype=dtype), data[1].to(device, dtype=dtype)
                invar = torch.cat([invar[:, :4], masks.unsqueeze(0).expand(invar.shape[0], -1, -1, -1), invar[:, 4:]], dim=1)
                out_surface, out_aloft = model(invar)
                total += criterion(out_aloft, outvar[:, 4:]).item()
        logger.info("epoch %d validation %.6f (%.1f s)", epoch, total / len(val_loader), time.time() - started)
        if total < best:
            best = total
            torch.save(model.state_dict(), os.path.join(data_root, "wind.pth"))


if __name__ == "__main__":
    main()
