"""Runs the exercise programs against torch; prints one JSON line for each.

python program_runner.py NAME...
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
os.environ.setdefault("STEELYARD_SIMT_SPIN_S", "0.3")
sys.path.insert(0, str(HERE.parents[1]))

import torch  # noqa: E402

from harness import simt  # noqa: E402


def close(got, want, atol=1e-4):
    return torch.allclose(got.float(), want.float(), atol=atol, rtol=1e-3)


def integers(*shape):
    return torch.randint(-900, 900, shape, dtype=torch.int32)


def ballot_compaction(run):
    x = integers(5000)
    return torch.equal(run(x), x[x > 0].sort().values)


def bf16_copy(run):
    x = torch.randn(1003).bfloat16()
    return torch.equal(run(x, 2.0), x * 2)


def block_reduction(run):
    x = torch.randn(10_000)
    return close(run(x), x.sum().reshape(1), 1e-2)


def group_tiles(run):
    x = torch.randn(2560)
    sum8, blocks, positive = run(x, 256)
    return (
        close(sum8, x.view(-1, 8).sum(1))
        and close(blocks, x.view(-1, 256).sum(1), 1e-3)
        and int(positive) == int((x > 0).sum())
    )


def histogram(run):
    x = torch.randint(0, 256, (5000,), dtype=torch.uint8)
    return torch.equal(run(x), torch.bincount(x, minlength=256).int())


def signed(v):
    """A 32-bit pattern as an int32."""
    return v - (1 << 32) if v >= 1 << 31 else v


def intrinsic_answers(lane):
    """What each row of programs/intrinsics.py holds for a lane; None where any lane may win."""
    first = lane // 8 * 8
    return [
        5,
        lane - 3 if lane - 3 >= first else lane,
        lane + 2 if lane % 16 + 2 < 16 else lane,
        lane ^ 1,
        signed(sum(1 << i for i in range(0, 32, 3))),
        1,
        signed(0xFF << first),
        496,
        15 if lane < 16 else 16,
        7,
        496,
        16 * 1000 + 31,
        32 * 1000 + 64,
        None,
        0x77552200,
        bin(lane).count("1")
        + 100 * (32 - (lane + 1).bit_length())
        + 10000 * ((lane & -lane).bit_length()),
        round(lane + 0.5),
        signed(int(f"{lane:032b}"[::-1], 2)),
        int(torch.tensor(1 + lane / 512).bfloat16().view(torch.int16)),
        int(torch.tensor(2 * lane + 0.5).half().view(torch.int16)),
        int(max(lane, 7) + min(3.5, lane)),
        4 - lane % 4,
        2,
        lane,
    ]


def intrinsics(run):
    got = run().T.tolist()
    one_winner = sum(lane[13] for lane in got) == 1
    return one_winner and all(
        want is None or have == want
        for lane, answers in enumerate(got)
        for have, want in zip(answers, intrinsic_answers(lane), strict=True)
    )


def persistent_loop(run):
    x = integers(50, 777)
    return torch.equal(run(x), x.amax(1))


def scan(run):
    x = integers(7, 777)
    return torch.equal(run(x), x.cumsum(1).int())


def spin_on_block(run):
    forward = run(300, False)[-1] == 300 * 299 // 2
    try:
        run(6000, True)
    except simt.Fault as fault:
        return bool(forward) and fault.kind == "spin" and fault.line > 0
    return False


def tiled_matmul(run):
    a, b = torch.randn(67, 45), torch.randn(45, 99)
    return close(run(a, b), a @ b)


def transpose(run):
    x = torch.randn(67, 45)
    return torch.equal(run(x), x.t())


def warp_softmax(run):
    x = torch.randn(67, 45)
    types = (torch.float32, torch.float16, torch.bfloat16)
    return all(close(run(x.to(t)), x.to(t).softmax(1), 2e-2) for t in types)


def main(names):
    torch.manual_seed(0)
    simt.install()
    for name in names:
        spec = importlib.util.spec_from_file_location(name, HERE / "programs" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        started = time.perf_counter()
        spec.loader.exec_module(module)
        built = time.perf_counter()
        right = globals()[name](module.run)
        ran = time.perf_counter()
        result = dict(name=name, right=bool(right), build_s=built - started, run_s=ran - built)
        result["kernels"] = simt.kernels_run()
        errors = [str(f) for f in simt.findings() if f.severity == "error"]
        print(json.dumps(result | {"errors": errors}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
