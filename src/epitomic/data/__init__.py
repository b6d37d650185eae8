"""Images to train on: sets in memory as plain tensors, photographs from disk; augmentation, crops, batches."""

from epitomic.data.augment import Augmentation
from epitomic.data.batches import Standardize, TrainingBatches
from epitomic.data.crops import Photographs
from epitomic.data.feed import Batch, Feed, Part
from epitomic.data.memory import MemoryFeed, plain_batches
from epitomic.data.open import PHOTOGRAPHS, open_photographs
from epitomic.data.sets import NAMES, ImageSet, Split, hold_out, load_set

__all__ = [
    "NAMES",
    "PHOTOGRAPHS",
    "Augmentation",
    "Batch",
    "Feed",
    "ImageSet",
    "MemoryFeed",
    "Part",
    "Photographs",
    "Split",
    "Standardize",
    "TrainingBatches",
    "hold_out",
    "load_set",
    "open_photographs",
    "plain_batches",
]
