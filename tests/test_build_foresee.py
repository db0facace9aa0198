"""What a solution's load_inline calls will ask for, read from its text."""

import pytest

from harness import build_foresee


def calls(write, text):
    return build_foresee.calls(str(write("op.py", text)))


def test_the_usual_form(write):
    text = (
        'CPP = r"""\nint f();\n"""\nCUDA = CPP + "int f() { return 1; }"\nNAME: str = "op"\n'
        "ext = load_inline(name=NAME, cpp_sources=CPP, cuda_sources=[CUDA], functions=['f'],\n"
        "                  extra_cuda_cflags=['-O3'], no_implicit_headers=True)\n"
    )
    ((positional, named),) = calls(write, text)
    assert positional == []
    assert named == {
        "name": "op",
        "cpp_sources": "\nint f();\n",
        "cuda_sources": ["\nint f();\nint f() { return 1; }"],
        "functions": ["f"],
        "extra_cuda_cflags": ["-O3"],
        "no_implicit_headers": True,
    }


def test_positional_arguments_attributes_and_f_strings(write):
    text = 'N = 4\nfrom torch.utils import cpp_extension\ncpp_extension.load_inline("a", f"x{N}")\n'
    assert calls(write, text) == ((["a", "x4"], {}),)


@pytest.mark.parametrize(
    "text",
    [
        "load_inline(name='a', cpp_sources=open('x').read())",
        "load_inline(**options)",
        "load_inline(*options)",
        "S = 'a'\nS = 'b'\nload_inline(name='a', cpp_sources=S)",
        "S = 'a'\nS += 'b'\nload_inline(name='a', cpp_sources=S)",
        "if True:\n    S = 'a'\nload_inline(name='a', cpp_sources=S)",
        "load_inline(name='a', cpp_sources='x'.replace('x', 'y'))",
        "load_inline(name='a', cpp_sources=f'{1.5:.3f}')",
        "def f():\n    load_inline(name='a', cpp_sources='x')",
        "not python at all (",
    ],
)
def test_what_cannot_be_told_is_not_guessed(write, text):
    assert calls(write, text) == ()
