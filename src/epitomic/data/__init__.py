"""Image sets as plain tensors: readers, splits, augmentation, batches."""

from epitomic.data.augment import Augmentation
from epitomic.data.batches import Standardize, TrainingBatches
from epitomic.data.sets import NAMES, ImageSet, Split, hold_out, load_set

__all__ = ["NAMES", "Augmentation", "ImageSet", "Split", "Standardize", "TrainingBatches", "hold_out", "load_set"]
