"""The translator: text in, text out; no compiler."""

import pytest

from harness.simt.outcomes import NeedsGPU
from harness.simt.tokens import join, tokenize
from harness.simt.translate import Source, translate, unit


def code(text: str) -> str:
    return translate(Source(text, "k.cu")).code.split("\n", 1)[1].rstrip("\n")


def test_tokens_give_the_source_back():
    text = "int a = 1'000; // it's\nauto s = R\"x(\")x\"; char c = '\\''; /* <<< */ a <<= 2;\n"
    assert join(tokenize(text)) == text


def test_comments_and_strings_are_left_alone():
    text = '// k<<<1, 2>>>();\nconst char* s = "k<<<1, 2>>>() __shared__ asm(";'
    assert code(text) == text


@pytest.mark.parametrize(
    ("launch", "callee", "arguments"),
    [
        ("k<<<1, 2>>>(a, b);", "k", "a, b"),
        ("k<T, (3 > 2), f<1>(4)><<<1, 2>>>(a);", "k<T, (3 > 2), f<1>(4)>", "a"),
        ("ns::k<ns::T<int>><<<dim3(1, 2), 3, 0, s>>>(g(a, b));", "ns::k<ns::T<int>>", "g(a, b)"),
        ("::k<<<1, 2>>>();", "::k", ""),
        ("p->k[i]<<<1, 2>>>(a);", "p->k[i]", "a"),
        ("(*k)<<<1, 2>>>(a);", "(*k)", "a"),
        ("S<T>::template k<4> <<<1, 2>>> (NULL);", "S<T>::template k<4>", "nullptr"),
    ],
)
def test_launch(launch, callee, arguments):
    out = code(f"void f() {{ {launch} }}")
    assert "<<<" not in out
    assert f"{{ {callee}(simt_a...); }}" in out
    if arguments:
        assert out.endswith(f"}}, {arguments}); }}")


def test_launch_with_an_argument_in_braces_is_typed_by_the_kernel():
    out = code("void f() { ns::k<int><<<dim3(1, 2), 3>>>(g(a, b), {1}); }")
    assert out.endswith(", ns::k<int>, g(a, b), {1}); }")
    assert "::simt::launch_typed(::simt::Config(dim3(1, 2), 3)," in out


def test_launch_inside_a_macro_argument_keeps_its_parts():
    out = code('AT_DISPATCH_ALL_TYPES(x.type(), "k", ([&] { k<scalar_t><<<g, b>>>(p); }));')
    assert "x.scalar_type()" in out
    assert "::simt::Config(g, b)" in out


def test_lines_stay():
    text = "int a;\nvoid f() { k<<<1,\n 2>>>(\n a); }\n__shared__ float\n x[3];\nint last;"
    out = code(text)
    assert out.split("\n").index("int last;") == text.split("\n").index("int last;")


def test_static_shared_memory():
    out = code("__global__ void k() { __shared__ __align__(16) float a[4][5], b; }")
    assert "__shared__" not in out
    assert "struct simt_shared_1 { __align__(16) float a[4][5], b; };" in out
    assert "auto& a =" in out
    assert "auto& b =" in out


def test_static_shared_union_with_a_body():
    out = code("__global__ void k() { __shared__ union { int a; float b[2]; } u; u.a = 1; }")
    assert "struct simt_shared_1 { union { int a; float b[2]; } u; };" in out
    assert "auto& u =" in out
    assert out.endswith("u.a = 1; }")


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ float s[];",
        "extern __shared__ __align__(16) unsigned char s[];",
        "extern volatile __shared__ int s[];",
        "extern __shared__ float s[][33];",
    ],
)
def test_dynamic_shared_memory(declaration):
    out = code(f"__global__ void k() {{ {declaration} }}")
    assert "auto* const s = reinterpret_cast<" in out
    assert "dynamic_storage()" in out


def test_dynamic_shared_memory_outside_a_function():
    assert "static ::simt::DynamicShared<float> s;" in code("extern __shared__ float s[];")


def test_cuda_becomes_the_cpu_in_host_code():
    out = code(
        "TORCH_CHECK(x.is_cuda()); TORCH_CHECK(x.type().is_cuda()); auto d = torch::kCUDA;\n"
        "auto e = c10::DeviceType::CUDA; STABLE_TORCH_LIBRARY_IMPL(ns, CUDA, m) {}"
    )
    assert "CUDA, m" not in out
    assert out.count("x.is_cpu()") == 2
    assert "torch::kCPU" in out
    assert "DeviceType::CPU" in out


def test_function_attributes_carry_the_kernel_name():
    out = code("void f() { cudaFuncSetAttribute((void*)k<float>, A, 3); }")
    assert 'simt_set_attribute("k", k<float>, A, 3)' in out


@pytest.mark.parametrize(
    ("cast", "handle"),
    [
        ("(void*)k", '(void*)::simt::handle("k", k)'),
        ("(const void *)&k", '(const void *)::simt::handle("k", &k)'),
        ("reinterpret_cast<void*>(t<int>)", 'reinterpret_cast<void*>(::simt::handle("t", t<int>))'),
        ("(void*)other", "(void*)other"),
        ("(float*)k", "(float*)k"),
    ],
)
def test_a_kernel_cast_to_void_is_entered_in_the_table(cast, handle):
    kernels = (
        "__global__ void __launch_bounds__(64, 2) k(int* x) {}\n"
        "template <class T> __global__ void t(T* x) {}\n"
    )
    assert f"p = {handle};" in code(f"{kernels}void f() {{ const void* p = {cast}; }}")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ('\n__device__ void f() { asm volatile("wgmma.fence;"); }', "inline PTX"),
        ("\nusing L = cub::BlockLoad<int, 32, 4>;", "cub::BlockLoad"),
        ("\nthrust::device_ptr<float> p;", "Thrust"),
        ("\nauto h = at::cuda::getCurrentCUDABlasHandle();", "cuBLAS"),
        ("\nvoid f() { cublasSgemm(h); }", "cuBLAS"),
        ("\nusing namespace cute; auto x = cute::make_tensor(a);", "CuTe"),
        ("\ncuda::barrier<cuda::thread_scope_block> b;", "cuda::barrier"),
        ("\n__global__ void __cluster_dims__(2) k() {}", "thread block cluster"),
        ("\nvoid f() { cudaGraphLaunch(g, s); }", "CUDA graph"),
        ("\nusing namespace nvcuda; wmma::fragment<int> f;", "tensor-core fragments (wmma)"),
    ],
)
def test_what_needs_a_gpu_is_named_with_its_line(text, construct):
    with pytest.raises(NeedsGPU) as caught:
        translate(Source(text, "k.cu", line=10))
    assert caught.value.construct == construct
    assert caught.value.line == 11


def test_a_library_header_alone_is_no_use_of_the_library():
    out = code("#include <cublas_v2.h>\n#include <mma.h>\n#include <thrust/sort.h>\nint a;")
    assert out == "\n\n\nint a;"


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("<cub/block/block_reduce.cuh>", "<simt/cub.h>"),
        ("<cuda/std/limits>", "<simt/cuda_std.h>"),
        ("<cuda/atomic>", "<simt/cuda_atomic.h>"),
        ("<ATen/cuda/detail/TensorInfo.cuh>", "<simt/torch_cuda.h>"),
        ('"mine.h"', '"mine.h"'),
    ],
)
def test_headers_have_stand_ins(header, ours):
    assert code(f"#include {header}\nint a;") == f"#include {ours}\nint a;"


def test_launch_with_attributes_carries_the_kernel_name():
    out = code("void f() { cudaLaunchKernelEx(&c, k<float, 4>, a, g(b)); }")
    assert 'simt_launch_kernel_ex(::simt::Kernel{"k", ' in out
    assert "}, &c,k<float, 4>, a, g(b));" in out


def test_common_ptx_has_a_meaning():
    out = code('__device__ void f() { asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); }')
    assert "(lane) = simt_lane" in out


def test_bindings():
    made = unit([Source("int f();", "k.cpp")], {"f": "doc"}, "#include <x.h>").code
    assert 'm.def("f", SIMT_BIND(f), "doc");' in made
