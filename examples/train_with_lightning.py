"""Trains a small network with epitomic layers by a Lightning module.

pip install lightning
python examples/train_with_lightning.py
"""

from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epitomic import EpitomicConv2d


class EpitomicClassifier(lightning.LightningModule):
    """Two epitomic layers, each in place of a convolution and a max-pooling, and a linear layer."""

    def __init__(self, classes: int = 10, lr: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.network = nn.Sequential(
            EpitomicConv2d(1, 32, 3, padding=1),  # was: nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2)
            nn.ReLU(),
            EpitomicConv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 2 * 2, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: Any, index: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def validation_step(self, batch: Any, index: int) -> None:
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def digits() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Returns scikit-learn's digits of 8 x 8 pixels, for training and for testing."""
    from sklearn.datasets import load_digits

    values, classes = load_digits(return_X_y=True)
    images, labels = torch.from_numpy(values).float().reshape(-1, 1, 8, 8) / 16 - 0.3, torch.from_numpy(classes)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    sets = (TensorDataset(images[part], labels[part]) for part in (order[360:], order[:360]))
    training, testing = (DataLoader(part, batch_size=64, shuffle=number == 0) for number, part in enumerate(sets))
    return training, testing


def train(epochs: int = 5, folder: str | None = None) -> float:
    """Trains, and returns the share of the test images that are classified rightly."""
    lightning.seed_everything(0, verbose=False)
    training, testing = digits()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",  # "auto" takes a GPU
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=folder is not None,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = EpitomicClassifier()
    trainer.fit(model, training, testing)
    return float(trainer.callback_metrics["accuracy"])


if __name__ == "__main__":
    print(f"accuracy on test images: {train():.3f}")
