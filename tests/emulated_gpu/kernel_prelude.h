// Comes before the source of each kernel: what NVIDIA's compiler knows without any header, and the headers of CuPy.
#pragma once
#include "on_cpu.h"

#include <cstddef>
#include <type_traits>
#include <utility>

#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

using std::isfinite;
using std::isinf;
using std::isnan;
using std::ptrdiff_t;
using std::signbit;

template <typename A, typename B>
auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
template <typename A, typename B>
auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }

inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

template <typename To, typename From>
To with_bits_of(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}
#define __CUDACC_VER_MAJOR__ 13
using half = __half;
inline unsigned short __half_as_ushort(half x) { return with_bits_of<unsigned short>(x); }
inline half __ushort_as_half(unsigned short x) { return with_bits_of<half>(x); }
struct __half_raw {
    unsigned short x;
    __half_raw() = default;
    __half_raw(half value) : x(__half_as_ushort(value)) {}
    operator half() const { return __ushort_as_half(x); }
};
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline bool __hisnan(__nv_bfloat16 x) { return std::isnan((float)x); }
inline bool __hisinf(__nv_bfloat16 x) { return std::isinf((float)x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return with_bits_of<__nv_bfloat16>(x); }

#include <cupy/carray.cuh>
#include <cupy/complex.cuh>
#include <cupy/float16.cuh>
#include <cupy/bfloat16.cuh>

#define NOT_CHECKED __attribute__((no_sanitize("kernel-address")))

template <auto kernel>
struct Call;

template <typename... A, void (*kernel)(A...)>
struct Call<kernel> {
    static constexpr size_t sizes[] = {sizeof(A)..., 0};

    template <size_t... I>
    NOT_CHECKED static void run(void** arguments, std::index_sequence<I...>) {
        kernel(*(std::remove_const_t<A>*)arguments[I]...);
    }

    NOT_CHECKED static void thread(void* arguments) { run((void**)arguments, std::index_sequence_for<A...>()); }

    static constexpr Kernel entry(int has_barriers, const char* name) {
        return {thread, has_barriers, sizeof...(A), sizes, name};
    }
};
