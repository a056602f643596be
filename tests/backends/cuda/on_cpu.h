// What CUDA C needs on a CPU, for the tests of kernels.cu. on_cpu.cpp runs the threads.
#pragma once
#define ON_CPU
#define __global__
#define __device__
#define __noinline__
#define __shared__ static __attribute__((aligned(1 << 16)))  // with gaps, so that no array ends where another begins
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

using std::min;

typedef _Float16 __half;

// The upper half of a float, rounded to nearest, ties to even.
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) {
        uint32_t all;
        memcpy(&all, &value, 4);
        bool is_nan = (all & 0x7fffffff) > 0x7f800000;
        bits = (uint16_t)(is_nan ? all >> 16 | 0x40 : (all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    operator float() const {
        uint32_t all = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &all, 4);
        return value;
    }
};

struct Index { int x, y, z; };
extern Index threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void __syncwarp();
float __shfl_xor_sync(unsigned mask, float value, int far);
unsigned __shfl_sync(unsigned mask, unsigned value, int lane);

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

inline float rsqrtf(float x) { return 1 / sqrtf(x); }

struct Kernel {  // what the emulated GPU knows of it
    void (*thread)(void*);
    int has_barriers, n_arguments;
    const size_t* sizes;  // of the arguments
    const char* name;
};

// Run thread(arguments) for each thread of each block. barriers: whether the threads wait for each other.
void launch(const int* grid, const int* block, bool forward, bool barriers, void (*thread)(void*), void* arguments);

extern const char *stack_begin, *stack_end;  // where the running thread has its local variables

extern int current;  // the number of the running thread in its block
extern long epoch;  // begins anew with each block and each __syncthreads

// Shared variables of the running block. A thread begins to use each with `share`, a call that kernels_on_cpu.py inserts.
// They begin as NaN or -1, since a GPU leaves there what it finds.
void share(void* variable, size_t size);

template <typename T>
void share(T& variable) { share(&variable, sizeof variable); }

// The size of the shared variable at this address or before it, and the place of the address in it. False if none is near.
bool find_shared(const void* address, long* size, long* offset);

const long MOST_THREADS = 1024, MOST_BLOCKS = 65535, MOST_SHARED_BYTES = 48 << 10;  // MOST_BLOCKS: along y and z

// What to do if the threads wait for something that cannot happen. Must not return.
void fail(const char* why);
