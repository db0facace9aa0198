"""Load a submission the way its receiver does. Imports nothing but torch and the standard library.

python -I submit_probe.py RECEIVER FOLDER, in a folder of its own with nothing else importable.
FOLDER holds what was written, and problem.py (kernelbench). Prints one JSON object as last line:
{"clean": true, "built": true, "ran": case or null, "faults": [sentences]}.
"""

import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path

import torch

SEED = 42


class Fault(Exception):
    """A sentence for the author."""


def on_gpu():
    return torch.cuda.is_available()


def close(got, want):
    """As KernelBench: 1e-4 of each, absolute and relative."""
    return torch.allclose(got, want, rtol=1e-4, atol=1e-4)


def same_weights(model, other):
    """Models of equal seeds hold equal weights, in whatever names."""
    theirs = list(other.state_dict().values())
    for name, value in model.state_dict().items():
        if not any(value.shape == x.shape and torch.equal(value, x) for x in theirs):
            raise Fault(
                f"built under one seed, ModelNew has no weights equal to Model's {name} "
                f"{list(value.shape)}; create parameters in the reference's order and kind"
            )


def kernelbench(folder):
    solution = next(p for p in folder.glob("*.py") if p.name != "problem.py")
    names = {}
    exec((folder / "problem.py").read_text(encoding="utf-8"), names)
    Model, get_inputs, get_init_inputs = (
        names[n] for n in ("Model", "get_inputs", "get_init_inputs")
    )
    arguments = get_init_inputs()
    torch.manual_seed(SEED)
    model = Model(*arguments)
    text = "import os\n" + solution.read_text(encoding="utf-8")
    exec(compile(text, "<string>", "exec"), names)
    torch.manual_seed(SEED)
    new = names["ModelNew"](*arguments)
    same_weights(model, new)
    if not on_gpu():
        return None
    move = {"device": "cuda", "dtype": torch.float32}
    model, new = model.to(**move), new.to(**move)
    torch.manual_seed(SEED)
    inputs = [x.to(**move) if isinstance(x, torch.Tensor) else x for x in get_inputs()]
    with torch.no_grad():
        want, got = model(*inputs), new(*inputs)
    torch.cuda.synchronize()
    if got.shape != want.shape:
        raise Fault(f"output {list(got.shape)}, want {list(want.shape)}")
    if not close(got, want):
        raise Fault(f"output differs by up to {float((got - want).abs().max()):.3g}")
    return "get_inputs()"


def gpumode(folder):
    sys.path.insert(0, str(folder))
    import submission

    import reference

    parameters = inspect.signature(submission.custom_kernel).parameters
    if len(parameters) != 1:
        raise Fault(f"custom_kernel takes {len(parameters)} arguments, want one: data")
    arguments = reference.get_init_inputs()
    wanted, theirs = (m(*arguments).state_dict() for m in (reference.Model, submission.ModelNew))
    named_alike(wanted, theirs)
    if not on_gpu():
        return None
    case, seed = (int(x) for x in (folder / "case.txt").read_text().split())
    data = reference.generate_input(case=case, seed=seed)
    good, message = reference.check_implementation(data, submission.custom_kernel(clone(data)))
    if not good:
        raise Fault(message)
    return f"case {case}"


def named_alike(wanted, theirs):
    for name, value in wanted.items():
        if name not in theirs or theirs[name].shape != value.shape:
            raise Fault(
                f"weights come by Model's names, and ModelNew has no {name} {list(value.shape)}; "
                "name its parameters and buffers as Model does"
            )


def clone(data):
    if isinstance(data, tuple | list):
        return type(data)(clone(x) for x in data)
    if isinstance(data, dict):
        return {k: clone(v) for k, v in data.items()}
    return data.clone() if isinstance(data, torch.Tensor) else data


def flashinfer(folder):
    definition = json.loads(next(folder.glob("definitions/*/*.json")).read_text())
    solution = json.loads(next(folder.glob("solutions/*/*/*/*.json")).read_text())
    package = folder / "fib_python_probe"
    for source in solution["sources"]:
        path = package / source["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source["content"], encoding="utf-8")
    file, entry = solution["spec"]["entry_point"].split("::")
    sys.path.insert(0, str(folder))
    module = importlib.import_module(f"{package.name}.{file.removesuffix('.py')}")
    run = getattr(module, entry)
    inspect.signature(run).bind(*definition["inputs"])
    theirs = {}
    exec(definition["reference"], theirs)
    if module._WEIGHTS:
        arguments = theirs["get_init_inputs"]()
        named_alike(
            theirs["Model"](*arguments).state_dict(), module.ModelNew(*arguments).state_dict()
        )
    if not on_gpu():
        return None
    lines = next(folder.glob("workloads/*/*.jsonl")).read_text().splitlines()
    workload = min((json.loads(line)["workload"] for line in lines), key=axes_product)
    inputs = workload_inputs(folder, definition, workload)
    compare_all(run(*clone(inputs)), theirs["run"](*clone(inputs)))
    return f"workload {workload['uuid']}"


def axes_product(workload):
    product = 1
    for size in workload["axes"].values():
        product *= size
    return product


def workload_inputs(folder, definition, workload):
    values = []
    for name, spec in definition["inputs"].items():
        asked = workload["inputs"][name]
        if asked["type"] == "scalar":
            values.append(asked["value"])
        elif asked["type"] == "safetensors":
            from safetensors.torch import load_file

            values.append(load_file(str(folder / asked["path"]))[asked["tensor_key"]].to("cuda"))
        else:
            axes = definition["axes"]
            sizes = [axes[a].get("value", workload["axes"].get(a)) for a in spec["shape"]]
            dtype = getattr(torch, spec["dtype"])
            values.append(torch.randn(sizes, dtype=torch.float32).to("cuda", dtype))
    return values


def compare_all(got, want):
    """As flashinfer-bench: shape, dtype, finite, then 1e-2 absolute or relative."""
    got, want = (x if isinstance(x, tuple | list) else (x,) for x in (got, want))
    if len(got) != len(want):
        raise Fault(f"{len(got)} outputs, want {len(want)}")
    for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise Fault(
                f"output {i}: {mine.dtype} {list(mine.shape)}, want {theirs.dtype} "
                f"{list(theirs.shape)}"
            )
        mine, theirs = mine.float(), theirs.float()
        if not torch.isfinite(mine).all():
            raise Fault(f"output {i} has infinities or NaN, which flashinfer-bench fails")
        apart = (mine - theirs).abs()
        if ((apart > 1e-2) & (apart > 1e-2 * (theirs.abs() + 1e-8))).any():
            raise Fault(f"output {i} differs by up to {float(apart.max()):.3g}")


def main(receiver, folder):
    clean = importlib.util.find_spec("harness") is None
    report = {"clean": clean, "built": False, "ran": None, "faults": []}
    try:
        report["ran"] = globals()[receiver](Path(folder).resolve())
        report["built"] = True
    except Fault as fault:
        report["built"] = True
        report["faults"].append(str(fault))
    except BaseException as error:
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        report["faults"].append(f"{type(error).__name__}: {text[0][:200]}")
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:3])
