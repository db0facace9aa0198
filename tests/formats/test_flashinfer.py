"""A flashinfer-bench Definition, its Workloads and a Solution: what is read, and each refusal."""

import json

import pytest
from flashinfer_set import CUDA, RETURNS, DataSet, lines, solution, workload

from harness import batch, plan, problem, run
from harness.formats import flashinfer, flashinfer_files, flashinfer_solution
from harness.records import Failed, Failure, Outcome

INTO = "def run(x, s, eps, y, m):\n    y.copy_(x * s[:, None] + eps)\n    m.copy_(y.amax(1))\n"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    from harness import cache

    cache.root.cache_clear()
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    yield
    cache.root.cache_clear()


@pytest.fixture
def data(write):
    return DataSet(write)


def refusal(call, *words) -> str:
    with pytest.raises(Failed) as caught:
        call(*words)
    return caught.value.failure.message


def planned(definition, solution, **more):
    request = plan.Request(reference=str(definition), solution=str(solution), **more)
    (one,) = plan.plans(request)
    return one


def prepared(definition, solution, **more):
    (one,) = run.prepare((planned(definition, solution, **more),), lambda step: None)
    return one.result


def test_each_workload_is_a_case_with_its_axes(data):
    stated = problem.declared(data.definition(rows=(5, 33, 0)))
    assert [case.name for case in stated.cases] == ["00000000", "00000001", "00000002"]
    assert stated.cases[1].sizes == {"rows": 33, "uuid": "00000001-aaaa"}
    assert stated.gpu_only == frozenset()


def test_uuids_that_start_alike_get_longer_names(data):
    path = data.definition()
    first, second = workload(1, 5), workload(1, 6)
    second["workload"]["uuid"] = "00000001-abcd"
    data.workloads(first, second)
    assert [c.name for c in flashinfer.read(path).cases] == ["00000001-aa", "00000001-ab"]


def test_large_workloads_wait_for_a_gpu_but_the_smallest_runs(data):
    path = data.definition(rows=(1 << 21, 1 << 22, 5))
    assert problem.declared(path).gpu_only == {"00000000", "00000001"}
    path = data.definition(rows=(1 << 22, 1 << 21))
    assert problem.declared(path).gpu_only == {"00000000"}


def test_inputs_have_the_declared_shapes_types_and_values(data):
    import torch

    reference = problem.load(data.definition())
    x, s, eps = reference.inputs(reference.cases[1])
    assert (x.shape, s.shape) == ((33, 16), (33,))
    assert x.dtype == torch.float32
    assert eps == 0.5
    again, _, _ = reference.inputs(reference.cases[1])
    assert not torch.equal(x, again)
    y, m = reference.Model(*reference.init_inputs(reference.cases[1]))(x, s, eps)
    assert torch.equal(y, x * s[:, None] + 0.5)
    assert m.shape == (33,)


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [("int32", -1024, 1023), ("int8", -128, 127), ("bool", 0, 1), ("float8_e5m2", -2, 2)],
)
def test_random_numbers_are_of_flashinfer_benchs_ranges(data, dtype, least, most):
    inputs = {"x": {"shape": ["rows", "cols"], "dtype": dtype}}
    text = "def run(x):\n    return x, x\n"
    path = data.definition({"inputs": inputs, "reference": text}, rows=(999,))
    data.write("set/workloads/scale/scale_rows.jsonl", lines(_only(workload(0, 999), {})))
    reference = problem.load(path)
    (x,) = reference.inputs(reference.cases[0])
    assert str(x.dtype) == f"torch.{dtype}"
    x = x.double()
    assert least <= float(x.min()) < float(x.max()) <= most


def _only(line: dict, inputs: dict) -> dict:
    """The workload with these inputs listed and no others."""
    return {**line, "workload": {**line["workload"], "inputs": inputs}}


def test_a_number_that_is_not_given_is_drawn(data):
    path = data.definition()
    data.workloads(_only(workload(0, 5), {}))
    reference = problem.load(path)
    assert isinstance(reference.inputs(reference.cases[0])[2], float)


def test_a_definition_finds_its_workloads_beside_it_as_well(data, write):
    text = data.definition().read_text()
    write("alone/workload.jsonl", lines(workload(0, 5)))
    assert len(flashinfer.read(write("alone/definition.json", text)).workloads) == 1
    said = refusal(flashinfer.read, write("none/scale_rows.json", text))
    assert "no workloads; put them into" in said
    assert "none/workload.jsonl" in said


def test_safetensors_inputs(data, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    import torch

    s = torch.arange(5.0)
    blob = tmp_path / "set/blob/workloads/scale/scale_rows/a.safetensors"
    blob.parent.mkdir(parents=True)
    safetensors.save_file({"s": s, "long": s.long()}, str(blob))
    path = data.definition()

    def drawn(key: str, rows: int = 5, where: str = "blob/workloads/scale/scale_rows/"):
        given = {"type": "safetensors", "path": f"{where}a.safetensors", "tensor_key": key}
        data.workloads(workload(0, rows, s=given))
        reference = problem.load(path)
        return reference.inputs(reference.cases[0])[1]

    assert torch.equal(drawn("s"), s)
    assert torch.equal(drawn("s", where="data/set/blob/workloads/scale/scale_rows/"), s)
    assert "s is float32 [5]; want float32 [6] for s" in refusal(drawn, "s", 6)
    assert "long is int64 [5]; want float32 [5]" in refusal(drawn, "long")
    assert "holds long, s; want t for" in refusal(drawn, "t")
    assert "input s: there is no" in refusal(drawn, "s", 5, "blob/elsewhere/")
    blob.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "a.safetensors: not a safetensors file" in refusal(drawn, "s")


# what is changed in the definition, what is said
BROKEN = [
    ({"name": "absent"}, "no name; want a text, not empty"),
    ({"name": 3}, "name is 3; want a text, not empty"),
    ({"axes": []}, "axes is []; want an object"),
    ({"axes": {"rows": {"type": "let"}}}, 'axes.rows.type is "let"; want const or var or expr'),
    ({"axes": {"rows": {"type": "const"}}}, "no axes.rows.value; want a whole number"),
    ({"axes": {"rows": {"type": "const", "value": True}}}, "axes.rows.value is true; want a whole"),
    ({"outputs": {}}, "outputs is {}; want at least one output"),
    ({"outputs": {"x": {"shape": None, "dtype": "float32"}}}, "x is both in inputs and in outputs"),
    ({"outputs": {"y": {"dtype": "float32"}}}, "no outputs.y.shape; want a list"),
    ({"outputs": {"y": {"shape": ["no"], "dtype": "float32"}}}, "and no is none of"),
    ({"outputs": {"y": {"shape": [], "dtype": "float31"}}}, 'outputs.y.dtype is "float31"; want'),
    ({"outputs": {"y": {"shape": [], "dtype": "float4_e2m1"}}}, '"float4_e2m1"; want'),
    ({"reference": "absent"}, "no reference; want a text"),
    ({"reference": "import torch\ndef run(:\n"}, "reference, line 2: not valid Python"),
    ({"reference": "def ran(x, s, eps):\n    return x\n"}, "want Python with a function run"),
    ({"reference": "def run(x):\n    return x\n"}, "run(x) cannot take the 3 inputs (x, s, eps)"),
    ({"op_type": "sampling"}, "are not compared as distributions here"),
]


@pytest.mark.parametrize(("changes", "says"), BROKEN, ids=[b[1] for b in BROKEN])
def test_a_definition_that_is_not_quite_one(data, changes, says):
    path = data.definition(changes)
    said = refusal(problem.declared, path)
    assert said.startswith(str(path))
    assert says in said
    assert "\n" not in said


# a line of the workload file, what is said
BODY = workload(0, 5)["workload"]
BROKEN_LINES = [
    ({**workload(0, 5), "definition": "other"}, "definition is \"other\"; want 'scale_rows'"),
    ({**workload(0, 5), "solution": "mine"}, "is the trace of a solution"),
    ({**workload(0, 5), "workload": 3}, "workload is 3; want an object"),
    ({**BODY, "uuid": ""}, 'uuid is ""; want a text, not empty'),
    ({**BODY, "axes": {}}, "no axes.rows; want a whole number from 0 on"),
    ({**BODY, "axes": {"rows": -1}}, "axes.rows is -1; want a whole number from 0 on"),
    ({**BODY, "inputs": {"epz": {"type": "random"}}}, "want only inputs of scale_rows: x, s, eps"),
    ({**BODY, "inputs": {"x": {"type": "zeros"}}}, 'inputs.x.type is "zeros"; want random or'),
    ({**BODY, "inputs": {"x": {"type": "scalar", "value": 1}}}, "for x has a shape"),
    ({**BODY, "inputs": {"eps": {"type": "scalar"}}}, "no inputs.eps.value; want a number"),
    ({**BODY, "inputs": {"eps": {"type": "safetensors"}}}, "for eps is a number"),
    ({**BODY, "inputs": {"x": {"type": "safetensors", "path": "a"}}}, "no inputs.x.tensor_key"),
]


@pytest.mark.parametrize(("line", "says"), BROKEN_LINES, ids=[b[1] for b in BROKEN_LINES])
def test_a_workload_that_is_not_quite_one(data, line, says):
    path = data.definition()
    listed = data.workloads(workload(7, 5), line)
    said = refusal(problem.declared, path)
    assert said.startswith(f"{listed}:2: ")
    assert says in said


def test_broken_json_is_named_by_line_and_column(data, write):
    path = data.definition()
    listed = write("set/workloads/scale/scale_rows.jsonl", lines(workload(0, 5)) + '{"a": }\n')
    assert refusal(problem.declared, path).startswith(f"{listed}:2:7: not valid JSON")
    listed.write_text("[1]\n")
    assert "holds [1]; want one JSON object" in refusal(problem.declared, path)
    listed.write_text("\n")
    assert "are empty" in refusal(problem.declared, path)
    listed.write_text(lines(workload(0, 5), workload(0, 6)))
    assert "have the uuid 00000000-aaaa" in refusal(problem.declared, path)
    path.write_text('{"name": "a",\n "axes"}')
    assert refusal(problem.declared, path).startswith(f"{path}:2:8: not valid JSON")
    path.write_bytes(b"\xff\xff")
    assert "cannot be read (not UTF-8)" in refusal(problem.declared, path)


# what differs from a good Solution in Python, what is said
BROKEN_SOLUTIONS = [
    (lambda b: b.pop("author"), "no author; want a text, not empty"),
    (lambda b: b.pop("spec"), "no spec; want an object"),
    (lambda b: b["spec"].pop("language"), "no spec.language; want python or triton or cuda"),
    (lambda b: b["spec"].update(language="cpp"), 'spec.language is "cpp"; want python or triton'),
    (lambda b: b["spec"].update(target_hardware=[]), "spec.target_hardware is []; want at least"),
    (lambda b: b["spec"].update(entry_point="main.py"), "want FILE::FUNCTION"),
    (lambda b: b["spec"].update(entry_point="a.py::run"), "want a file of sources (main.py)"),
    (lambda b: b["spec"].update(entry_point="main.cu::run"), "want a file that ends with .py"),
    (lambda b: b["spec"].update(destination_passing_style=1), "is 1; want true or false"),
    (lambda b: b["spec"].update(language="cuda", binding="torch"), "ends with .cu .cpp .cc"),
    (lambda b: b["spec"].update(language="cuda"), "no spec.binding; want torch"),
    (lambda b: b["spec"].update(language="cuda", binding="tvm-ffi"), '"tvm-ffi"; want torch'),
    (lambda b: b.update(sources=[]), "sources is []; want a list of objects, not empty"),
    (lambda b: b["sources"].append(b["sources"][0]), "two files have the path main.py"),
    (lambda b: b["sources"][0].update(path="../main.py"), "sources[0].path is"),
    (lambda b: b["sources"][0].update(path="/main.py"), "want a path below the solution's folder"),
    (lambda b: b["sources"][0].pop("content"), "no sources[0].content; want a text"),
    (lambda b: b.update(definition="other"), "definition is 'other'; want 'scale_rows'"),
    (lambda b: b["sources"][0].update(content="def run(:\n"), "main.py:1: not valid Python"),
    (lambda b: b["sources"][0].update(content=INTO), "returns its results"),
    (lambda b: b["sources"].append({"path": "main.py/a", "content": "a"}), "cannot be unpacked"),
]


@pytest.mark.parametrize(("change", "says"), BROKEN_SOLUTIONS, ids=[b[1] for b in BROKEN_SOLUTIONS])
def test_a_solution_that_is_not_quite_one_is_a_verdict(data, write, change, says):
    definition = data.definition()
    body = solution("mine", {"main.py": RETURNS}, destination_passing_style=False)
    change(body)
    path = write("mine.json", json.dumps(body))
    result = prepared(definition, path)
    assert isinstance(result, Failure)
    assert result.outcome is Outcome.DOES_NOT_LOAD
    assert result.message.startswith(str(path))
    assert says in result.message


def test_broken_solution_json(data, write):
    path = write("mine.json", '{"name": "a",}')
    result = prepared(data.definition(), path)
    assert result.message.startswith(f"{path}:1:")
    assert "not valid JSON" in result.message


def test_arguments_follow_the_destination_passing_style(data):
    definition = data.definition()
    plain = data.solution("plain", {"main.py": RETURNS})  # the default is true
    assert "called with 5 arguments: x, s, eps, y, m" in prepared(definition, plain).message
    assert not isinstance(prepared(definition, data.solution("i", {"main.py": INTO})), Failure)


@pytest.mark.parametrize("language", ["triton", "python"])
def test_triton_needs_a_gpu(data, language):
    text = "import torch\nimport triton\n" + RETURNS
    words = {"language": language, "destination_passing_style": False}
    path = data.solution("tri", {"main.py": text}, **words)
    assert prepared(data.definition(), path).outcome is Outcome.NEEDS_GPU
    assert flashinfer_solution.check(data.definition(), path, "cuda:0") == ()


def test_a_definition_and_a_solution_go_together_alone(data, write):
    definition, path = data.definition(), data.solution("mine", {"main.py": RETURNS})
    model = write("model.py", "class Model:\n    pass\n")
    assert "is solved by a Solution in JSON" in refusal(planned, definition, model)
    assert "no Definition in JSON" in refusal(planned, model, path)


def test_the_unpacked_folder_holds_the_sources_and_nothing_of_the_reference(data):
    definition = data.definition()
    path = data.solution("mine", {"main.py": INTO, "src/more.txt": "é\r\n"})
    file = flashinfer_solution.module_of(definition, path)
    folder = flashinfer_files.Path(file).parent
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert set(found) == {"s_mine.py", "s_mine_sources/main.py", "s_mine_sources/src/more.txt"}
    assert found["s_mine_sources/src/more.txt"].read_bytes() == "é\r\n".encode()
    assert "amax(1)\n    return" not in "".join(p.read_text() for p in found.values())
    assert flashinfer_solution.module_of(definition, path) == file
    data.solution("mine", {"main.py": INTO + "\n", "src/more.txt": "é\r\n"})
    assert flashinfer_solution.module_of(definition, path) != file


def test_a_batch_pairs_solutions_with_the_definitions_they_name(data, write, tmp_path):
    data.definition()
    data.solution("one", {"main.py": RETURNS})
    data.solution("two", CUDA, "main.cpp::run", language="cuda", binding="torch")
    write("set/solutions/somebody/results.json", '{"1": []}')
    write("set/definitions/other/definition.json", '{"name": "scale_rows"}')
    files = batch.solutions([tmp_path / "set/solutions"])
    assert [path.stem for path in files] == ["one", "two"]
    request = plan.Request(device="cpu")
    tasks = list(batch.tasks(files, tmp_path / "set", request))
    assert [task.plan.op for task in tasks] == ["scale_rows"] * 2
    keys = {task.key for task in tasks}
    assert len(keys) == 2
    data.workloads(workload(0, 6))
    assert keys.isdisjoint(task.key for task in batch.tasks(files, tmp_path / "set", request))
    elsewhere = write("empty/readme.txt", "").parent
    (lost, _) = batch.tasks(files, elsewhere, request)
    assert "no Definition scale_rows below" in lost.failed.failure.message
