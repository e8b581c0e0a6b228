// Kernels of the packed graph: what cuBLASLt has no product for.
//
// Texts lie end to end in a slot, a row a token, without padding. Everything is f16 in memory and f32 in sums. What a row
// becomes depends on the rows of its own text alone, in an order that its own text gives: neighbours change no bit of it.
//
// The same file is built by a C++ compiler, with emulated/device.h in place of CUDA's headers, and held against f64.

#ifdef NIGHTMILL_EMULATED
#include "emulated/device.h"
#else
#include <cuda_fp16.h>
#include <mma.h>
#endif

namespace {

constexpr int WARP = 32;
constexpr int WARPS = 4; // of a block, in every kernel
constexpr int TILE = 16; // queries, keys and columns that a warp multiplies at once
constexpr float OUT_OF_SIGHT = -1e30f;

// What a slot holds, as `Slot` in slot.rs lays it out. All in numbers of 32 bits.
struct Slot {
    const unsigned *tokens; // how many tokens, texts and tiles there are
    const unsigned *ids;    // (capacity) of tokens
    const unsigned *places; // (capacity) of tokens within their texts, from 0
    const unsigned *starts; // (texts + 1) first tokens of texts
    const unsigned *tiles;  // (tiles, 2) a text, and the place of the first of 16 queries in it
};

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

__device__ __forceinline__ float2 pair(const half *row, int at) {
    return __half22float2(reinterpret_cast<const half2 *>(row)[at]);
}

__device__ __forceinline__ void put_pair(half *row, int at, float x, float y) {
    reinterpret_cast<half2 *>(row)[at] = __floats2half2_rn(x, y);
}

// Brings a row of f32 values, of which each lane holds pairs, to mean 0 and variance 1 or to mean square 1. `value(at)` gives
// pair `at`, as often as it is asked.
template <typename Value>
__device__ __forceinline__ void norm_row(Value value, int pairs, int root, float epsilon, const half *gain, const half *bias,
                                         half *out) {
    const int lane = threadIdx.x % WARP;
    const float width = 2.0f * pairs;
    float mean = 0.0f;
    if (!root) {
        float sum = 0.0f;
        for (int at = lane; at < pairs; at += WARP) {
            const float2 x = value(at);
            sum += x.x + x.y;
        }
        mean = sum_of_warp(sum) / width;
    }
    float squares = 0.0f;
    for (int at = lane; at < pairs; at += WARP) {
        const float2 x = value(at);
        const float a = x.x - mean, b = x.y - mean;
        squares += a * a + b * b;
    }
    const float scale = rsqrtf(sum_of_warp(squares) / width + epsilon);
    for (int at = lane; at < pairs; at += WARP) {
        const float2 x = value(at), by = pair(gain, at);
        float a = (x.x - mean) * scale * by.x, b = (x.y - mean) * scale * by.y;
        if (bias != nullptr) {
            const float2 more = pair(bias, at);
            a += more.x;
            b += more.y;
        }
        put_pair(out, at, a, b);
    }
}

__device__ __forceinline__ unsigned row_of_warp() { return blockIdx.x * WARPS + threadIdx.x / WARP; }

enum Activation { NONE = 0, GELU = 1, GELU_TANH = 2, RELU = 3, SILU = 4, TANH = 5 };

__device__ __forceinline__ float activated(float x, int activation) {
    switch (activation) {
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case RELU: return x < 0.0f ? 0.0f : x;
    case SILU: return x / (1.0f + expf(-x));
    // Of what is no finite number none is made.
    case TANH: return x - x == 0.0f ? tanhf(x) : x - x;
    default: return x;
    }
}

// Which keys of a text a query sees: `mask` is -1 for all, -2 for those up to itself, else how far away they may be.
__device__ __forceinline__ bool sees(int query, int key, int tokens, int mask) {
    if (key >= tokens) return false;
    if (mask == -1) return true;
    if (mask == -2) return key <= query;
    return key + mask >= query && key <= query + mask;
}

// What a score weighs, beside the largest one. One that is no number stays none: whoever reads the vector must learn of it.
__device__ __forceinline__ float weight_of(float score, float largest) {
    return score == OUT_OF_SIGHT ? 0.0f : expf(score - largest);
}

} // namespace

// Rows of words, plus those of places, with a norm over both. A warp a token.
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    embed_tokens(Slot slot, const half *words, const half *places, const half *gain, const half *bias, int hidden, int root,
          float epsilon, half *out) {
    const unsigned row = row_of_warp();
    if (row >= slot.tokens[0]) return;
    const half *word = words + size_t(slot.ids[row]) * hidden;
    const half *place = places == nullptr ? nullptr : places + size_t(slot.places[row]) * hidden;
    half *to = out + size_t(row) * hidden;
    const auto value = [=](int at) {
        float2 x = pair(word, at);
        if (place != nullptr) {
            const float2 more = pair(place, at);
            x.x += more.x;
            x.y += more.y;
        }
        return x;
    };
    if (gain != nullptr) {
        norm_row(value, hidden / 2, root, epsilon, gain, bias, to);
        return;
    }
    for (int at = threadIdx.x % WARP; at < hidden / 2; at += WARP) {
        const float2 x = value(at);
        put_pair(to, at, x.x, x.y);
    }
}

// Norms of rows; `out` may be `in`. A warp a token.
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    norm_rows(Slot slot, const half *in, const half *gain, const half *bias, int hidden, int root, float epsilon, half *out) {
    const unsigned row = row_of_warp();
    if (row >= slot.tokens[0]) return;
    const half *from = in + size_t(row) * hidden;
    norm_row([=](int at) { return pair(from, at); }, hidden / 2, root, epsilon, gain, bias, out + size_t(row) * hidden);
}

// Norms over the heads of queries and of keys, where a model has gains for them, and turns by places. In place; a warp a head
// of a token. Gains are of one head each; cosines and sines are (positions, size / 2).
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    turn_heads(Slot slot, half *rows, const half *query_gain, const half *key_gain, float epsilon, const float *cosines,
         const float *sines, int heads, int key_heads, int size) {
    const unsigned number = row_of_warp();
    const unsigned both = heads + key_heads, row = number / both, head = number % both;
    if (row >= slot.tokens[0]) return;
    half *at_head = rows + size_t(row) * (heads + 2 * key_heads) * size + head * size;
    const half *gain = int(head) < heads ? query_gain : key_gain;
    const int lane = threadIdx.x % WARP, halves = size / 2;
    // Heads of up to 128 components: a lane holds up to two of each half.
    float low[2], high[2], squares = 0.0f;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const int at = lane + part * WARP;
        low[part] = at < halves ? __half2float(at_head[at]) : 0.0f;
        high[part] = at < halves ? __half2float(at_head[at + halves]) : 0.0f;
        squares += low[part] * low[part] + high[part] * high[part];
    }
    const float scale = gain == nullptr ? 1.0f : rsqrtf(sum_of_warp(squares) / size + epsilon);
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const int at = lane + part * WARP;
        if (at >= halves) continue;
        float x = low[part], y = high[part];
        if (gain != nullptr) {
            x *= scale * __half2float(gain[at]);
            y *= scale * __half2float(gain[at + halves]);
        }
        if (cosines != nullptr) {
            const size_t angle = size_t(slot.places[row]) * halves + at;
            const float cosine = cosines[angle], sine = sines[angle];
            const float turned = x * cosine - y * sine;
            y = y * cosine + x * sine;
            x = turned;
        }
        at_head[at] = __float2half_rn(x);
        at_head[at + halves] = __float2half_rn(y);
    }
}

namespace {

// Attention of 16 queries of one text and head by one warp (Vaswani et al. 2017, arXiv:1706.03762). Keys come in tiles of 16
// from the beginning of their text. A first pass finds the largest score and the sum of each row, a second one multiplies
// weights and values: so sums in fragments are never scaled again, and need no order of their own.
template <int SIZE>
__device__ __forceinline__ void attend_tile(const Slot &slot, const half *rows, const float *offsets, int positions, int heads,
                                            int key_heads, int mask, half *out) {
    using namespace nvcuda;
    constexpr int PARTS = SIZE / TILE;
    __shared__ __align__(32) float all_scores[WARPS][TILE * TILE];
    __shared__ __align__(32) half all_weights[WARPS][TILE * TILE];
    __shared__ __align__(32) half all_values[WARPS][TILE * SIZE];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const unsigned number = row_of_warp();
    // A whole warp goes or stays.
    if (number >= slot.tokens[2]) return;
    float *scores = all_scores[warp];
    half *weights = all_weights[warp], *values = all_values[warp];
    const unsigned text = slot.tiles[2 * number];
    const int first = slot.tiles[2 * number + 1];
    const size_t start = slot.starts[text];
    const int tokens = slot.starts[text + 1] - slot.starts[text];
    const int head = blockIdx.y, key_head = head / (heads / key_heads);
    const int stride = (heads + 2 * key_heads) * SIZE;
    const half *queries = rows + (start + first) * stride + head * SIZE;
    const half *keys = rows + start * stride + (heads + key_head) * SIZE;
    const half *from_values = keys + key_heads * SIZE;
    const float scale = rsqrtf(float(SIZE));
    const float *offset = offsets == nullptr ? nullptr : offsets + size_t(head) * (2 * positions - 1) + positions - 1;
    int from = 0, to = tokens;
    if (mask == -2) to = min(tokens, first + TILE);
    if (mask >= 0) {
        from = max(0, first - mask) / TILE * TILE;
        to = min(tokens, first + TILE + mask);
    }

    // Rows behind the last one of a slot are there to be read, and are not used.
    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> query[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; part++) wmma::load_matrix_sync(query[part], queries + part * TILE, stride);

    // Two lanes have a row, eight keys each.
    const int row = lane / 2, column = lane % 2 * (TILE / 2);
    const auto score_tile = [&](int tile) {
        wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> sums;
        wmma::fill_fragment(sums, 0.0f);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::col_major> key;
            wmma::load_matrix_sync(key, keys + size_t(tile) * stride + part * TILE, stride);
            wmma::mma_sync(sums, query[part], key, sums);
        }
        __syncwarp();
        wmma::store_matrix_sync(scores, sums, TILE, wmma::mem_row_major);
        __syncwarp();
    };
    const auto score = [&](int tile, int at) {
        const int at_query = first + row, at_key = tile + column + at;
        // Behind the last query nothing is read: there may be no offsets for it.
        if (at_query >= tokens || !sees(at_query, at_key, tokens, mask)) return OUT_OF_SIGHT;
        const float x = scores[row * TILE + column + at] * scale;
        // A score without bounds would weigh nothing, or all: it becomes no number, and is seen.
        if (x - x != 0.0f) return x - x;
        return offset == nullptr ? x : x + offset[at_key - at_query];
    };

    float largest = OUT_OF_SIGHT, sum = 0.0f;
    for (int tile = from; tile < to; tile += TILE) {
        score_tile(tile);
        float of_tile = largest;
#pragma unroll
        for (int at = 0; at < TILE / 2; at++) of_tile = fmaxf(of_tile, score(tile, at));
        if (of_tile > OUT_OF_SIGHT) {
            sum *= expf(largest - of_tile);
#pragma unroll
            for (int at = 0; at < TILE / 2; at++) {
                const float x = score(tile, at);
                sum += weight_of(x, of_tile);
            }
            largest = of_tile;
        }
    }
    const float of_both = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    sum = largest > OUT_OF_SIGHT ? sum * expf(largest - of_both) : 0.0f;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);

    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> context[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; part++) wmma::fill_fragment(context[part], 0.0f);
    for (int tile = from; tile < to; tile += TILE) {
        score_tile(tile);
#pragma unroll
        for (int at = 0; at < TILE / 2; at++) {
            const float x = score(tile, at);
            weights[row * TILE + column + at] = __float2half_rn(weight_of(x, of_both));
        }
        // A weight of 0 makes no 0 of what is no number: rows of other texts must not be multiplied at all.
        const bool whole = tile + TILE <= tokens;
        if (!whole) {
            for (int at = lane; at < TILE * SIZE; at += WARP) {
                const int key = tile + at / SIZE;
                values[at] = key < tokens ? from_values[size_t(key) * stride + at % SIZE] : __float2half_rn(0.0f);
            }
        }
        __syncwarp();
        wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> weight;
        wmma::load_matrix_sync(weight, weights, TILE);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::row_major> value;
            if (whole)
                wmma::load_matrix_sync(value, from_values + size_t(tile) * stride + part * TILE, stride);
            else
                wmma::load_matrix_sync(value, values + part * TILE, SIZE);
            wmma::mma_sync(context[part], weight, value, context[part]);
        }
    }

    half *to_row = out + (start + first + row) * size_t(heads * SIZE) + head * SIZE + column;
    const float share = 1.0f / sum;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        __syncwarp();
        wmma::store_matrix_sync(scores, context[part], TILE, wmma::mem_row_major);
        __syncwarp();
        if (first + row >= tokens) continue;
#pragma unroll
        for (int at = 0; at < TILE / 2; at += 2) {
            const float *x = scores + row * TILE + column + at;
            put_pair(to_row + part * TILE, at / 2, x[0] * share, x[1] * share);
        }
    }
}

} // namespace

// Attention over rows of queries, keys and values side by side. A warp for 16 queries of a text, a block's y a head. As many
// blocks at once as registers allow without spilling.
constexpr int blocks_at_once(int size) { return size == 32 ? 7 : size == 64 ? 4 : 2; }
#define ATTEND(SIZE)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(WARP *WARPS, blocks_at_once(SIZE))                                           \
        attend_##SIZE(Slot slot, const half *rows, const float *offsets, int positions, int heads, int key_heads, int mask,   \
                      half *out) {                                                                                            \
        attend_tile<SIZE>(slot, rows, offsets, positions, heads, key_heads, mask, out);                                       \
    }
ATTEND(32)
ATTEND(64)
ATTEND(128)

// Between the feed-forward layers, where no product does it: activated halves times the others if `gated`, else activated
// rows. `out` may be `in` where it is not gated. A warp a token.
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    activate_rows(Slot slot, const half *in, int width, int activation, int gated, half *out) {
    const unsigned row = row_of_warp();
    if (row >= slot.tokens[0]) return;
    const half *from = in + size_t(row) * width * (gated ? 2 : 1);
    half *to = out + size_t(row) * width;
    for (int at = threadIdx.x % WARP; at < width / 2; at += WARP) {
        float2 x = pair(from, at);
        x.x = activated(x.x, activation);
        x.y = activated(x.y, activation);
        if (gated) {
            const float2 by = pair(from + width, at);
            x.x *= by.x;
            x.y *= by.y;
        }
        put_pair(to, at, x.x, x.y);
    }
}

enum Pooling { MEAN = 0, CLS = 1, MAX = 2, MEAN_SQRT_LEN = 3, WEIGHTED_MEAN = 4, LAST_TOKEN = 5 };

// Texts' rows as one each, and the first `keep` components of it brought to length 1 if `normalise`. A block a text; `out`
// has `keep` columns, or `narrow` has, where layers follow. The first `pool_from` tokens have no part in it, unless a text
// has no others.
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    pool_texts(Slot slot, const half *rows, int hidden, int pooling, int pool_from, int keep, int normalise, float *out,
         half *narrow) {
    const unsigned text = blockIdx.x;
    if (text >= slot.tokens[1]) return;
    const int tokens = slot.starts[text + 1] - slot.starts[text];
    const int before = tokens > pool_from ? pool_from : 0, count = tokens - before;
    const half *from = rows + size_t(slot.starts[text]) * hidden;
    float *to = out == nullptr ? nullptr : out + size_t(text) * keep;
    float squares = 0.0f;
    for (int at = threadIdx.x; at < keep; at += WARP * WARPS) {
        float x = 0.0f;
        if (pooling == CLS) {
            x = __half2float(from[size_t(before) * hidden + at]);
        } else if (pooling == LAST_TOKEN) {
            x = __half2float(from[size_t(tokens - 1) * hidden + at]);
        } else if (pooling == MAX) {
            x = __half2float(from[size_t(before) * hidden + at]);
            for (int token = before + 1; token < tokens; token++) {
                const float y = __half2float(from[size_t(token) * hidden + at]);
                // What is no number stays none.
                x = (y > x || y != y) && x == x ? y : x;
            }
        } else {
            for (int token = before; token < tokens; token++) {
                const float weight = pooling == WEIGHTED_MEAN ? float(token + 1) : 1.0f;
                x += weight * __half2float(from[size_t(token) * hidden + at]);
            }
            if (pooling == MEAN) x /= float(count);
            if (pooling == MEAN_SQRT_LEN) x /= sqrtf(float(count));
            if (pooling == WEIGHTED_MEAN) x /= float(count) * before + 0.5f * count * (count + 1);
        }
        if (to != nullptr) to[at] = x;
        else narrow[size_t(text) * keep + at] = __float2half_rn(x);
        squares += x * x;
    }
    if (!normalise || to == nullptr) return;
    __shared__ float of_warps[WARPS];
    squares = sum_of_warp(squares);
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = squares;
    __syncthreads();
    float all = 0.0f;
    for (int warp = 0; warp < WARPS; warp++) all += of_warps[warp];
    const float length = fmaxf(sqrtf(all), 1e-12f);
    for (int at = threadIdx.x; at < keep; at += WARP * WARPS) to[at] /= length;
}
