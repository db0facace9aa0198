"""Compare a result with the expected one: type, shape, and every element within the tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.records import Tolerance

LEAST = 1e-8  # what |want| is at least, where an error is put in relation to it
CHUNK = 1 << 24  # elements compared at a time, so that comparing never needs the result's memory
EXACT = Tolerance(0.0, 0.0)
# Half of each type's digits, for problems that state no tolerance of their own.
DEFAULT_RTOL = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class Comparison:
    """One tensor against what was expected. `worst`: error over what the tolerance allows."""

    ok: bool
    worst: float = 0.0
    worst_abs: float = 0.0
    message: str = ""
    worst_rel: float = 0.0


@dataclass(frozen=True)
class Expected:
    """One output. `native`: the reference's own result; `precise`: the same in float64, if any."""

    native: torch.Tensor
    precise: torch.Tensor | None = None


def tolerance_for(expected: Expected, declared: Tolerance) -> Tolerance:
    """The declared tolerance, with the rounding to a narrow output's own type on top unless it is
    exact; one that says so or is a default is scaled to the output's root mean square.

    Where the reference's own float64 result differs by more than a quarter of a default one, the
    default is widened to four times that difference: a rival algorithm errs as much.
    """
    native = expected.native
    if not native.is_floating_point() and not native.is_complex():
        return EXACT
    if not declared.source.startswith("default"):
        if declared.scaled:
            declared = Tolerance(declared.rtol, declared.atol * _rms(native), declared.source)
        return declared if _is_exact(declared) else _rounded(declared, native.dtype)
    rtol = DEFAULT_RTOL.get(native.dtype, declared.rtol)
    scale = _rms(native)
    tolerance = Tolerance(rtol, rtol * scale, f"{declared.source}, scaled to the output")
    own = own_error(expected, tolerance)
    if own is not None and 0.25 < own < math.inf:
        factor = min(4 * own, 100)
        tolerance = Tolerance(rtol * factor, rtol * scale * factor, tolerance.source)
    return tolerance


def _rounded(tolerance: Tolerance, dtype: torch.dtype) -> Tolerance:
    """Half a unit in the last place more for narrow types (2^-8 for bf16, 2^-11 for fp16): the
    right answer in them is that far from the float64 one."""
    if dtype not in (torch.float16, torch.bfloat16):
        return tolerance
    half = torch.finfo(dtype).eps / 2
    atol = tolerance.atol + torch.finfo(dtype).smallest_normal * half
    return Tolerance(tolerance.rtol + half, atol, tolerance.source)


def own_error(expected: Expected, tolerance: Tolerance) -> float | None:
    """How far the reference itself is from float64, as `worst` of a Comparison."""
    if expected.precise is None or not expected.native.is_floating_point():
        return None
    return compare(expected.native, Expected(expected.precise), tolerance, "reference").worst


def _rms(tensor: torch.Tensor) -> float:
    finite = tensor.detach().reshape(-1)
    total, count = 0.0, 0
    for chunk in finite.split(CHUNK):
        chunk = chunk.abs().double()
        chunk = chunk[chunk.isfinite()]
        total, count = total + float((chunk * chunk).sum()), count + chunk.numel()
    return math.sqrt(total / count) if count else 0.0


def compare(got: torch.Tensor, want: Expected, tolerance: Tolerance, name: str) -> Comparison:
    """Elements pass within the tolerance of the reference's result or of its float64 one.

    Shapes must be equal: nothing is broadcast. NaN and infinities must stand where the reference
    has them. `got` may have another dtype than `want` only where the caller has checked that.
    """
    native = want.native
    if got.shape != native.shape:
        return _no(f"{name} has shape {list(got.shape)}, want {list(native.shape)}")
    if got.numel() == 0:
        return Comparison(True)
    flat_got, flat_native = _flat(got), _flat(native)
    precise = None if want.precise is None or _is_exact(tolerance) else _flat(want.precise)
    worst, worst_abs, worst_rel, wrong, first = 0.0, 0.0, 0.0, 0, None
    for start in range(0, flat_got.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        ratio, error = _ratios(flat_got[part], flat_native[part], tolerance)
        if precise is not None:
            other, other_error = _ratios(flat_got[part], precise[part], tolerance)
            ratio, error = torch.minimum(ratio, other), torch.minimum(error, other_error)
        worst, worst_abs = max(worst, float(ratio.max())), max(worst_abs, float(error.max()))
        worst_rel = max(worst_rel, _relative(error, flat_native[part]))
        bad = ratio > 1
        if first is None and bool(bad.any()):
            first = start + int(bad.to(torch.uint8).argmax())
        wrong += int(bad.sum())
    if first is None:
        return Comparison(True, worst, worst_abs, "", worst_rel)
    message = _difference(got, native, first, wrong, name)
    return Comparison(False, worst, worst_abs, message, worst_rel)


def _no(message: str) -> Comparison:
    return Comparison(False, math.inf, math.inf, message, math.inf)


def _is_exact(tolerance: Tolerance) -> bool:
    return tolerance.rtol == 0 and tolerance.atol == 0


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _ratios(
    got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance
) -> tuple[torch.Tensor, torch.Tensor]:
    """Per element: error over allowance (inf where NaN or infinity differ), and the error."""
    if not (got.is_floating_point() or want.is_floating_point()):
        gap = (got.double() - want.double()).abs()
        return torch.where(got != want, math.inf, torch.zeros_like(gap)), gap
    got, want = got.double(), want.double()
    same = (got == want) | (got.isnan() & want.isnan())
    error = torch.where(same, 0.0, (got - want).abs())
    allowed = tolerance.atol + tolerance.rtol * want.abs()
    ratio = torch.where(same, 0.0, error / allowed)
    ratio = torch.where(~same & ~(got.isfinite() & want.isfinite()), math.inf, ratio)
    return ratio.nan_to_num(nan=math.inf, posinf=math.inf), error.nan_to_num(nan=math.inf)


def _relative(error: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error over |want|; infinite where one of the two is not finite."""
    ratio = error / (want.double().abs() + LEAST)
    return float(ratio.nan_to_num(nan=math.inf).max())


def _difference(got: torch.Tensor, want: torch.Tensor, first: int, wrong: int, name: str) -> str:
    """Such as out[3, 117] = 0.4102, want 0.4147 (212 of 4096 differ); NaN are counted."""
    shape = got.shape if not got.is_complex() else (*got.shape, 2)
    index = []
    for size in reversed(shape):
        first, here = divmod(first, size)
        index.append(here)
    at = tuple(reversed(index))
    values = [
        torch.view_as_real(t.resolve_conj())[at] if t.is_complex() else t[at] for t in (got, want)
    ]
    shown = [_number(value) for value in values]
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    text = f"{place} = {shown[0]}, want {shown[1]} ({wrong} of {got.numel()} differ"
    if got.is_floating_point():
        mine, theirs = int(got.isnan().sum()), int(want.isnan().sum())
        if mine != theirs:
            text += f"; {mine} NaN, want {theirs}"
    return text + ")"


def _number(value: torch.Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def trivial_answers(expected: Expected, tolerance: Tolerance, inputs: list) -> dict:
    """Answers that take no work and would pass: name -> tensor. Empty when the tolerance means
    something. What equals the expected result exactly is no shortcut and is left out."""
    native = expected.native
    if native.numel() == 0 or not native.is_floating_point():
        return {}
    found = {}
    for name, answer in _candidates(native, inputs):
        answer = answer.to(native.dtype)
        if compare(answer, Expected(native), EXACT, name).ok:
            continue
        if compare(answer, Expected(native), tolerance, name).ok:
            found[name] = answer
    return found


def _candidates(native: torch.Tensor, inputs: list) -> list[tuple[str, torch.Tensor]]:
    finite = native[native.isfinite()]
    mean = finite.double().mean() if finite.numel() else native.new_zeros(())
    found = [
        ("zeros", torch.zeros_like(native)),
        ("ones", torch.ones_like(native)),
        ("its mean everywhere", torch.full_like(native, float(mean))),
    ]
    for index, tensor in enumerate(inputs):
        if tensor.is_floating_point() and tensor.shape == native.shape:
            found.append((f"input {index} itself", tensor.to(native.device)))
    if native.dtype in (torch.float32, torch.float64):
        found.append(("the result rounded to fp16", native.half().to(native.dtype)))
    return found
