"""Comparing: what passes, what does not, and what the sentence says."""

import math

import pytest
import torch

from harness import check
from harness.check import EXACT, Expected, compare, tolerance_for, trivial_answers
from harness.records import Tolerance

LOOSE = Tolerance(1e-2, 1e-2, "declared")
DEFAULT = Tolerance(1e-4, 1e-4, "default for fp32")
NAN, INF = math.nan, math.inf


def verdict(got, want, tolerance=LOOSE):
    return compare(torch.tensor(got), Expected(torch.tensor(want)), tolerance, "out")


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([1.0, 2.0], [1.005, 2.0], True),
        ([1.0, 2.0], [1.1, 2.0], False),
        ([NAN, 2.0], [NAN, 2.0], True),
        ([NAN, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [NAN, 2.0], False),
        ([INF, 2.0], [INF, 2.0], True),
        ([-INF, 2.0], [INF, 2.0], False),
        ([3e38, 2.0], [INF, 2.0], False),
        ([0.0], [0.0], True),
    ],
)
def test_elements(got, want, ok):
    assert verdict(got, want).ok is ok


def test_nan_and_infinity_count_by_position():
    assert not verdict([NAN, 1.0], [1.0, NAN]).ok


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (), (1,), (5,)])
def test_nothing_is_broadcast(shape):
    found = compare(torch.ones(shape), Expected(torch.ones(4)), LOOSE, "out")
    assert not found.ok
    assert "shape" in found.message


def test_integers_are_compared_exactly_beyond_2_to_53():
    big = 2**53
    found = verdict([big + 1], [big], EXACT)
    assert not found.ok
    assert f"out[0] = {big + 1}, want {big}" in found.message


def test_the_sentence_names_place_values_and_count():
    got, want = torch.zeros(3, 4), torch.zeros(3, 4)
    want[2, 1] = 0.5
    found = compare(got, Expected(want), LOOSE, "out 1")
    assert found.message == "out 1[2, 1] = 0, want 0.5 (1 of 12 differ)"


def test_the_sentence_counts_nan():
    assert "2 NaN, want 0" in verdict([NAN, NAN], [1.0, 2.0]).message


def test_worst_is_the_share_of_the_allowance():
    found = verdict([1.005], [1.0])
    assert found.worst == pytest.approx(0.005 / 0.02, rel=1e-3)


def test_a_result_right_in_float64_passes_where_the_reference_errs():
    want = Expected(torch.tensor([1.1]), torch.tensor([1.0], dtype=torch.float64))
    assert compare(torch.tensor([1.0]), want, LOOSE, "out").ok
    assert compare(torch.tensor([1.1]), want, LOOSE, "out").ok
    assert not compare(torch.tensor([1.2]), want, LOOSE, "out").ok


def test_chunks_find_the_first_difference(monkeypatch):
    monkeypatch.setattr(check, "CHUNK", 8)
    got, want = torch.zeros(40), torch.zeros(40)
    want[21], want[33] = 1.0, 1.0
    found = compare(got, Expected(want), LOOSE, "out")
    assert "out[21]" in found.message
    assert "2 of 40" in found.message


def test_a_default_tolerance_follows_the_scale_of_the_output():
    small = torch.softmax(torch.randn(4, 16384), 1)
    tolerance = tolerance_for(Expected(small), DEFAULT)
    assert not compare(torch.zeros_like(small), Expected(small), tolerance, "out").ok
    assert tolerance.atol < 1e-7


def test_a_declared_tolerance_stays_as_declared():
    assert tolerance_for(Expected(torch.rand(3)), LOOSE) is LOOSE


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 50.0])
def test_a_scaled_tolerance_follows_the_scale_of_the_output(magnitude):
    want = magnitude * torch.randn(4000)
    want[0] = 0
    tolerance = tolerance_for(Expected(want), Tolerance(0, 1e-2, "sums", scaled=True))
    assert tolerance.atol == pytest.approx(1e-2 * magnitude, rel=0.1)
    for off, right in ((8e-3, True), (1.3e-2, False)):
        assert compare(want + off * magnitude, Expected(want), tolerance, "out").ok is right


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_declared_tolerance_holds_before_the_rounding_to_half_precision(dtype):
    precise = 1 + torch.rand(4096, dtype=torch.float64)
    expected = Expected(precise.to(dtype), precise)
    tolerance = tolerance_for(expected, Tolerance(1e-5, 0, "K fp32 roundings"))
    assert compare((precise * (1 + 9e-6)).to(dtype), expected, tolerance, "out").ok
    off = precise.to(dtype) + torch.finfo(dtype).eps
    assert not compare(off, expected, tolerance, "out").ok
    assert tolerance_for(expected, EXACT) == EXACT


def test_integers_and_booleans_are_exact_whatever_is_declared():
    assert tolerance_for(Expected(torch.arange(3)), LOOSE) == EXACT
    assert tolerance_for(Expected(torch.ones(3, dtype=torch.bool)), LOOSE) == EXACT


def test_a_default_tolerance_admits_a_rival_as_inexact_as_the_reference():
    precise = torch.randn(1000, dtype=torch.float64)
    rough = (precise * (1 + 1e-4 * torch.randn(1000, dtype=torch.float64))).float()
    rival = (precise * (1 + 1e-4 * torch.randn(1000, dtype=torch.float64))).float()
    expected = Expected(rough, precise)
    assert compare(rival, expected, tolerance_for(expected, DEFAULT), "out").ok


@pytest.mark.parametrize("magnitude", [1.0, 50.0])
def test_correctly_rounded_bf16_always_passes(magnitude):
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        precise = torch.randn(64, generator=generator, dtype=torch.float64) * magnitude
        expected = Expected(precise.bfloat16(), precise)
        tolerance = tolerance_for(expected, DEFAULT)
        assert compare((precise.float()).bfloat16(), expected, tolerance, "out").ok


def test_trivial_answers_that_a_loose_tolerance_lets_pass_are_named():
    small = torch.full((8,), 1e-3)
    small[0] = 2e-3
    assert "zeros" in trivial_answers(Expected(small), LOOSE, [])


def test_a_tolerance_that_means_something_lets_none_pass():
    x = torch.randn(500)
    expected = Expected(torch.tanh(x))
    tolerance = tolerance_for(expected, DEFAULT)
    assert trivial_answers(expected, tolerance, [x]) == {}


def test_what_equals_the_result_exactly_is_no_short_cut():
    x = torch.randn(50)
    assert trivial_answers(Expected(x.clone()), EXACT, [x]) == {}
    assert trivial_answers(Expected(torch.zeros(9)), LOOSE, []) == {}
