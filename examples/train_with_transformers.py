"""Trains a network with epitomic layers by the Trainer of Hugging Face transformers.

pip install 'transformers[torch]'
python examples/train_with_transformers.py
"""

import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from epitomic import EpitomicConv2d


class EpitomicClassifier(nn.Module):
    """Takes and returns what the Trainer expects: ``pixel_values`` and ``labels``; ``loss`` and ``logits``."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.network = nn.Sequential(
            EpitomicConv2d(1, 32, 3, padding=1),  # was: nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2)
            nn.ReLU(),
            EpitomicConv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 2 * 2, classes),
        )

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.network(pixel_values)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Digits(Dataset[dict[str, Tensor]]):
    """scikit-learn's digits of 8 x 8 pixels: 360 for testing, the others for training."""

    def __init__(self, *, test: bool) -> None:
        from sklearn.datasets import load_digits

        values, classes = load_digits(return_X_y=True)
        order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
        chosen = order[:360] if test else order[360:]
        self.images = torch.from_numpy(values).float().reshape(-1, 1, 8, 8)[chosen] / 16 - 0.3
        self.labels = torch.from_numpy(classes)[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def train(folder: str, epochs: int = 5) -> float:
    """Trains, and returns the share of the test images that are classified rightly."""
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=360,
        learning_rate=3e-3,
        use_cpu=True,  # leave it out on a GPU
        seed=0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=EpitomicClassifier(),
        args=arguments,
        train_dataset=Digits(test=False),
        eval_dataset=Digits(test=True),
        compute_metrics=accuracy,
    )
    trainer.train()
    return float(trainer.evaluate()["eval_accuracy"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(f"accuracy on test images: {train(folder):.3f}")
