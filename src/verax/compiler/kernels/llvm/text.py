"""LLVM IR, written as text while a kernel is emitted.

What emitters ask for is what llvmlite's `ir` would write, and its names are kept. There every
instruction is an object, which is turned into text when the module is done; that took half of the
time that compiling a network takes. Here an instruction is a line from the start: a value knows
its type and how it is referred to, and nothing else. LLVM's parser checks what is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from verax.compiler.kernels.llvm.types import (
    ArrayType,
    BFloatType,
    Constant,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    LiteralStructType,
    PointerType,
    Type,
    Undefined,
    Value,
    VectorType,
    VoidType,
)

__all__ = [
    "ArrayType", "BFloatType", "Block", "Callee", "Constant", "Definitions", "DoubleType",
    "FloatType", "Function", "FunctionType", "GlobalVariable", "HalfType", "IRBuilder", "InlineAsm",
    "IntType", "LiteralStructType", "Module", "Phi", "PointerType", "Type", "Undefined", "Value",
    "VectorType", "VoidType",
]  # fmt: skip

_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_UNSIGNED = {"<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "==": "eq", "!=": "ne"}
_FLOATING = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


_I1, _PTR, _VOID = IntType(1), PointerType(), VoidType()


class Callee(Value):
    """What can be called: a function, or a pointer to one of the type `signature`."""

    __slots__ = ("signature",)

    def __init__(self, signature: FunctionType, ref: str) -> None:
        super().__init__(_PTR, ref)
        self.signature = signature


class InlineAsm(Callee):
    """A call of it is these instructions of the processor."""

    __slots__ = ()

    def __init__(self, signature: FunctionType, code: str, constraints: str) -> None:
        super().__init__(signature, f'asm "{code}", "{constraints}"')


class Phi(Value):
    """A value that depends on the block from which this one was entered."""

    __slots__ = ("_incoming",)

    def __init__(self, type_: Type, ref: str) -> None:
        super().__init__(type_, ref)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        if value.type != self.type:
            raise TypeError(f"{value} comes into a phi of {self.type}")
        self._incoming.append(f"[{value.ref}, %{block.name}]")

    def line(self) -> str:
        return f"{self.ref} = phi {self.type.text} {', '.join(self._incoming)}"


class Block:
    """Instructions one after the other, and a jump. ended: it has the jump."""

    __slots__ = ("ended", "function", "instructions", "name")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name = function, name
        self.instructions: list[str | Phi] = []
        self.ended = False

    def text(self) -> str:
        lines = [line if isinstance(line, str) else line.line() for line in self.instructions]
        return "\n  ".join([f"{self.name}:", *lines])


class Function(Callee):
    """A function of `module`: declared, and defined once it has blocks.

    linkage: "" for one that others see. attributes: as LLVM writes them; of arguments by number.
    """

    __slots__ = (
        *("_values", "argument_attributes", "args", "attributes", "blocks", "linkage"),
        *("module", "name"),
    )

    def __init__(self, module: Module, signature: FunctionType, name: str) -> None:
        super().__init__(signature, f'@"{name}"')
        self.module, self.name = module, name
        self.args = tuple([Value(kind, f"%a{i}") for i, kind in enumerate(signature.args)])
        self.attributes: list[str] = []
        self.argument_attributes: dict[int, str] = {}
        self.linkage = ""
        self.blocks: list[Block] = []
        self._values = 0
        module.define(name, self)

    def append_basic_block(self, name: str = "") -> Block:
        self.blocks.append(Block(self, f"{name or 'block'}.{len(self.blocks)}"))
        return self.blocks[-1]

    def append_named_block(self, name: str) -> Block:
        """A block of exactly that name, which no other has."""
        self.blocks.append(Block(self, name))
        return self.blocks[-1]

    @property
    def entry_basic_block(self) -> Block:
        return self.blocks[0]

    def fresh(self) -> str:
        """A name that no value of this function has."""
        self._values += 1
        return f"%v{self._values}"

    def _argument(self, index: int) -> str:
        kind, attributes = self.signature.args[index], self.argument_attributes.get(index)
        name = self.args[index].ref if self.blocks else ""
        return " ".join(filter(None, [str(kind), attributes, name]))

    def text(self) -> str:
        words = ["define" if self.blocks else "declare", self.linkage, str(self.signature.result)]
        args = ", ".join(self._argument(i) for i in range(len(self.args)))
        head = " ".join([*filter(None, words), f"{self.ref}({args})", *self.attributes])
        if not self.blocks:
            return head
        return "\n".join([head, "{", *[block.text() for block in self.blocks], "}"])


class GlobalVariable(Value):
    """A variable of `module`, or a constant if `global_constant`. align: bytes, 0 for usual.
    space: as that of `PointerType`."""

    __slots__ = ("align", "content", "global_constant", "initializer", "linkage", "space")

    def __init__(self, module: Module, content: Type, name: str, space: int = 0) -> None:
        super().__init__(PointerType(space), f'@"{name}"')
        self.content, self.linkage, self.align, self.space = content, "", 0, space
        self.global_constant = False
        self.initializer: Constant | None = None
        module.define(name, self)

    def text(self) -> str:
        kind = "constant" if self.global_constant else "global"
        linkage = self.linkage or ("" if self.initializer else "external")
        space = f"addrspace({self.space})" if self.space else ""
        words = [f"{self.ref} =", linkage, space, kind, self.content.text]
        if self.initializer is not None:
            words.append(self.initializer.ref)
        return " ".join(filter(None, words)) + (f", align {self.align}" if self.align else "")


class Definitions:
    """Text that defines or declares something in `module`, once under a name."""

    __slots__ = ("_text",)

    def __init__(self, module: Module, name: str, text: str) -> None:
        self._text = text
        module.define(name, self)

    def text(self) -> str:
        return self._text


class Module:
    """Functions and variables, in the order in which they were made."""

    def __init__(self, name: str) -> None:
        self.name, self.triple = name, ""
        self.globals: dict[str, Any] = {}

    def define(self, name: str, definition: Function | GlobalVariable | Definitions) -> None:
        if name in self.globals:
            raise ValueError(f"{name!r} is in the module already")
        self.globals[name] = definition

    def __str__(self) -> str:
        head = f'; ModuleID = "{self.name}"\ntarget triple = "{self.triple}"'
        return "\n".join([head, *[definition.text() for definition in self.globals.values()], ""])


class IRBuilder:
    """Writes instructions at the end of `block`, or where `position_at` says."""

    def __init__(self, block: Block) -> None:
        self.block, self.function = block, block.function
        self._insert_index: int | None = None

    # --- where

    def position_at_end(self, block: Block) -> None:
        self.block, self._insert_index = block, None

    def position_at(self, block: Block, index: int) -> None:
        """Before the instruction of that number, and behind what is written there."""
        self.block, self._insert_index = block, index

    def _insert(self, line: str | Phi) -> None:
        if self._insert_index is None:
            self.block.instructions.append(line)
        else:
            self.block.instructions.insert(self._insert_index, line)
            self._insert_index += 1

    def _value(self, type_: Type, text: str) -> Value:
        ref = self.function.fresh()
        self._insert(f"{ref} = {text}")
        return Value(type_, ref)

    def _end(self, text: str) -> None:
        assert not self.block.ended, f"the block {self.block.name} has ended"
        self._insert(text)
        self.block.ended = True

    def instruction(self, text: str) -> None:
        """One that gives nothing, or whose result has a name, as LLVM writes it."""
        self._insert(text)

    def terminator(self, text: str) -> None:
        """The end of the block, as LLVM writes it."""
        self._end(text)

    # --- control

    def branch(self, target: Block) -> None:
        self._end(f"br label %{target.name}")

    def cbranch(self, condition: Value, yes: Block, no: Block) -> None:
        self._end(f"br i1 {condition.ref}, label %{yes.name}, label %{no.name}")

    def ret_void(self) -> None:
        self._end("ret void")

    def ret(self, value: Value) -> None:
        self._end(f"ret {value}")

    def phi(self, type_: Type) -> Phi:
        phi = Phi(type_, self.function.fresh())
        self._insert(phi)
        return phi

    @contextlib.contextmanager
    def if_then(self, condition: Value) -> Iterator[Block]:
        """What is written inside runs if the condition holds; gives the block behind it."""
        inside, behind = self._blocks("if", "endif")
        self.cbranch(condition, inside, behind)
        with self._inside(inside, behind):
            yield behind
        self.position_at_end(behind)

    @contextlib.contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """Two contexts: for what runs if the condition holds, and for what runs otherwise."""
        yes, no, behind = self._blocks("if", "else", "endif")
        self.cbranch(condition, yes, no)
        yield self._inside(yes, behind), self._inside(no, behind)
        self.position_at_end(behind)

    def _blocks(self, *names: str) -> list[Block]:
        return [self.function.append_basic_block(name) for name in names]

    @contextlib.contextmanager
    def _inside(self, block: Block, behind: Block) -> Iterator[Block]:
        self.position_at_end(block)
        yield block
        if not self.block.ended:
            self.branch(behind)

    def call(self, callee: Callee, args: Sequence[Value]) -> Value:
        signature = callee.signature
        if tuple([a.type for a in args]) != signature.args:
            raise TypeError(f"{callee.ref} takes {signature.args}, not {[str(a) for a in args]}")
        arguments = ", ".join([f"{a.type.text} {a.ref}" for a in args])
        text = f"call {signature.result.text} {callee.ref}({arguments})"
        if signature.result == _VOID:
            self._insert(text)
            return Value(_VOID, "")
        return self._value(signature.result, text)

    # --- integers and floats, scalars and vectors alike

    def _binary(self, operation: str, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        if a.type != b.type:
            raise TypeError(f"{operation} of {a} and {b}")
        words = " ".join([operation, *flags])
        return self._value(a.type, f"{words} {a.type.text} {a.ref}, {b.ref}")

    def add(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._binary("add", a, b, flags)

    def sub(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._binary("sub", a, b, flags)

    def mul(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        return self._binary("mul", a, b, flags)

    def udiv(self, a: Value, b: Value) -> Value:
        return self._binary("udiv", a, b)

    def urem(self, a: Value, b: Value) -> Value:
        return self._binary("urem", a, b)

    def sdiv(self, a: Value, b: Value) -> Value:
        return self._binary("sdiv", a, b)

    def shl(self, a: Value, b: Value) -> Value:
        return self._binary("shl", a, b)

    def lshr(self, a: Value, b: Value) -> Value:
        return self._binary("lshr", a, b)

    def ashr(self, a: Value, b: Value) -> Value:
        return self._binary("ashr", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        return self._binary("and", a, b)

    def or_(self, a: Value, b: Value) -> Value:
        return self._binary("or", a, b)

    def xor(self, a: Value, b: Value) -> Value:
        return self._binary("xor", a, b)

    def not_(self, a: Value) -> Value:
        return self._binary("xor", a, a.type(-1))

    def fadd(self, a: Value, b: Value) -> Value:
        return self._binary("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        return self._binary("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        return self._binary("fmul", a, b)

    def fdiv(self, a: Value, b: Value) -> Value:
        return self._binary("fdiv", a, b)

    def fneg(self, a: Value) -> Value:
        return self._value(a.type, f"fneg {a}")

    def _compare(self, words: str, a: Value, b: Value) -> Value:
        if a.type != b.type:
            raise TypeError(f"{words} of {a} and {b}")
        kind = VectorType(_I1, a.type.count) if isinstance(a.type, VectorType) else _I1
        return self._value(kind, f"{words} {a.type.text} {a.ref}, {b.ref}")

    def icmp_signed(self, relation: str, a: Value, b: Value) -> Value:
        return self._compare(f"icmp {_SIGNED[relation]}", a, b)

    def icmp_unsigned(self, relation: str, a: Value, b: Value) -> Value:
        return self._compare(f"icmp {_UNSIGNED[relation]}", a, b)

    def fcmp_ordered(self, relation: str, a: Value, b: Value) -> Value:
        """False where one is NaN."""
        return self._compare(f"fcmp o{_FLOATING[relation]}", a, b)

    def fcmp_unordered(self, relation: str, a: Value, b: Value) -> Value:
        """True where one is NaN."""
        return self._compare(f"fcmp u{_FLOATING[relation]}", a, b)

    def unordered(self, a: Value, b: Value) -> Value:
        """Whether one is NaN."""
        return self._compare("fcmp uno", a, b)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if yes.type != no.type:
            raise TypeError(f"select of {yes} and {no}")
        return self._value(yes.type, f"select {condition}, {yes}, {no}")

    def cttz(self, a: Value, flag: Value) -> Value:
        """Zeros below the lowest one. flag: i1, whether none but zeros gives anything at all."""
        name, globals_ = f"llvm.cttz.{a.type}", self.function.module.globals
        kind = FunctionType(a.type, [a.type, _I1])
        return self.call(
            globals_.get(name) or Function(self.function.module, kind, name), [a, flag]
        )

    # --- conversions

    def _cast(self, operation: str, a: Value, kind: Type) -> Value:
        if a.type == kind:
            return a
        return self._value(kind, f"{operation} {a.type.text} {a.ref} to {kind.text}")

    def trunc(self, a: Value, kind: Type) -> Value:
        return self._cast("trunc", a, kind)

    def zext(self, a: Value, kind: Type) -> Value:
        return self._cast("zext", a, kind)

    def sext(self, a: Value, kind: Type) -> Value:
        return self._cast("sext", a, kind)

    def addrspacecast(self, a: Value, kind: Type) -> Value:
        return self._cast("addrspacecast", a, kind)

    def ptrtoint(self, a: Value, kind: Type) -> Value:
        return self._cast("ptrtoint", a, kind)

    def fptrunc(self, a: Value, kind: Type) -> Value:
        return self._cast("fptrunc", a, kind)

    def fpext(self, a: Value, kind: Type) -> Value:
        return self._cast("fpext", a, kind)

    def sitofp(self, a: Value, kind: Type) -> Value:
        return self._cast("sitofp", a, kind)

    def uitofp(self, a: Value, kind: Type) -> Value:
        return self._cast("uitofp", a, kind)

    def bitcast(self, a: Value, kind: Type) -> Value:
        return self._cast("bitcast", a, kind)

    # --- vectors

    def insert_element(self, vector: Value, value: Value, lane: Value) -> Value:
        return self._value(vector.type, f"insertelement {vector}, {value}, {lane}")

    def extract_element(self, vector: Value, lane: Value) -> Value:
        return self._value(vector.type.element, f"extractelement {vector}, {lane}")

    def shuffle_vector(self, a: Value, b: Value, lanes: Value) -> Value:
        kind = VectorType(a.type.element, lanes.type.count)
        return self._value(kind, f"shufflevector {a}, {b}, {lanes}")

    def extract_value(self, value: Value, index: int) -> Value:
        assert isinstance(value.type, LiteralStructType)
        return self._value(value.type.elements[index], f"extractvalue {value}, {index}")

    # --- memory

    def alloca(self, kind: Type, size: Value | None = None) -> Value:
        return self._value(_PTR, f"alloca {kind}" + (f", {size}" if size else ""))

    def gep(
        self, pointer: Value, indices: Sequence[Value], source_etype: Type, inbounds: bool = False
    ) -> Value:
        """The address of an element. source_etype: what the first index counts."""
        words = "getelementptr inbounds" if inbounds else "getelementptr"
        steps = ", ".join([f"{i.type.text} {i.ref}" for i in indices])
        return self._value(pointer.type, f"{words} {source_etype.text}, {pointer}, {steps}")

    def load(self, pointer: Value, typ: Type, align: int | None = None) -> Value:
        end = "" if align is None else f", align {align}"
        return self._value(typ, f"load {typ.text}, {pointer}{end}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        end = "" if align is None else f", align {align}"
        self._insert(f"store {value.type.text} {value.ref}, {pointer}{end}")

    def load_atomic(self, pointer: Value, ordering: str, align: int, typ: Type) -> Value:
        return self._value(typ, f"load atomic {typ}, ptr {pointer.ref} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Value, value: Value, ordering: str) -> Value:
        """What was there before."""
        return self._value(value.type, f"atomicrmw {operation} {pointer}, {value} {ordering}")

    def cmpxchg(self, pointer: Value, expected: Value, replacement: Value, ordering: str) -> Value:
        """{what was there before, i1: whether it was what was expected and has been replaced}."""
        words = f"cmpxchg {pointer}, {expected}, {replacement} {ordering} {ordering}"
        return self._value(LiteralStructType([replacement.type, _I1]), words)
