"""What Python code that says "cuda" sees after install(); and the limits. Prints JSON lines."""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["STEELYARD_SIMT_STUCK_S"] = "0.5"

import torch

from harness import simt

CPP = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void reverse(std::uintptr_t x, int n, int which, std::uintptr_t stream);
int fill(std::uintptr_t x, int bytes);
struct Scale {
  float by;
  int n;
};
__global__ void scale_kernel(Scale scale, float* x) {
  if (threadIdx.x < scale.n) x[threadIdx.x] *= scale.by;
}
int launch_braced(std::uintptr_t at) {
  scale_kernel<<<1, 64>>>({3, 60}, reinterpret_cast<float*>(at));
  return cudaGetLastError();
}
int launch_by_pointer(std::uintptr_t x);
int launch_braced(std::uintptr_t x);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("reverse", &reverse);
  m.def("fill", &fill);
  m.def("launch_by_pointer", &launch_by_pointer);
  m.def("launch_braced", &launch_braced);
}
"""
CUDA = r"""
#include <cstdint>
#include <cuda_runtime.h>
#include <cooperative_groups.h>

__global__ void reverse_kernel(float* x) {
  __shared__ float smem[256];
  float* mine = x + blockIdx.x * 256;
  smem[threadIdx.x] = mine[threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = smem[255 - threadIdx.x];
}
__global__ void wait_kernel(volatile float* x) {
  while (x[0] == 0) {
  }
}
__global__ void wild_kernel(float* x) { x[1ull << 40] = 1; }
__global__ void recurse_kernel(float* x, int n) {
  volatile char room[4096];
  room[n % 4096] = 1;
  if (n) recurse_kernel(x, n - 1);
  x[0] = room[0];
}
__global__ void grid_kernel(float* x) {
  x[1 + blockIdx.x] = 1;
  cooperative_groups::this_grid().sync();
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (int i = 0; i < gridDim.x; ++i) x[0] += x[1 + i];
}
__global__ void fill_kernel(float* x) {
  extern __shared__ float smem[];
  smem[threadIdx.x] = 7;
  x[threadIdx.x] = smem[threadIdx.x];
}

void reverse(std::uintptr_t at, int n, int which, std::uintptr_t stream) {
  auto* x = reinterpret_cast<float*>(at);
  auto s = reinterpret_cast<cudaStream_t>(stream);
  if (which == 0) reverse_kernel<<<n / 256, 256, 0, s>>>(x);
  if (which == 1) wait_kernel<<<1, 32>>>(x);
  if (which == 2) wild_kernel<<<1, 32>>>(x);
  if (which == 3) recurse_kernel<<<1, 32>>>(x, 100);
  if (which == 4) {
    void* arguments[] = {&x};
    cudaLaunchCooperativeKernel((void*)grid_kernel, dim3(64), dim3(32), arguments, 0, s);
  }
}
__global__ void __launch_bounds__(64) add_kernel(float* x, float y) { x[threadIdx.x] += y; }
template <typename T>
__global__ void grow_kernel(T* x, T by) {
  extern __shared__ float smem[];
  smem[threadIdx.x + 15000] = by;
  x[threadIdx.x] *= smem[threadIdx.x + 15000];
}
int launch_by_pointer(std::uintptr_t at) {
  auto* x = reinterpret_cast<float*>(at);
  float y = 2;
  void* arguments[] = {&x, &y};
  const void* kernels[] = {(const void*)add_kernel, reinterpret_cast<void*>(&grow_kernel<float>)};
  cudaFuncSetAttribute(kernels[1], cudaFuncAttributeMaxDynamicSharedMemorySize, 61000);
  for (const void* kernel : kernels)
    cudaLaunchKernel(kernel, 1, 64, arguments, 61000 * (kernel == kernels[1]), nullptr);
  if (cudaGetLastError()) return -1;
  const int unknown = cudaLaunchKernel(&y, 1, 64, arguments, 0, nullptr);
  return unknown == cudaErrorInvalidDeviceFunction && cudaGetLastError() == unknown ? 0 : -2;
}
int fill(std::uintptr_t at, int bytes) {
  if (bytes > 60000)
    cudaFuncSetAttribute(fill_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  fill_kernel<<<1, 32, bytes>>>(reinterpret_cast<float*>(at));
  return cudaGetLastError();
}
"""


def fault_of(call) -> dict:
    started = time.perf_counter()
    try:
        call()
    except simt.Fault as fault:
        seconds = time.perf_counter() - started
        return dict(kind=fault.kind, message=fault.message, line=fault.line, seconds=seconds)
    return {}


def needs_gpu_of(call) -> str:
    try:
        call()
    except simt.NeedsGPU as error:
        return error.construct
    return ""


def python_side() -> dict:
    x = torch.zeros(3, device="cuda")
    made = [torch.ones(2).cuda(), torch.ones(2).to("cuda:0"), torch.nn.Linear(2, 2).cuda().weight]
    torch.cuda.synchronize()
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    return dict(
        is_cuda=all(t.is_cuda for t in [x, *made]),
        available=torch.cuda.is_available(),
        major=torch.cuda.get_device_properties(0).major,
        capability=list(torch.cuda.get_device_capability()),
        stream=torch.cuda.current_stream().cuda_stream,
        graph=needs_gpu_of(torch.cuda.CUDAGraph),
    )


def kernels(module) -> dict:
    x = torch.arange(1 << 20, dtype=torch.float32)
    module.reverse(x.data_ptr(), 1 << 20, 0, torch.cuda.current_stream().cuda_stream)
    started = time.perf_counter()
    module.reverse(x.data_ptr(), 1 << 20, 0, 0)
    seconds = time.perf_counter() - started
    back = torch.equal(x, torch.arange(1 << 20, dtype=torch.float32))
    y = torch.zeros(128)
    seen = {n: fault_of(lambda w=w: module.reverse(y.zero_().data_ptr(), 1, w, 0))
            for n, w in (("spin", 1), ("wild", 2), ("overflow", 3))}  # fmt: skip
    module.reverse(y.zero_().data_ptr(), 1, 4, 0)
    grid = float(y[0])
    errors = [module.fill(y.data_ptr(), size) for size in (256, 50000, 100000, 300000)]
    x = torch.ones(64)
    braced = [module.launch_braced(x.data_ptr()), float(x.sum())]
    x = torch.arange(64.0)
    unknown = module.launch_by_pointer(x.data_ptr())
    pointers = [unknown, bool((x == (torch.arange(64.0) + 2) * 2).all())]
    return dict(
        pointers=pointers,
        braced=braced,
        back=back,
        million_threads_s=seconds,
        grid=grid,
        errors=errors,
        **seen,
    )


def main():
    simt.install()
    print(json.dumps(python_side()))
    from torch.utils.cpp_extension import load_inline

    module = load_inline("device", CPP, CUDA, functions=None, no_implicit_headers=True)
    print(json.dumps(kernels(module)))
    again = CUDA.replace("smem[256]", f"smem[{256 + os.getpid() % 1000}]")
    before = os.times().children_user
    load_inline("device", CPP, again, functions=None, no_implicit_headers=True)
    print(json.dumps(dict(build_cpu_s=os.times().children_user - before)))
    ptx = '__global__ void k() { asm("wgmma.x;"); }'
    print(json.dumps(dict(construct=needs_gpu_of(lambda: load_inline("ptx", "", ptx)))))


if __name__ == "__main__":
    main()
