"""Settings as frozen dataclasses, and the same settings as command-line options and JSON.

A field made by `option` carries its one-line description and its limits. From them follow ``--help``, the checks, and
an option per field, nested ones dotted: ``--optimizer.lr 0.02``. A group with a ``name`` may be given by it alone:
``--model maxpool_small`` is ``--model.name maxpool_small``; and a field may have a short name of its own, an ``alias``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from epitomic.errors import UserError, unknown

T = TypeVar("T")
PREFIX = "option:"  # of the names under which argparse keeps our values
METAVARS = {bool: "true|false", int: "N", float: "X", str: "NAME", type(None): "none"}


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    alias: str | None = None,
) -> Any:
    """A dataclass field with a description and limits."""
    limits = {"at least": at_least, "above": above, "below": below}
    metadata = {"help": help, "limits": limits, "choices": tuple(choices), "alias": alias}
    return dataclasses.field(default=default, metadata=metadata)


def add_options(parser: argparse._ActionsContainer, kind: type) -> None:
    """An option for each field of a dataclass."""
    for path, field, hint in _leaves(kind):
        names = [f"--{path}"]
        if path.endswith(".name"):
            names.insert(0, f"--{path.removesuffix('.name')}")
        if field.metadata.get("alias"):
            names.insert(0, f"--{field.metadata['alias']}")
        choices = field.metadata.get("choices", ())
        parser.add_argument(
            *names,
            dest=PREFIX + path,
            metavar="|".join(METAVARS[kind] for kind in _kinds(hint)),
            default=argparse.SUPPRESS,
            help=field.metadata.get("help", "") + (": " + ", ".join(choices) if choices else ""),
        )


def whole(at_least: int) -> Callable[[str], int]:
    """The ``type`` of a command-line option that is a whole number, ``at_least`` so large."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if value < at_least:
            raise argparse.ArgumentTypeError(f"must be at least {at_least}, got {value}")
        return value

    return parse


def overridden(config: T, args: argparse.Namespace) -> T:
    """``config`` with the options that were given."""
    given = {name.removeprefix(PREFIX): text for name, text in vars(args).items() if name.startswith(PREFIX)}
    hints = {path: hint for path, _, hint in _leaves(type(config))}
    for path, text in given.items():
        config = _replace(config, path.split("."), _parse(path, text, hints[path]))
    check(config)
    return config


def check(config: Any, prefix: str = "") -> None:
    """An error that names the option whose value does not fit."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            check(value, f"{path}.")
            continue
        if not _fits(value, hints[field.name]):
            raise UserError(f"--{path} must be {_type_name(hints[field.name])}, got {value!r}")
        choices = field.metadata.get("choices", ())
        if choices and value not in choices:
            raise unknown(f"--{path}", value, choices)
        if isinstance(value, int | float):
            _check_limits(path, value, field.metadata.get("limits", {}))


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as JSON can hold them."""
    return dataclasses.asdict(config)


def from_dict(kind: type[T], values: Any, source: str, prefix: str = "") -> T:
    """The settings that `to_dict` gave, checked; ``source`` says in errors where they are from.

    A setting that is None unless given may be missing: files of before it was there mean just that.
    """
    if not isinstance(values, dict):
        raise UserError(f"{source} does not hold settings: {prefix or 'it'} is {type(values).__name__}, not an object")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise unknown(f"setting in {source}", f"{prefix}{name}", (f"{prefix}{f}" for f in fields))
    arguments = {}
    for name, field in fields.items():
        if name not in values and field.default is not None:
            raise UserError(f"{source} has no setting {prefix}{name!s}")
        value = values.get(name)
        nested = dataclasses.is_dataclass(hints[name])
        arguments[name] = from_dict(hints[name], value, source, f"{prefix}{name}.") if nested else value
    config = kind(**arguments)
    if not prefix:
        try:
            check(config)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
    return config


def differences(old: Any, new: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(option, old value, new value) of each setting that differs."""
    for field in dataclasses.fields(old):
        a, b = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(a):
            yield from differences(a, b, f"{prefix}{field.name}.")
        elif a != b:
            yield f"{prefix}{field.name}", a, b


def _leaves(kind: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _leaves(hint, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field, hint


def _replace(config: Any, path: Sequence[str], value: Any) -> Any:
    head, *rest = path
    return dataclasses.replace(config, **{head: _replace(getattr(config, head), rest, value) if rest else value})


def _parse(path: str, text: str, hint: Any) -> Any:
    """The value that a word of the command line stands for."""
    kinds = _kinds(hint)
    if type(None) in kinds and text.lower() == "none":
        return None
    try:
        if bool in kinds:
            return {"true": True, "false": False, "yes": True, "no": False}[text.lower()]
        for kind in (int, float):
            if kind in kinds:
                return kind(text)
    except (ValueError, KeyError):
        raise UserError(f"--{path} must be {_type_name(hint)}, got {text!r}") from None
    return text


def _kinds(hint: Any) -> tuple[type, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    kinds = _kinds(hint)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))


def _check_limits(path: str, value: float, limits: dict[str, float | None]) -> None:
    if not math.isfinite(value):
        raise UserError(f"--{path} must be finite, got {value}")
    holds = {"at least": lambda v, limit: v >= limit, "above": lambda v, limit: v > limit}
    for name, limit in limits.items():
        if limit is not None and not holds.get(name, lambda v, limit: v < limit)(value, limit):
            wanted = " and ".join(f"{n} {v:g}" for n, v in limits.items() if v is not None)
            raise UserError(f"--{path} must be {wanted}, got {value}")


def _type_name(hint: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", type(None): "none"}
    return " or ".join(names[kind] for kind in _kinds(hint))
