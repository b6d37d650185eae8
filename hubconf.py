"""Entry points for ``torch.hub``: every network by its name, and trained ones by `from_pretrained`.

    torch.hub.load("OWNER/epitomic", "epitomic_fast", pretrained="cifar10")
    torch.hub.load("OWNER/epitomic", "from_pretrained", "epitomic_small-mnist")

torch.hub does not build the native kernel, so the layers run on torch's operators. Install the package for speed.
"""

import functools as _functools
import sys as _sys
from pathlib import Path as _Path

_sys.path.insert(0, str(_Path(__file__).parent / "src"))

from epitomic.models import create_model, from_pretrained
from epitomic.models import list_models as _list_models

dependencies = ["torch"]
__all__ = ["create_model", "from_pretrained", *_list_models()]

for _name in _list_models():
    _build = _functools.partial(create_model, _name)
    _functools.update_wrapper(_build, create_model)
    globals()[_name] = _build
