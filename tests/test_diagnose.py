"""Few lines from much compiler output: the user's line, the first errors, the likely cause."""

import pytest

from harness import build_recipe, diagnose, diagnose_causes, diagnose_lines, diagnose_parse
from harness import inline_request as request
from harness.build_cache import Entry
from harness.build_steps import Done
from harness.records import Failed

CPP = "int forward(int x);"
CUDA = "int forward(int x) {\n  return x;\n}\n"


def asked(cpp=CPP, cuda=CUDA, functions=("forward",), bare=True):
    names = list(functions) if functions is not None else None
    strings = request.Strings(cpp, cuda, names, bare, False)
    return request.from_strings("op", strings, request.Flags(), None)


def failed(output, made=None, user_file=None, step="cuda.cu"):
    results = (Done(step, 1, 1.0, output),)
    return diagnose.failure(made or asked(), results, user_file, "/log.txt").failure


def shown(failure):
    return [failure.message, *failure.details, f"full log: {failure.log}"]


def test_trial_A15_one_error_among_pages_of_commands():
    noise = "$ nvcc " + " ".join(f"-isystem /very/long/{i}" for i in range(200)) + "\n"
    notes = "".join(f"In file included from /torch/x{i}.h:{i},\n" for i in range(100))
    error = 'cuda.cu(2): error: identifier "y" is undefined\n    return y;\n           ^\n'
    lines = shown(failed(noise + notes + error + "1 error detected in the compilation.\n"))
    assert lines[0] == 'op (line 2 of cuda_sources): identifier "y" is undefined'
    assert len(lines) <= 15


def test_a_hundred_errors_fit_on_a_screen():
    errors = "".join(f"cuda.cu(2): error: number {n}\n" for n in range(100))
    lines = shown(failed(errors))
    assert len(lines) <= 15
    assert "and 96 more errors" in lines


def test_errors_in_the_users_text_go_before_those_in_headers():
    output = "/torch/x.h:9:1: error: in a header\ncuda.cu(2): error: mine\n"
    assert failed(output).message.endswith(": mine")


def test_the_same_error_of_both_nvcc_passes_is_said_once():
    error = "cuda.cu(2): error: once\n"
    assert failed(error + error).details == ("    return x;",)


@pytest.mark.parametrize("implicit", [True, False])
def test_line_numbers_count_from_the_users_first_line(implicit):
    made = asked(bare=not implicit)
    line = 2 + (3 if implicit else 0)
    failure = failed(f"cuda.cu({line}): error: here\n", made)
    assert failure.message == "op (line 2 of cuda_sources): here"
    assert failure.details == ("    return x;",)


# From the generated line to the line of the Python file


def python_file(write, text, name="op.py"):
    return str(write(name, text))


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ('CUDA = r"""\n', '\n"""\n'),
        ('CUDA = r"""', '"""\n'),
        ("CUDA = '''\n", "\n'''.replace('a', 'a')\n"),
        ('SIZE = 4\nCUDA = f"""\n', '\n"""\n'),
    ],
)
def test_the_line_of_a_literal(write, head, tail):
    body = "int a() {{\n  return 1;\n}}\n\nint b() {{\n  return wrong;\n}}"
    text = "import os\n\n" + head + (body if "f" in head else body.replace("{{", "{")) + tail
    path = python_file(write, text.replace("}}", "}}" if 'f"' in head else "}"))
    source = body.replace("{{", "{").replace("}}", "}")
    user = diagnose_lines.read(path)
    generated = ["#include <x>", *source.splitlines()]
    wanted = next(n for n, line in enumerate(user.lines, 1) if "wrong" in line)
    assert user.find(generated, 7) == wanted


def test_equal_lines_are_told_apart_by_their_neighbours(write):
    body = "int a() {\n  return x;\n}\nint b() {\n  return x;\n}"
    user = diagnose_lines.read(python_file(write, f'A = """\n{body}\n"""\n'))
    assert [user.find(body.splitlines(), n) for n in (2, 5)] == [3, 6]


def test_a_line_that_was_substituted_is_found_between_its_neighbours(write):
    text = 'CUDA = """\nint a() {\n  return @;\n}\n""".replace("@", "missing")\n'
    user = diagnose_lines.read(python_file(write, text))
    assert user.find(["int a() {", "  return missing;", "}"], 2) == 3


def test_python_code_that_looks_like_the_source_is_not_taken(write):
    text = 'x = 1;\nCUDA = """\nx = 1;\n"""\n'
    assert diagnose_lines.read(python_file(write, text)).find(["x = 1;"], 1) == 3


def test_a_source_from_another_file_falls_back_to_its_own_line(write):
    path = python_file(write, "CUDA = open('k.cu').read()\n")
    failure = failed("cuda.cu(2): error: here\n", user_file=path)
    assert failure.message == f"{path} (line 2 of cuda_sources): here"


# Likely causes


def cause(output, made=None, step="main.cpp"):
    lines = [x for x in failed(output, made, step=step).details if x.startswith("likely cause")]
    return lines[0].removeprefix("likely cause: ") if lines else None


def test_trial_A21_a_function_name_that_the_sources_do_not_define():
    made = asked(functions=["fwd"])
    output = "main.cpp:3:14: error: ‘fwd’ was not declared in this scope\n"
    assert cause(output, made) == (
        "functions= names fwd, which the sources do not define (they define forward)"
    )


def test_trial_A21_pybind_module_beside_functions():
    made = asked(cpp=CPP + "\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { }")
    output = "main.cpp:3:1: error: redefinition of ‘PyObject* PyInit_op()’\n"
    assert "leave out functions=" in cause(output, made)


def test_trial_A21_a_missing_declaration_is_written_out():
    made = asked(cpp="")
    output = "main.cpp:3:18: error: ‘forward’ was not declared in this scope\n"
    assert (
        cause(output, made)
        == "cpp_sources lack the declaration of forward; add: int forward(int x);"
    )


def test_trial_A21_a_launch_in_cpp_sources():
    made = asked(cpp="void forward() { k<<<1, 1>>>(); }")
    output = "main.cpp:1:19: error: expected primary-expression before ‘<’ token\n"
    assert "move it to cuda_sources" in cause(output, made)


def test_the_four_of_A21_are_four_different_sentences():
    said = {
        cause("main.cpp:3:1: error: ‘fwd’ was not declared\n", asked(functions=["fwd"])),
        cause("main.cpp:3:1: error: redefinition\n", asked(cpp="PYBIND11_MODULE(x, m) {}")),
        cause("main.cpp:3:1: error: ‘forward’ was not declared\n", asked(cpp="")),
        cause("main.cpp:1:1: error: expected\n", asked(cpp="void f() { k<<<1, 1>>>(); }")),
    }
    assert None not in said
    assert len(said) >= 3


def test_trial_A20_linkage_of_an_undefined_symbol():
    made = asked(cpp="int launch(int);", cuda='extern "C" int launch(int x) { return x; }')
    entry = Entry("k", "/cache/op.so", 1.0)
    error = OSError("/cache/op.so: undefined symbol: _Z6launchi")
    failure = diagnose.load_failure(made, entry, error, None).failure
    assert failure.message == "op: undefined symbol launch(int)"
    assert 'extern "C" in both or in neither' in failure.details[0]


def test_a_symbol_that_nobody_defines():
    error = OSError("undefined symbol: _Z6launchi")
    failure = diagnose.load_failure(asked(), Entry("k", "/x/op.so", 1.0), error, None).failure
    assert "extra_ldflags" in failure.details[0]


def test_trial_A8_the_unsupported_compiler_line_is_lifted():
    header = "/usr/local/cuda/include/crt/host_config.h:137:2: error: #error -- unsupported GNU "
    output = header + "version! gcc versions later than 15 are not supported! The nvcc flag ...\n"
    failure = failed("$ nvcc\n" + "noise\n" * 200 + output)
    assert "unsupported GNU version" in failure.message
    assert "CXX (or NVCC_CCBIN) to g++-15 or older" in failure.details[-1]


@pytest.mark.parametrize(
    ("character", "name", "remedy"),
    [
        ("“", "LEFT DOUBLE QUOTATION MARK (U+201C)", 'write "'),
        ("\u00a0", "NO-BREAK SPACE (U+00A0)", "write a space"),
        ("\u200b", "ZERO WIDTH SPACE (U+200B)", "delete it"),
        ("×", "MULTIPLICATION SIGN (U+00D7)", "write *"),
    ],
)
def test_trial_E7_a_pasted_character_with_its_line_and_column(character, name, remedy):
    made = asked(cuda=f"int a;\nint b = 2 {character} 3;\n")
    said = cause("cuda.cu(2): error: unrecognized token\n", made, step="cuda.cu")
    assert said == f"op (line 2 of cuda_sources), column 11: {name}; {remedy}"


def test_trial_E7_such_characters_in_comments_and_strings_are_fine():
    made = asked(cuda='// a × b “c”\n/* \u00a0 */ const char* s = "×";\n')
    assert diagnose_causes.odd_character(made) is None


def test_trial_E9_a_literal_that_is_not_raw():
    made = asked(cuda='void f() { printf("%d\n", 1); }\n')
    said = cause("cuda.cu(1): error: missing closing quote\n", made, step="cuda.cu")
    assert 'make the literal raw: r"""..."""' in said


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("nvcc fatal   : Unsupported gpu architecture 'compute_70'\n", "cannot compile for"),
        (
            "ptxas error   : Entry function '_Z1kv' uses too much shared data (0x10000 bytes)\n",
            "cudaFuncSetAttribute",
        ),
        (
            "ptxas /tmp/x.ptx, line 45; error   : Instruction 'wgmma.fence' not supported on "
            ".target 'sm_90'\n",
            "compute_90a",
        ),
        ("cuda.cu:1:10: fatal error: cute/x.hpp: No such file\n", "extra_include_paths"),
        ("/usr/bin/ld: cannot find -lfoo: No such file or directory\n", "extra_ldflags"),
        ("c++: fatal error: Killed signal terminated program cc1plus\n", "memory"),
        (
            'cuda.cu(2): error: no operator "+" matches these operands\n'
            "            operand types are: __half + __half\n",
            "__CUDA_NO_HALF_OPERATORS__",
        ),
    ],
)
def test_well_known_failures(output, part):
    assert part in cause(output, step="cuda.cu")


def test_no_kernel_image_for_this_gpu_is_said_before_compiling():
    made = build_recipe.Request(
        "op", (), cuda_cflags=("-gencode=arch=compute_80,code=sm_80",), python_module=False
    )
    with pytest.raises(Failed, match=r"sm_80 only and this GPU is 9\.0: no kernel image"):
        diagnose.refuse_early(made, None, (9, 0))


def test_symbols_are_demangled():
    output = "main.o: multiple definition of `_Z6launchi'; cuda.o: first defined here\n"
    assert "launch(int)" in failed(output).message


def test_output_without_any_error_line_shows_its_end():
    failure = failed("$ nvcc\nsomething odd\n")
    assert "something odd" in failure.details


def test_a_flag_that_no_compiler_knows_is_reported():
    (message,) = diagnose_parse.parse("nvcc fatal   : Unknown option '--nope'\n", ())
    assert "Unknown option '--nope'" in message.text


def test_sources_of_load_are_named_by_their_own_path(write):
    path = str(write("k.cu", "int f( { }\n"))
    source = build_recipe.Source("k.cu", "int f( { }\n", path)
    made = build_recipe.Request("op", (source,))
    failure = failed(f"{path}(1): error: expected\n", made)
    assert failure.message == f"{path}:1: expected"
