"""Trains a small network with epitomic layers in plain PyTorch, on one process or on several (DistributedDataParallel).

python examples/train_with_ddp.py
torchrun --nproc-per-node 2 examples/train_with_ddp.py
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from epitomic import EpitomicConv2d


def make_network() -> nn.Sequential:
    return nn.Sequential(
        EpitomicConv2d(1, 32, 3, padding=1),  # was: nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2)
        nn.ReLU(),
        EpitomicConv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Returns scikit-learn's digits of 8 x 8 pixels, for training and for testing."""
    from sklearn.datasets import load_digits

    values, classes = load_digits(return_X_y=True)
    images = torch.from_numpy(values).float().reshape(-1, 1, 8, 8) / 16 - 0.3
    labels = torch.from_numpy(classes)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def train(epochs: int = 5) -> float:
    """Trains, and returns the share of the test images that are classified rightly."""
    several = "RANK" in os.environ  # torchrun sets it
    if several:
        dist.init_process_group("gloo")  # "nccl" on GPUs
    torch.manual_seed(0)
    training, testing = digits()
    network = make_network()
    model: nn.Module = DistributedDataParallel(network) if several else network
    sampler: DistributedSampler[tuple[Tensor, ...]] | None = DistributedSampler(training) if several else None
    loader = DataLoader(training, batch_size=64, sampler=sampler, shuffle=sampler is None, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    network.eval()
    images, labels = testing.tensors
    with torch.no_grad():
        accuracy = float((network(images).argmax(1) == labels).float().mean())
    if several:
        dist.destroy_process_group()
    return accuracy


if __name__ == "__main__":
    accuracy = train()
    if os.environ.get("RANK", "0") == "0":
        print(f"accuracy on test images: {accuracy:.3f}")
