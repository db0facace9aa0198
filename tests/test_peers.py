"""Peers import, or say which package they need; on a GPU they agree with the reference."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PEERS = sorted((ROOT / "peers").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PEERS, ids=lambda p: p.stem)
def test_every_peer_names_an_op(path):
    op, _, peer = path.stem.partition("__")
    assert peer
    assert (ROOT / "reference" / f"{op}.py").exists()


@pytest.mark.parametrize("path", PEERS, ids=lambda p: p.stem)
def test_an_absent_package_is_named_in_one_sentence(path, monkeypatch):
    for package in ("megatron", "megatron.core", "triton"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"needs the package .* \(pip install "):
        load(path)


CASES = {
    "pack_tokens": ("headline", "odd", "capacity"),
    "indices_to_multihot": ("256 local",),
    "weighted_swiglu": ("fp32",),
}


@pytest.mark.gpu
@pytest.mark.parametrize("path", PEERS, ids=lambda p: p.stem)
def test_a_peer_agrees_with_the_reference(path):
    import torch

    try:
        peer = load(path)
    except ImportError as error:
        pytest.skip(str(error))
    op = path.stem.partition("__")[0]
    reference = load(ROOT / "reference" / f"{op}.py")
    for case in CASES[op]:
        sizes = reference.CASES[case]
        torch.manual_seed(1)
        inputs = [t.cuda() for t in reference.get_inputs(**sizes)]
        initial = reference.get_init_inputs(**sizes) if op != "pack_tokens" else []
        want = reference.Model(*initial).cuda()(*inputs)
        got = peer.ModelNew(*initial).cuda()(*inputs)
        want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            tolerance = {key: reference.TOLERANCE[key] for key in ("rtol", "atol")}
            torch.testing.assert_close(g, w, **tolerance)
