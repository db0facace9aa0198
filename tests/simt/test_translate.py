"""Source in, C++ out: launches, shared memory, device spelling, PTX, what needs a GPU."""

import pytest

from harness.simt.errors import NeedsGPU
from harness.simt.translate import translate


def squeezed(source: str) -> str:
    return " ".join(translate(source).split())


@pytest.mark.parametrize(
    ("launch", "name", "arguments"),
    [
        ("k<<<1, 2>>>(x, 3);", "k", "x, 3"),
        ("ns::k<float, (4 > 3)><<<dim3(1, 2), 3, 0, s>>>(x);", "ns::k<float, (4 > 3)>", "x"),
        ("if (n) k<a::b<int>><<<1, 2>>>(f(x, y));", "k<a::b<int>>", "f(x, y)"),
        ("else ::k<<<g, b>>>(p->q);", "::k", "p->q"),
        ("table[i]<<<1, 2>>>(x);", "table[i]", "x"),
        ("(*f)<<<1, 2>>>(x);", "(*f)", "x"),
        ("this->template k<T><<<1, 2>>>(x);", "this->template k<T>", "x"),
    ],
)
def test_launch_forms(launch, name, arguments):
    text = squeezed(launch)
    assert f"{{SIMT_NAME({name}), __FILE__, __LINE__}}, {name}, {arguments});" in text
    assert "<<<" not in text


def test_launch_without_arguments():
    assert squeezed("k<<<1, 2>>>();").endswith("__LINE__}, k);")


def test_launch_of_a_template_with_deduced_arguments():
    text = squeezed("template <int N, class T> __global__ void k(T* x); f() { k<4><<<1, 2>>>(x); }")
    assert "launch_deduced" in text
    text = squeezed(
        "template <class T, int N = 4> __global__ void k(T* x); f() { k<T><<<1, 2>>>(x); }"
    )
    assert "launch_deduced" not in text


def test_lines_stay():
    source = "a\n  k<T>\n<<<g,\n b>>>(x,\n y);\n__shared__ float\n s[4];\nlast\n"
    assert translate(source).split("\n").index("last") == source.split("\n").index("last")


def test_launch_inside_a_macro():
    text = translate("#define RUN(K, n) K<<<n, 256>>>(x, \\\n  y)\nint z;\n")
    assert "simt::launch(" in text.split("\n")[0]
    assert text.split("\n")[2] == "int z;"


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ float s[N][N + 1];",
        "static __shared__ float s[4];",
        "volatile __shared__ int s[4];",
        "__shared__ alignas(16) float s[4];",
        "alignas(16) __shared__ float s[4];",
        "__shared__ __align__(16) float s[4];",
        "__shared__ typename R::TempStorage s;",
        "__shared__ std::pair<int, float> s;",
    ],
)
def test_shared_variable(declaration):
    text = squeezed(f"void f() {{ {declaration} }}")
    assert "__shared__" not in text
    assert "auto& s = *static_cast<simt_type_s*>(simt_site_s.get());" in text


def test_several_shared_variables():
    text = squeezed("void f() { __shared__ float a[2], b; }")
    assert "simt_site_a" in text
    assert "simt_site_b" in text


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ float s[];",
        "extern __shared__ __align__(16) unsigned char s[];",
        "__shared__ extern float s[];",
    ],
)
def test_dynamic_shared(declaration):
    assert 'dynamic_shared("s", 16)' in squeezed(f"void f() {{ {declaration} }}")
    assert "DynamicShared<" in squeezed(f"namespace a {{ {declaration} }}")


def test_device_spelling():
    text = squeezed(
        'TORCH_CHECK(x.type().is_cuda(), "x"); auto o = opt.device(torch::kCUDA);'
        " AT_DISPATCH_FLOATING_TYPES(x.type(), f, g); TORCH_LIBRARY_IMPL(a, CUDA, m);"
        ' if (x.device().type() == c10::DeviceType::CUDA) torch::Device("cuda:0");'
    )
    assert "x.is_cpu()" in text
    assert "x.scalar_type()" in text
    assert "kCUDA" not in text
    assert "CUDA, m" not in text
    assert "DeviceType::CPU" in text
    assert '"cpu"' in text


@pytest.mark.parametrize(
    ("line", "construct"),
    [
        ("#include <cublas_v2.h>", "cuBLAS"),
        ("#include <mma.h>", "tensor cores"),
        ("#include <cuda/barrier>", r"libcu\+\+"),
        ("cutlass::gemm::X g;", "CUTLASS"),
        ("__global__ void __cluster_dims__(2, 1, 1) k();", "clusters"),
        ("cudaGraphLaunch(g, s);", "CUDA graphs"),
        ("CUtensorMap m;", "TMA"),
        ("cub::DeviceReduce::Sum(a, b);", "cub device-wide"),
        ('asm("wgmma.fence.sync.aligned;");', "inline PTX"),
        (
            'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32 {%0}, {%1};" : "=f"(d) : "r"(a));',
            "PTX",
        ),
    ],
)
def test_needs_gpu(line, construct):
    with pytest.raises(NeedsGPU, match=construct) as caught:
        translate(f"int a;\n{line}\n")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "harmless", ["// cublasCreate(h)\n", 'const char* s = "thrust::sort";', "int cute = 1;"]
)
def test_words_alone_do_not_need_a_gpu(harmless):
    translate(harmless)


def test_unreadable_source_is_a_value_error():
    with pytest.raises(ValueError, match="line 1"):
        translate("k<<<1, 2>>>(x;")
