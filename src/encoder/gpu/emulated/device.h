// What kernels.cu needs of CUDA, on the CPU: threads of a block are threads, blocks come one after the other, and whatever
// is shared in a block is shared by these threads. A missing barrier is a data race here as it is there, so that the
// thread sanitizer finds it.
//
// Fragments: every lane has the whole of it, and stores its own part.

#pragma once

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))

struct half {
    _Float16 value;
};
struct half2 {
    half x, y;
};
struct float2 {
    float x, y;
};
inline float __half2float(half x) { return float(x.value); }
inline half __float2half_rn(float x) { return half{_Float16(x)}; }
inline float2 __half22float2(half2 x) { return float2{__half2float(x.x), __half2float(x.y)}; }
inline half2 __floats2half2_rn(float x, float y) { return half2{__float2half_rn(x), __float2half_rn(y)}; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

struct Index {
    unsigned x, y, z;
};
inline thread_local Index threadIdx, blockIdx;

namespace emulated {

constexpr int LANES = 32;

struct Warp {
    std::barrier<> barrier{LANES};
    float exchanged[LANES];
};

struct Block {
    explicit Block(int threads) : barrier(threads) {
        for (int warp = 0; warp < threads / LANES; warp++) warps.push_back(std::make_unique<Warp>());
    }
    std::barrier<> barrier;
    std::vector<std::unique_ptr<Warp>> warps;
};

inline thread_local Block *block;

inline Warp &warp() { return *block->warps[threadIdx.x / LANES]; }

// Runs a kernel over (x, y) blocks of so many threads.
template <typename Kernel> void launch(unsigned x, unsigned y, int threads, Kernel kernel) {
    Block shared(threads);
    std::vector<std::thread> all;
    for (int number = 0; number < threads; number++) {
        all.emplace_back([&, number] {
            block = &shared;
            threadIdx = Index{unsigned(number), 0, 0};
            for (unsigned at_y = 0; at_y < y; at_y++) {
                for (unsigned at_x = 0; at_x < x; at_x++) {
                    blockIdx = Index{at_x, at_y, 0};
                    kernel();
                    shared.barrier.arrive_and_wait();
                }
            }
        });
    }
    for (auto &thread : all) thread.join();
}

} // namespace emulated

inline void __syncthreads() { emulated::block->barrier.arrive_and_wait(); }
inline void __syncwarp() { emulated::warp().barrier.arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float x, int apart) {
    auto &warp = emulated::warp();
    const int lane = threadIdx.x % emulated::LANES;
    warp.exchanged[lane] = x;
    warp.barrier.arrive_and_wait();
    const float other = warp.exchanged[lane ^ apart];
    warp.barrier.arrive_and_wait();
    return other;
}

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename Number, typename Layout = row_major> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16);
    Number at[16][16];
};

template <typename Fragment, typename Number> void fill_fragment(Fragment &into, Number value) {
    for (auto &row : into.at)
        for (auto &x : row) x = value;
}

template <typename Use, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, half, Layout> &into, const half *from, unsigned stride) {
    // As the card wants it.
    if (reinterpret_cast<std::uintptr_t>(from) % 32 != 0 || stride % 8 != 0) std::abort();
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++)
            into.at[row][column] =
                std::is_same_v<Layout, row_major> ? from[row * stride + column] : from[column * stride + row];
}

template <typename Layout, typename Other>
void mma_sync(fragment<accumulator, 16, 16, 16, float> &into, const fragment<matrix_a, 16, 16, 16, half, Layout> &a,
              const fragment<matrix_b, 16, 16, 16, half, Other> &b, const fragment<accumulator, 16, 16, 16, float> &c) {
    float left[16][16], right[16][16];
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            left[row][column] = __half2float(a.at[row][column]);
            right[row][column] = __half2float(b.at[row][column]);
        }
    for (int row = 0; row < 16; row++) {
        float sums[16];
        for (int column = 0; column < 16; column++) sums[column] = c.at[row][column];
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 16; column++) sums[column] += left[row][k] * right[k][column];
        for (int column = 0; column < 16; column++) into.at[row][column] = sums[column];
    }
}

inline void store_matrix_sync(float *to, const fragment<accumulator, 16, 16, 16, float> &from, unsigned stride, layout_t) {
    if (reinterpret_cast<std::uintptr_t>(to) % 32 != 0 || stride % 4 != 0) std::abort();
    const int lane = threadIdx.x % emulated::LANES;
    for (int at = 0; at < 8; at++) {
        // Which lane has what, no program may know: here it is as far as can be from how kernels read it.
        const int element = at * emulated::LANES + lane * 5 % emulated::LANES;
        to[element / 16 * stride + element % 16] = from.at[element / 16][element % 16];
    }
}

} // namespace nvcuda::wmma
