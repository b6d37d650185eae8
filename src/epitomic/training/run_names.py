"""Short names that tell several runs apart, for legends and titles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epitomic.training.run_folder import RunFolder


def labels(runs: Sequence[RunFolder]) -> list[str]:
    """Names each run by its network, and also by image set and folder where several runs need that.

    Runs that differ only in their seed share a name. All other runs have different names.
    """
    firsts = {group_key(run): run for run in reversed(runs)}  # the first run of each group
    several = len({run.dataset for run in runs}) > 1
    alike: dict[str, list[str]] = {}  # name without a folder -> groups that have it
    for key, run in firsts.items():
        alike.setdefault(f"{run.model_name}, {run.dataset}" if several else run.model_name, []).append(key)
    names = {}
    for name, keys in alike.items():
        ends = path_ends([firsts[key].folder for key in keys])
        names.update({key: f"{name} ({end})" if len(keys) > 1 else name for key, end in zip(keys, ends, strict=True)})
    return [names[group_key(run)] for run in runs]


def titles(runs: Sequence[RunFolder]) -> list[str]:
    """Names each run as `labels` does, and adds seed or folder so that no two runs share a name."""
    names = labels(runs)
    names = [f"{n}, seed {r.seed}" if names.count(n) > 1 else n for n, r in zip(names, runs, strict=True)]
    ends = path_ends([run.folder for run in runs])
    return [f"{n} ({end})" if names.count(n) > 1 else n for n, end in zip(names, ends, strict=True)]


def path_ends(folders: Sequence[Path]) -> list[str]:
    """The last parts of each path, as few as tell the paths apart.

    >>> path_ends([Path("runs/mnist/small-0"), Path("runs/cifar/small-0")])
    ['mnist/small-0', 'cifar/small-0']
    """
    paths = [folder.resolve() for folder in folders]
    ends: list[str] = []
    count = 0
    while len(set(ends)) < len(set(paths)):
        count += 1
        ends = [Path(*path.parts[-count:]).as_posix() for path in paths]
    return ends


def group_key(run: RunFolder) -> str:
    """A key that runs share if they differ only in their seed."""
    if not run.recipe:
        return str(run.folder.resolve())
    return repr(sorted((k, _without_none(v)) for k, v in run.recipe.items() if k != "seed"))


def _without_none(value: Any) -> Any:
    """Drops settings that are None, because older recipes may omit them."""
    return {k: _without_none(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value
