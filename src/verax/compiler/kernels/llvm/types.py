"""Types of LLVM IR, and constants of them, as text. See `text`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from verax.compiler.kernels.llvm.library import binding as llvm


@cache
def _short_splats() -> bool:
    """Whether LLVM reads `splat (float 1.0)`."""
    return bool(llvm.llvm_version_info[0] >= 19)


class Undefined:
    """The content of a constant that nobody reads."""


class Type:
    """A type of LLVM's. Equal types are written alike."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, content: Any) -> Constant:
        return Constant(self, content)

    @property
    def element(self) -> Type:
        """Of a vector."""
        raise TypeError(f"{self} has no elements")

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        raise TypeError(f"{self} has no elements")

    @property
    def width(self) -> int:
        """Bits of an integer."""
        raise TypeError(f"{self} is no integer")

    def written(self, content: Any) -> str:
        """A constant of this type."""
        raise TypeError(f"{self} has no constants")


class VoidType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("void")


class PointerType(Type):
    """space: 0 for memory of any kind; on a GPU 1 is its memory, 3 what a block's threads share."""

    __slots__ = ()

    def __init__(self, space: int = 0) -> None:
        super().__init__(f"ptr addrspace({space})" if space else "ptr")

    def written(self, content: Any) -> str:
        if content is None:
            return "null"
        raise TypeError("a constant pointer is null")


class IntType(Type):
    __slots__ = ("_width",)

    def __init__(self, width: int) -> None:
        super().__init__(f"i{width}")
        self._width = width

    @property
    def width(self) -> int:
        return self._width

    def written(self, content: Any) -> str:
        return "0" if content is None else str(int(content))


class _FloatType(Type):
    __slots__ = ("_numpy",)

    def __init__(self, text: str, dtype: type[np.floating[Any]]) -> None:
        super().__init__(text)
        self._numpy = dtype

    def written(self, content: Any) -> str:
        """In hexadecimal, as the float64 of the same value, which LLVM reads for all three."""
        value = float(self._numpy(0 if content is None else content))
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


class BFloatType(Type):
    """Numbers of 8 bits, as an instruction takes them; kernels hold their 16 bits as integers."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("bfloat")


class HalfType(_FloatType):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("half", np.float16)


class FloatType(_FloatType):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("float", np.float32)


class DoubleType(_FloatType):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("double", np.float64)


class _Sequence(Type):
    __slots__ = ("_count", "_element")

    def __init__(self, text: str, element: Type, count: int) -> None:
        super().__init__(text)
        self._element, self._count = element, count

    @property
    def element(self) -> Type:
        return self._element

    @property
    def count(self) -> int:
        return self._count

    def _elements(self, content: Sequence[Any]) -> list[str]:
        if len(content) != self._count:
            raise TypeError(f"{len(content)} elements for {self}")
        return [self._element.written(value) for value in content]


class VectorType(_Sequence):
    __slots__ = ()

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element}>", element, count)

    def written(self, content: Any) -> str:
        if content is None:
            return "zeroinitializer"
        if not isinstance(content, list | tuple):
            content = [content] * self._count
        kind, elements = self._element, self._elements(content)
        if _short_splats() and elements.count(elements[0]) == len(elements):
            return f"splat ({kind} {elements[0]})"
        return "<" + ", ".join([f"{kind} {element}" for element in elements]) + ">"


class ArrayType(_Sequence):
    __slots__ = ()

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"[{count} x {element}]", element, count)

    def written(self, content: Any) -> str:
        if content is None:
            return "zeroinitializer"
        if isinstance(content, bytes | bytearray):
            if len(content) != self._count:
                raise TypeError(f"{len(content)} bytes for {self}")
            return 'c"' + "".join([f"\\{byte:02x}" for byte in content]) + '"'
        elements = self._elements(content)
        return "[" + ", ".join([f"{self._element} {element}" for element in elements]) + "]"


class LiteralStructType(Type):
    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Type]) -> None:
        self.elements = tuple(elements)
        super().__init__("{" + ", ".join(map(str, self.elements)) + "}")


class FunctionType(Type):
    __slots__ = ("args", "result")

    def __init__(self, result: Type, args: Sequence[Type]) -> None:
        self.result, self.args = result, tuple(args)
        super().__init__(f"{result} (" + ", ".join(map(str, self.args)) + ")")


class Value:
    """What an instruction takes or gives. ref: how it is written where it is used."""

    __slots__ = ("ref", "type")

    def __init__(self, type_: Type, ref: str) -> None:
        self.type, self.ref = type_, ref

    def __str__(self) -> str:
        return f"{self.type.text} {self.ref}"


class Constant(Value):
    """content: a number, a list of them for vectors and arrays, bytes for an array, None for
    zeros, or `Undefined`."""

    __slots__ = ()

    def __init__(self, type_: Type, content: Any) -> None:
        super().__init__(type_, "undef" if content is Undefined else type_.written(content))
