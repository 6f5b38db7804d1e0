"""Writes data/wind.h5 and three static masks: a few advected waves."""
import os

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    folder = os.path.join(HERE, "data")
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(0)
    H, W, C, T = 16, 32, 10, 14
    lat, lon = np.meshgrid(np.linspace(-1, 1, H), np.linspace(0, 2 * np.pi, W, endpoint=False), indexing="ij")
    fields = np.stack([[np.cos((c % 3 + 1) * (lon - 0.2 * t)) * (1 - lat**2) + 0.1 * rng.standard_normal((H, W)) for c in range(C)] for t in range(T)])
    with h5py.File(os.path.join(folder, "wind.h5"), "w") as f:
        f["fields"] = fields
    for name, mask in [("land", lon > np.pi), ("soil", lat > 0), ("topography", lat * lon / 10)]:
        np.save(os.path.join(folder, name + "_mask.npy"), np.asarray(mask, dtype=np.float64))


if __name__ == "__main__":
    main()
