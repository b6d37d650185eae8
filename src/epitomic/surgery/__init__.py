"""Changes a user's own network in place: fuses convolution + max-pooling, or turns the pair into epitomic layers."""

from epitomic.surgery.conversion import convert_
from epitomic.surgery.fusion import fuse_, unfuse_

__all__ = ["convert_", "fuse_", "unfuse_"]
