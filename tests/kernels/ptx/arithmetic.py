# SPDX-License-Identifier: Apache-2.0
"""Instructions that read and write registers of one thread, as C statements.

Integers are computed in unsigned 64 bits and cut to their type, so that overflow wraps as on the device. Floats are
rounded after each operation: the C compiler must be told not to fuse products and sums.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.kernels.ptx.operands import BITS, Operands, c_type, unsigned
from tests.kernels.ptx.syntax import Instruction, UnknownPtx

Emit = Callable[[Instruction, Operands], str]

_OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_ROUNDINGS = {"rzi": "truncf", "rni": "rintf", "rmi": "floorf", "rpi": "ceilf"}


def _two_operands(of: Instruction, operands: Operands) -> str:
    to, left, right = of.operands
    sign = _OPERATORS[of.name]
    if of.type in {"f32", "pred"}:
        _no_flags(of, {"rn"})
        value = f"{operands.read(left, of.type)} {sign} {operands.read(right, of.type)}"
    else:
        kind = unsigned(of.type)
        value = f"(u64){operands.read(left, kind)} {sign} (u64){operands.read(right, kind)}"
    return operands.write(to, of.type, value)


def _extreme(of: Instruction, operands: Operands) -> str:
    to, *both = of.operands
    left, right = (operands.read(each, of.type) for each in both)
    if of.type == "f32":
        _no_flags(of, set())
        return operands.write(to, of.type, f"f{of.name}f({left}, {right})")
    return operands.write(to, of.type, f"{left} {'<' if of.name == 'min' else '>'} {right} ? {left} : {right}")


def _one_operand(of: Instruction, operands: Operands) -> str:
    to, operand = of.operands
    value = operands.read(operand, of.type)
    if of.type == "f32":
        _no_flags(of, set())
        made = {"neg": f"-{value}", "abs": f"fabsf({value})"}
    elif of.type == "pred":
        made = {"not": f"!{value}"}
    else:
        made = {"not": f"~(u64){value}", "neg": f"-(u64){value}", "abs": f"{value} < 0 ? -(u64){value} : (u64){value}"}
    return operands.write(to, of.type, made[of.name])


def _multiply(of: Instruction, operands: Operands) -> str:
    to, left, right, *added = of.operands
    if of.type == "f32":
        _no_flags(of, {"rn"})
        value = f"{operands.read(left, 'f32')} * {operands.read(right, 'f32')}"
        return operands.write(to, "f32", value)
    kind = of.type
    a, b = operands.read(left, kind), operands.read(right, kind)
    if "hi" in of.opcode:
        if BITS[kind] != 32 or added:
            raise UnknownPtx(of.text)
        return operands.write(to, kind, f"(({kind[0]}64){a} * ({kind[0]}64){b}) >> 32")
    if "wide" in of.opcode:
        kind = f"{kind[0]}{2 * BITS[kind]}"
        a, b = f"({c_type(kind)}){a}", f"({c_type(kind)}){b}"
    value = f"(u64){a} * (u64){b}"
    if added:
        value += f" + (u64){operands.read(added[0], kind)}"
    return operands.write(to, kind, value)


def _fused(of: Instruction, operands: Operands) -> str:
    _no_flags(of, {"rn"})
    to, *three = of.operands
    return operands.write(to, "f32", f"fmaf({', '.join(operands.read(each, 'f32') for each in three)})")


def _divide(of: Instruction, operands: Operands) -> str:
    to, left, right = of.operands
    a, b = operands.read(left, of.type), operands.read(right, of.type)
    if of.type == "f32":
        _no_flags(of, {"rn"})
        return operands.write(to, "f32", f"{a} / {b}")
    if BITS[of.type] > 32:
        raise UnknownPtx(of.text)
    sign = "/" if of.name == "div" else "%"
    return operands.write(to, of.type, f"{b} == 0 ? -1 : (s64){a} {sign} (s64){b}")


def _shift(of: Instruction, operands: Operands) -> str:
    to, value, by = of.operands
    kind = of.type if of.type[0] == "s" and of.name == "shr" else unsigned(of.type)
    function = "shift_left" if of.name == "shl" else "shift_right_signed" if kind[0] == "s" else "shift_right"
    made = f"{function}({operands.read(value, kind)}, {operands.read(by, 'u32')}, {BITS[of.type]})"
    return operands.write(to, of.type, made)


def _funnel(of: Instruction, operands: Operands) -> str:
    to, low, high, by = of.operands
    amount = operands.read(by, "u32")
    amount = f"({amount} & 31)" if "wrap" in of.opcode else f"({amount} > 32 ? 32 : {amount})"
    pair = f"(((u64){operands.read(high, 'u32')} << 32) | {operands.read(low, 'u32')})"
    return operands.write(to, "b32", f"({pair} << {amount}) >> 32" if of.opcode[1] == "l" else f"{pair} >> {amount}")


def _compare(of: Instruction, operands: Operands) -> str:
    to, left, right, *more = of.operands
    comparison = of.opcode[1]
    ordered = comparison.removesuffix("u") if of.type == "f32" else comparison
    if ordered not in _COMPARISONS or "|" in to or "ftz" in of.opcode:
        raise UnknownPtx(of.text)
    value = f"{operands.read(left, of.type)} {_COMPARISONS[ordered]} {operands.read(right, of.type)}"
    if ordered != comparison or (comparison == "ne" and of.type == "f32"):
        unordered = f"isunordered({operands.read(left, 'f32')}, {operands.read(right, 'f32')})"
        value = f"{unordered} || {value}" if ordered != comparison else f"!{unordered} && {value}"
    if more:
        value = f"({value}) {_OPERATORS[of.opcode[2]]} {operands.read(more[0], 'pred')}"
    return operands.write(to, "pred", value)


def _select(of: Instruction, operands: Operands) -> str:
    to, yes, no, condition = of.operands
    kind = unsigned(of.type)
    value = f"{operands.read(condition, 'pred')} ? {operands.read(yes, kind)} : {operands.read(no, kind)}"
    return operands.write(to, kind, value)


def _move(of: Instruction, operands: Operands) -> str:
    to, value = of.operands
    if to.startswith("{"):
        parts = operands.several(to)
        kind = f"u{BITS[of.type] // len(parts)}"
        taken = [operands.write(part, kind, f"whole >> {BITS[kind] * i}") for i, part in enumerate(parts)]
        return f"u64 whole = {operands.read(value, unsigned(of.type))}; {' '.join(taken)}"
    if value.startswith("{"):
        parts = operands.several(value)
        kind = f"u{BITS[of.type] // len(parts)}"
        whole = " | ".join(f"(u64){operands.read(part, kind)} << {BITS[kind] * i}" for i, part in enumerate(parts))
        return operands.write(to, of.type, whole)
    kind = "pred" if of.type == "pred" else unsigned(of.type)
    return operands.write(to, kind, operands.read(value, kind))


def _convert_address(of: Instruction, operands: Operands) -> str:
    """To generic addresses, of which a window is local memory, or back. Global addresses are generic ones."""
    to, operand = of.operands
    moved = {("local",): "+", ("to", "local"): "-", ("global",): None, ("to", "global"): None}[of.opcode[1:-1]]
    value = operands.read(operand, of.type)
    return operands.write(to, of.type, value if moved is None else f"{value} {moved} LOCAL_WINDOW")


def _convert(of: Instruction, operands: Operands) -> str:
    to, operand = of.operands
    made, given = of.opcode[-2:]
    _no_flags(of, {"rn", "ftz", *_ROUNDINGS})
    value = operands.read(operand, given)
    if "ftz" in of.opcode:
        value = f"flush({value})"
    rounding = next((_ROUNDINGS[part] for part in of.opcode if part in _ROUNDINGS), None)
    if given[0] == "f" and made[0] in "us":
        if given != "f32" or rounding is None or BITS[made] > 32:
            raise UnknownPtx(of.text)
        bits = BITS[made]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if made[0] == "s" else (0, 2**bits - 1)
        value = f"saturate({rounding}({value}), {low}., {high}.)"
    elif rounding is not None:
        value = f"{rounding}({value})"
    elif given[0] in "us" and made == "f16":
        raise UnknownPtx(of.text)  # would be rounded twice
    return operands.write(to, made, value)


def _bit_field(of: Instruction, operands: Operands) -> str:
    to, *given = of.operands
    kinds = [of.type, *(["b32"] if of.name == "bfi" else []), "u32", "u32"]
    if BITS[of.type] != 32:
        raise UnknownPtx(of.text)
    function = "insert_bits" if of.name == "bfi" else f"extract_{of.type}"
    arguments = ", ".join(operands.read(each, kind) for each, kind in zip(given, kinds, strict=True))
    return operands.write(to, of.type, f"{function}({arguments})")


def _words(of: Instruction, operands: Operands) -> str:
    """Functions of 32-bit words that the runtime has under their PTX name."""
    to, *given = of.operands
    if of.type != "b32" or len(of.opcode) > 2:
        raise UnknownPtx(of.text)
    return operands.write(to, "u32", f"{of.name}({', '.join(operands.read(each, 'u32') for each in given)})")


def _count(of: Instruction, operands: Operands) -> str:
    to, value = of.operands
    bits = operands.read(value, unsigned(of.type))
    leading = f"{bits} == 0 ? {BITS[of.type]} : __builtin_clzll({bits}) - {64 - BITS[of.type]}"
    return operands.write(to, "u32", f"__builtin_popcountll({bits})" if of.name == "popc" else leading)


def _no_flags(of: Instruction, known: set[str]) -> None:
    """Refuse flags that change the result and are not handled: .sat, .ftz, other roundings."""
    types = 2 if of.name == "cvt" else 1
    if unknown := set(of.opcode[1:-types]) - known:
        raise UnknownPtx(f"{of.text}: .{' .'.join(sorted(unknown))} is not known")


ARITHMETIC: dict[str, Emit] = {
    **dict.fromkeys(("add", "sub", "and", "or", "xor"), _two_operands),
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("not", "neg", "abs"), _one_operand),
    **dict.fromkeys(("mul", "mad"), _multiply),
    **dict.fromkeys(("div", "rem"), _divide),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("bfe", "bfi"), _bit_field),
    **dict.fromkeys(("prmt", "lop3"), _words),
    **dict.fromkeys(("popc", "clz"), _count),
    "cvta": _convert_address,
    "mov": _move,
    "fma": _fused,
    "shf": _funnel,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
}
"""The function for each name of an instruction that concerns one thread's registers alone."""
