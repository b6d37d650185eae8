"""Changes a user's own network: fuses convolution + max-pooling, makes epitomic layers of them, folds batch norms.

`for_export` makes a copy that exports to fast code.
"""

from epitomic.surgery.batch_norm import fold_batch_norm
from epitomic.surgery.conversion import convert_
from epitomic.surgery.exporting import for_export
from epitomic.surgery.fusion import fuse_, unfuse_

__all__ = ["convert_", "fold_batch_norm", "for_export", "fuse_", "unfuse_"]
