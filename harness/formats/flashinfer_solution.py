"""A flashinfer-bench Solution: read, checked, and unpacked into a folder as a Python file.

Facts from github.com/flashinfer-ai/flashinfer-bench at 40e6ca7 (flashinfer_bench/data/solution.py,
compile/builders), read on 2026-12-01. Sources are imported as a package, and found beside it as
well, which is how SOL-ExecBench imports them; C++ and CUDA go through cpp_extension.load.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness import cache, source, unpacked
from harness.formats import flashinfer, flashinfer_files, sol_execbench
from harness.formats.flashinfer_files import Fields
from harness.records import Failed, Outcome

LANGUAGES = ("python", "triton", "cuda")  # cpp, tilelang and others are not read
COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")
TRITON = re.compile(r"^\s*(import|from)\s+triton\b", re.M)

HEAD = '''"""{name} by {author}, unpacked; its sources are in {folder}."""

import sys

from harness.formats.flashinfer_call import Output, adapted

OUTPUTS = {outputs}
sys.path[:0] = [{root!r}, {root!r} + "/{folder}"]
'''
PYTHON = """
from importlib import import_module

entry = import_module("{folder}.{module}").{function}
"""
CUDA = """
from torch.utils.cpp_extension import load

ext = load(
    name={library!r},
    sources={sources!r},
    extra_include_paths=[{root!r} + "/{folder}"],
    extra_cflags={cflags!r},
    extra_cuda_cflags={cuda_cflags!r},
    extra_ldflags={ld_flags!r},
    with_cuda=True,
)
entry = ext.{function}
"""
TAIL = """
ModelNew = adapted(entry, OUTPUTS, into={into})
"""


@dataclass(frozen=True)
class Flags:
    """SOL-ExecBench's compile_options."""

    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ld_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Solution:
    """sources: path and text of each file. into: the entry writes into outputs it is given."""

    path: Path
    name: str
    definition: str
    author: str
    language: str
    file: str
    function: str
    into: bool
    sources: tuple[tuple[str, str], ...]
    flags: Flags = Flags()

    @property
    def text(self) -> str:
        """All sources, one below the other."""
        return "\n".join(text for _, text in self.sources)

    @property
    def needs_gpu(self) -> bool:
        """Whether its kernels are Triton's, which nothing here executes on the CPU."""
        return self.language == "triton" or any(
            path.endswith(".py") and TRITON.search(text) for path, text in self.sources
        )


def is_solution(path: str | Path) -> bool:
    """A solution in JSON can only be one of these."""
    return Path(path).suffix == ".json"


def looks_like_one(path: Path) -> bool:
    """Whether a JSON file of a folder is a Solution rather than results or something else."""
    try:
        body = flashinfer_files.load(path, Outcome.DOES_NOT_LOAD).body
    except Failed:
        return False
    return "sources" in body and "spec" in body


def read(path: str | Path) -> Solution:
    """Raises Failed(DOES_NOT_LOAD) with one sentence: file, field, got, wanted."""
    path = Path(path)
    fields = flashinfer_files.load(path, Outcome.DOES_NOT_LOAD)
    spec = fields.child("spec")
    language = _language(spec)
    spec.texts("target_hardware") or spec.refuse("target_hardware", "at least one text")
    file, function = _entry(spec, language)
    sources = tuple(_source(one) for one in fields.items("sources"))
    paths = [path for path, _ in sources]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        fields.fail(f"sources: two files have the path {twice}; rename one")
    if file not in paths:
        spec.refuse("entry_point", f"a file of sources ({', '.join(paths[:4])})")
    return Solution(
        path,
        fields.text("name"),
        fields.text("definition"),
        fields.text("author"),
        language,
        file,
        function,
        spec.flag("destination_passing_style", True),
        sources,
        _flags(spec),
    )


def definition_for(solution: Path, problems: Path) -> Path:
    """The Definition that a Solution names: `problems` itself or a file below that folder.

    Raises Failed(DOES_NOT_LOAD) where there is none or more than one.
    """
    if problems.is_file():
        return problems
    name = read(solution).definition
    found = sorted(problems.rglob(f"{glob.escape(name)}.json")) + sorted(
        problems.rglob("definition.json")
    )
    found = [path for path in found if flashinfer.definition_name(path) == name]
    if len(found) == 1:
        return found[0]
    what = "no Definition" if not found else f"{len(found)} Definitions"
    raise Failed(
        Outcome.DOES_NOT_LOAD,
        "plan",
        f"{solution}: {what} {name} below {problems}; want exactly one, in {name}.json or "
        "definition.json",
    )


def check(reference: str | Path, solution: str | Path, device: str) -> tuple[str, ...]:
    """What can be said before anything runs. Raises Failed; returns what is odd."""
    read_one, problem = read(solution), flashinfer.read(reference)
    definition = problem.definition
    odd = _other_definition(read_one, definition.name, str(reference))
    if odd and not problem.sol:
        raise _fail(odd)
    if read_one.needs_gpu and device == "cpu":
        raise Failed(
            Outcome.NEEDS_GPU,
            "load",
            f"{solution}: its kernels are Triton's and need a GPU; run the same command on one",
        )
    if read_one.language != "cuda":
        tensors = definition.inputs + (definition.outputs if read_one.into else ())
        _check_entry(read_one, tuple(tensor.name for tensor in tensors))
    return (odd,) if odd else ()


def module_of(reference: str | Path, solution: str | Path) -> str:
    """The Python file to import for a solution: itself, or what a Solution is unpacked to.

    The folder is named by content, so that an unchanged Solution is built once.
    """
    if not is_solution(solution):
        return str(solution)
    found = read(solution)
    outputs = [
        f"Output({t.name!r}, {t.shape!r}, {t.dtype!r})"
        for t in flashinfer.read(reference).definition.outputs
    ]
    stem = re.sub(r"\W", "_", f"s_{found.name}")[:60]
    content = repr((found.sources, _shim(found, "", stem, outputs)))
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    folder = cache.root() / "formats" / digest[:24]
    file = folder / f"{stem}.py"
    if not file.is_file():
        _unpack(found, file, _shim(found, str(folder), stem, outputs))
    return str(file)


def text_of(solution: str | Path) -> str:
    """A solution's code, for a search in it."""
    if is_solution(solution):
        return read(solution).text
    return Path(solution).read_text(encoding="utf-8")


def _other_definition(found: Solution, wanted: str, reference: str) -> str:
    """A sentence where it was made for another problem, which SOL-ExecBench does not mind."""
    if found.definition == wanted:
        return ""
    return f"{found.path}: definition is {found.definition!r}; want {wanted!r}, as in {reference}"


def _shim(found: Solution, root: str, stem: str, outputs: list[str]) -> str:
    """The text of the Python file; root: the folder it is written to."""
    package = Path(unpacked.folder_of(stem)).name
    if found.language == "cuda":
        body = CUDA.format(
            library=stem,
            sources=[f"{root}/{package}/{p}" for p, _ in found.sources if p.endswith(COMPILED)],
            root=root,
            folder=package,
            cflags=list(found.flags.cflags),
            cuda_cflags=list(found.flags.cuda_cflags),
            ld_flags=list(found.flags.ld_flags),
            function=found.function,
        )
    else:
        module = ".".join(PurePosixPath(found.file).with_suffix("").parts)
        body = PYTHON.format(folder=package, module=module, function=found.function)
    listed = f"({', '.join(outputs)},)"
    quoted = [re.sub(r'["\\]', "'", word) for word in (found.name, found.author)]
    head = HEAD.format(name=quoted[0], author=quoted[1], folder=package, root=root, outputs=listed)
    return head + body + TAIL.format(into=found.into)


def _unpack(found: Solution, file: Path, shim: str) -> None:
    """All files at once or none: another process may be reading."""
    folder, package = file.parent, Path(unpacked.folder_of(file.name))
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unpacking-"))
    scratch.chmod(0o755)
    try:
        for path, text in found.sources:
            place = scratch / package / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="")
        (scratch / file.name).write_text(shim, encoding="utf-8")
        if not file.is_file():
            os.rename(scratch, folder)
    except (OSError, UnicodeEncodeError) as error:
        if not file.is_file():
            why = getattr(error, "strerror", None) or str(error)
            raise _fail(f"{found.path}: sources cannot be unpacked ({why}); mend them") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _language(spec: Fields) -> str:
    if "languages" in spec.body:
        known, named = sol_execbench.LANGUAGES, spec.texts("languages")
        if len(named) != 1 or named[0] not in known:
            spec.refuse("languages", f"a list of one of {', '.join(known)}")
        language, usual = known[named[0]], "torch"
    else:
        language, usual = spec.one_of("language", LANGUAGES), "tvm-ffi"
    if language == "cuda" and (spec.body.get("binding") or usual) != "torch":
        spec.refuse("binding", "torch: no other is built here, and null means tvm-ffi")
    return language


def _entry(spec: Fields, language: str) -> tuple[str, str]:
    wanted = "FILE::FUNCTION, such as main.py::run"
    parts = spec.text("entry_point").split("::")
    if len(parts) != 2 or not parts[0] or not parts[1].isidentifier():
        spec.refuse("entry_point", wanted)
    endings = COMPILED if language == "cuda" else (".py",)
    if not parts[0].endswith(endings):
        spec.refuse("entry_point", f"a file that ends with {' '.join(endings)} for {language}")
    if language != "cuda" and "." in parts[0].removesuffix(".py"):
        spec.refuse("entry_point", "a path that can be imported, without further dots")
    return parts[0], parts[1]


def _source(one: Fields) -> tuple[str, str]:
    path = one.text("path")
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\0" in path or not parts:
        one.refuse("path", "a path below the solution's folder, without ..")
    return str(PurePosixPath(path)), one.text("content")


def _flags(spec: Fields) -> Flags:
    if spec.body.get("compile_options") is None:
        return Flags()
    given = spec.child("compile_options")
    return Flags(
        given.texts("cflags", ()),
        given.texts("cuda_cflags", sol_execbench.CUDA_CFLAGS),
        given.texts("ld_flags", sol_execbench.LD_FLAGS),
    )


def _check_entry(found: Solution, wanted: tuple[str, ...]) -> None:
    """The entry's file is Python and its function takes the arguments; every file parses."""
    for path, text in found.sources:
        if path.endswith(".py"):
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None) or 1
                raise _fail(f"{found.path}: {path}:{line}: not valid Python ({error})") from None
            if path == found.file:
                _check_call(found, tree, wanted)


def _check_call(found: Solution, tree: ast.Module, wanted: tuple[str, ...]) -> None:
    got = source.signature_of(tree, found.function)
    if got is None or got.accepts(source.Signature(len(wanted), len(wanted), wanted, 1)):
        return  # a name that is assigned or imported shows when it is called
    style = "writes into its last arguments" if found.into else "returns its results"
    raise _fail(
        f"{found.path}: {found.file}:{got.line}: {found.function}({', '.join(got.names)}) "
        f"{style} (destination_passing_style is {str(found.into).lower()}), so it is called with "
        f"{len(wanted)} arguments: {', '.join(wanted)}; give it these"
    )


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "load", message)
