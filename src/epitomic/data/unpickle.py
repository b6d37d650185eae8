"""Reads a pickle of plain data without running any of it.

Python's `pickle` calls whatever a file names. This reader is a small machine of its own over `pickletools.genops`: it
knows numbers, strings, lists, tuples, dictionaries and NumPy arrays of bytes, and stops at anything else.
"""

from __future__ import annotations

import math
import pickletools
from typing import Any

import torch
from torch import Tensor

# What a pickled NumPy array names. These are names to us: nothing is looked up or called.
RECONSTRUCT = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class UnpickleError(Exception):
    """The pickle is damaged, or asks for more than plain data."""


class _Name(tuple[str, str]):
    """A module and a name in it."""


class _Array:
    """A NumPy array or dtype between being made and being filled."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.value: Tensor | None = None


_MARK = object()


def unpickle(raw: bytes) -> Any:
    """The value of a pickle of plain data; arrays of uint8 as tensors, everything else as Python has it.

    >>> import pickle
    >>> unpickle(pickle.dumps({"labels": [3, 1]}))
    {'labels': [3, 1]}

    Raises:
        UnpickleError: If it is damaged or names anything but NumPy arrays.
    """
    try:
        return _finish(_Machine().run(raw))
    except UnpickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UnpickleError(f"damaged pickle ({type(error).__name__}: {error})") from None


class _Machine:
    """The stack and the memo, and one step per opcode."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, raw: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(raw):
            if opcode.name == "STOP":
                (value,) = self.stack
                return value
            self.step(opcode.name, argument)
        raise UnpickleError("damaged pickle: it has no end")

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in LITERALS:
            stack.append(argument)
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("PROTO", "FRAME"):
            pass
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(self.pop_to_mark()))
        elif name == "LIST":
            stack.append(self.pop_to_mark())
        elif name == "DICT":
            stack.append(_pairs(self.pop_to_mark()))
        elif name == "APPEND":
            value = stack.pop()
            _list(stack[-1]).append(value)
        elif name == "APPENDS":
            values = self.pop_to_mark()
            _list(stack[-1]).extend(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _dict(stack[-1])[key] = value
        elif name == "SETITEMS":
            values = self.pop_to_mark()
            _dict(stack[-1]).update(_pairs(values))
        elif name == "GLOBAL":
            module, _, attribute = argument.partition(" ")
            stack.append(_name(module, attribute))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_name(module, attribute))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_reduce(function, arguments))
        elif name == "BUILD":
            state, target = stack.pop(), stack[-1]
            _build(target, state)
        else:
            raise UnpickleError(f"it uses {name}, which plain data has no need of")

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]


CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: dict[str, type] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}


def _name(module: Any, attribute: Any) -> _Name:
    if (module, attribute) not in RECONSTRUCT:
        raise UnpickleError(f"it asks for {module}.{attribute}, which is not plain data; nothing of it was run")
    return _Name((module, attribute))


def _reduce(function: Any, arguments: Any) -> Any:
    """What a call would give, for the calls that make arrays."""
    if not isinstance(function, _Name) or not isinstance(arguments, tuple):
        raise UnpickleError("it calls something that is no name")
    if function[1] == "_reconstruct":
        return _Array("array")
    if function[1] == "dtype":
        if arguments[:1] not in (("u1",), (b"u1",), ("uint8",)):
            raise UnpickleError(f"it has an array of {arguments[:1]}, where bytes (u1) were expected")
        return _Array("dtype")
    if function[1] == "encode":  # how Python 2 strings of bytes come out of protocol 2 of Python 3
        text, encoding = arguments
        if encoding not in ("latin1", "latin-1"):
            raise UnpickleError(f"it encodes text as {encoding!r}")
        return text.encode("latin-1")
    raise UnpickleError(f"it calls {'.'.join(function)}, which plain data has no need of")


def _build(target: Any, state: Any) -> None:
    """Fills an array with its state: (version, shape, dtype, in Fortran's order, bytes)."""
    if not isinstance(target, _Array):
        raise UnpickleError("it sets the state of something that is no array")
    if target.kind == "dtype":
        return  # byte order and alignment: of no account to bytes
    _, shape, dtype, fortran, raw = state
    if isinstance(raw, str):  # as pickled by Python 2
        raw = raw.encode("latin-1")
    if not isinstance(dtype, _Array) or dtype.kind != "dtype" or not isinstance(raw, bytes) or not raw:
        raise UnpickleError("it has an array that is not of bytes")
    if not all(isinstance(n, int) and n > 0 for n in shape):
        raise UnpickleError(f"it has an array of shape {shape}")
    if math.prod(shape) != len(raw):
        raise UnpickleError(f"it has an array of shape {shape} with {len(raw)} bytes")
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    if fortran:
        target.value = flat.reshape(tuple(shape)[::-1]).permute(*reversed(range(len(shape)))).contiguous()
    else:
        target.value = flat.reshape(shape)


def _finish(value: Any) -> Any:
    """Replaces filled arrays by their tensors, at the top level and in the values of a dictionary there."""
    return {key: _filled(item) for key, item in value.items()} if isinstance(value, dict) else _filled(value)


def _filled(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise UnpickleError("it has an array without contents")
        return value.value
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnpickleError("damaged pickle: it appends to something that is no list")
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UnpickleError("damaged pickle: it sets an item of something that is no dictionary")
    return value


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))
