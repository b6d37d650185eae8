"""Settings as frozen dataclasses, and the same settings as command-line options and as JSON.

A field made by `option` carries its description and its limits. The help, the checks and the options follow from them.
A nested field becomes a dotted option: ``--optimizer.lr 0.02``. A group that has a ``name`` can be set by it alone:
``--model maxpool_small`` means ``--model.name maxpool_small``.

tyro and jsonargparse do this too, but both add 0.3 s to the start, neither checks limits, and their error messages take
8 to 30 lines where ours take one.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from epitomic.support.errors import UserError, unknown

T = TypeVar("T")
PREFIX = "option:"  # argparse stores the values of our options under names that begin with this
METAVARS = {bool: "true|false", int: "N", float: "X", str: "NAME", type(None): "none"}
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", type(None): "none"}
FITS = {"at least": operator.ge, "above": operator.gt, "below": operator.lt}
WORDS = {"true": True, "false": False, "yes": True, "no": False}


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
    """Makes a dataclass field with a one-line description and limits; ``alias`` is a second, shorter name."""
    limits = {"at least": at_least, "above": above, "below": below}
    metadata = {"help": help, "limits": limits, "choices": tuple(choices), "alias": alias}
    return dataclasses.field(default=default, metadata=metadata)


def add_options(
    parser: argparse.ArgumentParser, kind: type, title: str, description: str, *, first: Collection[str] = ()
) -> None:
    """Adds an option for each field of the dataclass ``kind``, in the order of the fields.

    The help lists them in a group of their own, but the fields ``first``, such as ``"optimizer.lr"``, with the
    command's own options.
    """
    group = parser.add_argument_group(title, description)
    for path, field, hint in _leaves(kind):
        names = [field.metadata["alias"], path.removesuffix(".name"), path]
        choices = ": " + ", ".join(field.metadata["choices"]) if field.metadata["choices"] else ""
        (parser if path in first else group).add_argument(
            *(flag(name) for name in dict.fromkeys(names) if name),
            dest=PREFIX + path,
            metavar="|".join(METAVARS[kind] for kind in _kinds(hint)),
            default=argparse.SUPPRESS,
            help=f"{field.metadata['help']}{choices} (default: the recipe's)",
        )


def flag(path: str) -> str:
    """Returns the option that sets a field.

    >>> flag("model.conv_dropout")
    '--model.conv-dropout'
    """
    return "--" + path.replace("_", "-")


def given_options(args: argparse.Namespace) -> dict[str, str]:
    """Returns the fields that were set on the command line, with the words that set them."""
    return {name.removeprefix(PREFIX): text for name, text in vars(args).items() if name.startswith(PREFIX)}


def overridden(config: T, args: argparse.Namespace) -> T:
    """Returns ``config`` with the values that were set on the command line, checked."""
    hints = {path: hint for path, _, hint in _leaves(type(config))}
    for path, text in given_options(args).items():
        config = _replace(config, path.split("."), _parse(path, text, hints[path]))
    check(config)
    return config


def whole(at_least: int) -> Callable[[str], int]:
    """Returns the argparse ``type`` of a whole number that is ``at_least`` this large."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if value < at_least:
            raise argparse.ArgumentTypeError(f"must be at least {at_least}, got {value}")
        return value

    return parse


def check(config: Any) -> None:
    """Raises an error that names the first option whose value does not fit."""
    for path, field, hint in _leaves(type(config)):
        value = _get(config, path)
        if not _fits(value, hint):
            raise _wrong_type(path, value, hint)
        choices = field.metadata.get("choices", ())
        if choices and value not in choices:
            raise unknown(flag(path), value, choices)
        if isinstance(value, int | float):
            _check_limits(path, value, field.metadata.get("limits", {}))


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the settings as JSON can hold them."""
    return dataclasses.asdict(config)


def from_dict(kind: type[T], values: Any, source: str, prefix: str = "") -> T:
    """Reads the settings that `to_dict` returned, and checks them.

    Older files may omit settings whose default is None, and groups of them. Errors name the ``source`` of the values.
    ``prefix`` is the path of the group that is read, such as ``"model."``.
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
        nested = dataclasses.is_dataclass(hints[name])
        if name not in values and field.default is not None and not (nested and _optional(hints[name])):
            raise UserError(f"{source} has no setting {prefix}{name}")
        value = values.get(name, {} if nested else None)
        arguments[name] = from_dict(hints[name], value, source, f"{prefix}{name}.") if nested else value
    config = kind(**arguments)
    if not prefix:
        try:
            check(config)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
    return config


def _optional(kind: Any) -> bool:
    """Whether every setting of a group is None unless it is given."""
    return all(field.default is None for field in dataclasses.fields(kind))


def differences(old: T, new: T) -> Iterator[tuple[str, Any, Any]]:
    """Yields (path, old value, new value) for each setting that differs."""
    for path, *_ in _leaves(type(old)):
        a, b = _get(old, path), _get(new, path)
        if a != b:
            yield path, a, b


def _leaves(kind: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Yields (path, field, type hint) for each setting that is not a group."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _leaves(hint, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field, hint


def _get(config: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), config)


def _replace(config: Any, path: Sequence[str], value: Any) -> Any:
    head, *rest = path
    return dataclasses.replace(config, **{head: _replace(getattr(config, head), rest, value) if rest else value})


def _parse(path: str, text: str, hint: Any) -> Any:
    """Turns a word of the command line into a value of the field's type."""
    kinds = _kinds(hint)
    if type(None) in kinds and text.lower() == "none":
        return None
    readers: dict[type, Callable[[str], Any]] = {bool: lambda text: WORDS[text.lower()], int: int, float: float}
    try:
        return next((readers[kind] for kind in readers if kind in kinds), str)(text)
    except (ValueError, KeyError):
        raise _wrong_type(path, text, hint) from None


def _kinds(hint: Any) -> tuple[type, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    kinds = _kinds(hint)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))


def _wrong_type(path: str, value: Any, hint: Any) -> UserError:
    return UserError(f"{flag(path)} must be {' or '.join(TYPES[kind] for kind in _kinds(hint))}, got {value!r}")


def _check_limits(path: str, value: float, limits: dict[str, float | None]) -> None:
    if not math.isfinite(value):
        raise UserError(f"{flag(path)} must be finite, got {value}")
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if not all(FITS[name](value, limit) for name, limit in known.items()):
        wanted = " and ".join(f"{name} {limit:g}" for name, limit in known.items())
        raise UserError(f"{flag(path)} must be {wanted}, got {value}")
