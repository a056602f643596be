// The operations of nn/ops.py as CUDA kernels. Each passes over memory once or twice, where the reference passes more often.
//
// T is the type of activations and weights: float, __half or __nv_bfloat16. Arithmetic is always in float; gradients of
// weights and Adam's moments are float. Sums have a fixed order and no operation is atomic, so two runs give the same
// bits.
//
// A warp is 32 threads that can read each other's registers (__shfl_sync). Where a warp works on a row, threadIdx.x is
// the lane, the thread's number within the warp, and threadIdx.y is the warp's number within the block. Neighbouring
// lanes read neighbouring numbers, so that their memory accesses are combined.
//
// Each kernel has the name of its operation. Arguments without a comment have the same meaning as there.

#ifndef ON_CPU  // tests compile this file for the CPU with their own definitions
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

typedef unsigned long long u64;
typedef long long i64;

constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;  // mask of participating lanes
constexpr float NOTHING = -3.4e38f;  // below every score

template <typename T> __device__ float get(const T* p, i64 i) { return (float)p[i]; }
template <typename T> __device__ void put(T* p, i64 i, float value) { p[i] = (T)value; }

// Sum and maximum over the lanes of a warp; every lane gets the result.
__device__ float warp_sum(float value) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    return value;
}

__device__ float warp_max(float value) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(ALL, value, offset));
    return value;
}

// Dropout: the bits of nn/dropout.py, drawn again wherever they are needed --------------------------------------------

// Philox4x64-10. Word w of block b has 16 bits for each of the units 16 b + 4 w to 16 b + 4 w + 3, as in NumPy.
__device__ void philox(u64 block, u64 seed, u64 step, u64 shard, u64 site, u64* words) {
    u64 c0 = block + 1, c1 = step, c2 = shard, c3 = 0, k0 = seed, k1 = site;
    for (int round = 0; round < 10; round++) {
        u64 high0 = __umul64hi(0xD2E7470EE14C6C93ull, c0), low0 = 0xD2E7470EE14C6C93ull * c0;
        u64 high1 = __umul64hi(0xCA5A826395121157ull, c2), low1 = 0xCA5A826395121157ull * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

__device__ bool is_kept(const u64* words, int unit, int threshold) {
    return (int)(words[unit / 4] >> unit % 4 * 16 & 0xffff) >= threshold;
}

constexpr int DROPOUT_CHUNK = 16 * WARP;  // units that a warp draws for at a time, 16 for each lane

// The mask for DROPOUT_CHUNK units from `first` on. factor(k) is the factor for unit first + 32 k + lane: `scale` if it
// is kept, otherwise 0. With a threshold of 0 nothing is drawn and all factors are 1.
struct Dropout {
    int threshold;
    float scale;
    u64 seed, step, shard, site;
    i64 first;
    unsigned kept;  // a bit for each of the units first + 16 lane to first + 16 lane + 15

    __device__ void draw(i64 from) {
        first = from;
        if (threshold == 0 || first % 16) return;
        u64 words[4];
        philox(first / 16 + threadIdx.x, seed, step, shard, site, words);
        kept = 0;
        for (int unit = 0; unit < 16; unit++) kept |= (unsigned)is_kept(words, unit, threshold) << unit;
    }

    __device__ float factor(int k) const {
        if (threshold == 0) return 1;
        int lane = threadIdx.x;
        if (first % 16 == 0) return __shfl_sync(ALL, kept, 2 * k + lane / 16) >> lane % 16 & 1 ? scale : 0;
        return draw_one(first + k * WARP + lane);  // first is not a multiple of 16: each lane draws its own unit
    }

    __device__ __noinline__ float draw_one(i64 unit) const {
        u64 words[4];
        philox(unit / 16, seed, step, shard, site, words);
        return is_kept(words, unit % 16, threshold) ? scale : 0;
    }
};

#define DROPOUT int threshold, float keep_scale, u64 seed, u64 step, u64 shard, u64 site
#define DRAWING {threshold, keep_scale, seed, step, shard, site, 0, 0}

// One warp for each DROPOUT_CHUNK of the n units.
template <typename T>
__global__ void dropout(const T* x, T* y, i64 n, DROPOUT) {
    i64 first = ((i64)blockIdx.x * blockDim.y + threadIdx.y) * DROPOUT_CHUNK;
    Dropout drop = DRAWING;
    drop.draw(first);
    for (int k = 0; k < 16; k++) {
        i64 i = first + k * WARP + threadIdx.x;
        float factor = drop.factor(k);  // all lanes must call this
        if (i < n) put(y, i, get(x, i) * factor);
    }
}

// Residual and normalisation: one warp for each row. A lane holds STEPS numbers in registers, in the columns lane,
// lane + 32, ... STEPS is a multiple of 16, and 32 STEPS is at least D. Loops over the steps are unrolled, because only
// then each array element can be a register.
#define EACH_STEP _Pragma("unroll") for (int s = 0; s < STEPS; s++)

// y = gamma n + beta, n = (z - mean(z)) / sqrt(variance(z) + eps), z = x + dropout(update). Without an update, z = x.
template <typename T, int STEPS>
__global__ void add_norm(const T* x, const T* update, const T* gamma, const T* beta, T* y, T* normalized,
                         float* inverse_std, int rows, int D, float eps, DROPOUT) {
    i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y, begin = row * D;
    if (row >= rows) return;  // for the whole warp
    Dropout drop = DRAWING;
    float z[STEPS], sum = 0, squares = 0;
    EACH_STEP {
        int c = s * WARP + threadIdx.x;
        if (s % 16 == 0) drop.draw(begin + s * WARP);
        float factor = drop.factor(s % 16);  // all lanes must call this
        z[s] = c < D ? get(x, begin + c) + (update ? get(update, begin + c) * factor : 0) : 0;
        sum += z[s];
    }
    float mean = warp_sum(sum) / D;
    EACH_STEP {
        z[s] = s * WARP + threadIdx.x < D ? z[s] - mean : 0;
        squares += z[s] * z[s];
    }
    float factor = rsqrtf(warp_sum(squares) / D + eps);
    EACH_STEP {
        int c = s * WARP + threadIdx.x;
        if (c < D) {
            put(normalized, begin + c, z[s] * factor);
            put(y, begin + c, z[s] * factor * get(gamma, c) + get(beta, c));
        }
    }
    if (threadIdx.x == 0) inverse_std[row] = factor;
}

// Warp w works on rows w, w + warps, ... and writes its partial sums of dgamma and dbeta to row w of partial_sums
// (warps, 2 D). add_partial_sums adds them up afterwards. dupdate may be null.
template <typename T, int STEPS>
__global__ void add_norm_backward(const T* dy, const T* normalized, const float* inverse_std, const T* gamma, T* dx,
                                  T* dupdate, float* partial_sums, int rows, int D, int warps, DROPOUT) {
    i64 warp = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (warp >= warps) return;
    Dropout drop = DRAWING;
    float dgamma[STEPS] = {}, dbeta[STEPS] = {};
    for (i64 row = warp; row < rows; row += warps) {
        i64 begin = row * D;
        float sum = 0, along = 0;
        EACH_STEP {
            int c = s * WARP + threadIdx.x;
            if (c >= D) continue;
            float d = get(dy, begin + c), n = get(normalized, begin + c), dn = d * get(gamma, c);
            dgamma[s] += d * n;
            dbeta[s] += d;
            sum += dn;
            along += dn * n;
        }
        float mean = warp_sum(sum) / D, mean_along = warp_sum(along) / D, factor = inverse_std[row];
        EACH_STEP {  // the row is read again, from the cache: registers for it would be too many
            int c = s * WARP + threadIdx.x;
            if (s % 16 == 0) drop.draw(begin + s * WARP);
            float kept = drop.factor(s % 16);  // all lanes must call this
            if (c >= D) continue;
            float dn = get(dy, begin + c) * get(gamma, c);
            float d = (dn - mean - get(normalized, begin + c) * mean_along) * factor;
            put(dx, begin + c, d);
            if (dupdate) put(dupdate, begin + c, d * kept);
        }
    }
    EACH_STEP {
        int c = s * WARP + threadIdx.x;
        if (c < D) {
            partial_sums[warp * 2 * D + c] = dgamma[s];
            partial_sums[(warp * 2 + 1) * D + c] = dbeta[s];
        }
    }
}

// dgamma and dbeta += the rows of partial_sums (rows, 2 D). A block adds up 32 columns; its warps share the rows.
__global__ void add_partial_sums(const float* partial_sums, float* dgamma, float* dbeta, int rows, int D) {
    __shared__ float part_of[WARP][WARP];  // [warp][column]
    int column = blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    if (column < 2 * D)
        for (int row = threadIdx.y; row < rows; row += blockDim.y) sum += partial_sums[(i64)row * 2 * D + column];
    part_of[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= 2 * D) return;
    for (int w = 1; w < blockDim.y; w++) sum += part_of[w][threadIdx.x];
    (column < D ? dgamma : dbeta)[column % D] += sum;
}

// Linear, ReLU and GELU -----------------------------------------------------------------------------------------------

// One thread for each column of y; blockIdx.y is the first row.
template <typename T>
__global__ void add_to_rows_inplace(T* y, const T* b, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y)
        put(y, row * columns + column, get(y, row * columns + column) + get(b, column));
}

template <typename T>
__global__ void relu_backward(const T* dy, const T* y, T* dx, i64 n) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(dx, i, get(y, i) > 0 ? get(dy, i) : 0);
}

constexpr float GELU_SLOPE = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

template <typename T>
__global__ void gelu(const T* x, T* y, i64 n) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float at = get(x, i), t = tanhf(GELU_SLOPE * (at + GELU_CUBIC * at * at * at));
    put(y, i, 0.5f * at * (1 + t));
}

template <typename T>
__global__ void gelu_backward(const T* dy, const T* x, T* dx, i64 n) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float at = get(x, i), t = tanhf(GELU_SLOPE * (at + GELU_CUBIC * at * at * at));
    float slope = GELU_SLOPE * (1 + 3 * GELU_CUBIC * at * at);
    put(dx, i, get(dy, i) * 0.5f * (1 + t + at * (1 - t * t) * slope));
}

// Attention -----------------------------------------------------------------------------------------------------------

// How many keys a query may attend to: always the first ones.
__device__ int keys_seen(int query, int queries, int keys, int length, int causal) {
    return causal ? min(length, keys - queries + query + 1) : length;
}

// One warp for each row of scores, those of one query. A sentence has heads_and_queries rows.

template <typename T>
__global__ void masked_softmax(const T* scores, T* weights, const int* key_lengths, int rows, int heads_and_queries,
                               int queries, int keys, float scale, int causal) {
    i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    int length = key_lengths ? key_lengths[row / heads_and_queries] : keys;
    int seen = keys_seen((int)(row % queries), queries, keys, length, causal);
    float highest = NOTHING, sum = 0;
    for (int key = threadIdx.x; key < seen; key += WARP) highest = fmaxf(highest, get(scores, row * keys + key) * scale);
    highest = warp_max(highest);
    for (int key = threadIdx.x; key < seen; key += WARP) sum += expf(get(scores, row * keys + key) * scale - highest);
    sum = warp_sum(sum);
    for (int key = threadIdx.x; key < keys; key += WARP)
        put(weights, row * keys + key,
            key < seen && sum != 0 ? expf(get(scores, row * keys + key) * scale - highest) / sum : 0);
}

template <typename T>
__global__ void masked_softmax_backward(const T* dweights, const T* weights, T* dscores, int rows, int keys,
                                        float scale) {
    i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float along = 0;
    for (int key = threadIdx.x; key < keys; key += WARP)
        along += get(dweights, row * keys + key) * get(weights, row * keys + key);
    along = warp_sum(along);
    for (int key = threadIdx.x; key < keys; key += WARP)
        put(dscores, row * keys + key,
            scale * get(weights, row * keys + key) * (get(dweights, row * keys + key) - along));
}

// Attention without dropout of the weights, in one kernel: one block of MOST_WARPS warps for each sentence and head.
// Matrices are read into shared memory, which all threads of the block read again and again. A warp works on QUERIES
// queries at a time, so that a number of v serves as many products; a lane has the keys lane, lane + 32, ..., or the
// columns lane, lane + 32.
//
// A VIEW need not be contiguous. Q_HEADS, K_HEADS and V_HEADS are the distances, in numbers, between neighbouring
// sentences, positions and heads in q, k and v.
#define VIEW
#define Q_HEADS int q_sentence, int q_position, int q_head
#define K_HEADS int k_sentence, int k_position, int k_head
#define V_HEADS int v_sentence, int v_position, int v_head

constexpr int MOST_COLUMNS = 64;  // d_k and d_v at most
constexpr int MOST_KEYS = 96;  // forward: a multiple of 32; with 128 there would not be enough shared memory
constexpr int MOST_KEYS_BACKWARD = 64;
constexpr int MOST_WARPS = 8;
constexpr int QUERIES = 4, MOST_ROWS = QUERIES * MOST_WARPS;

// Copy the matrix x (rows, columns), whose rows are `distance` numbers apart, to shared memory, row after row.
template <typename T>
__device__ void load(const T* x, int rows, int columns, int distance, float* to, int to_distance) {
    for (int row = threadIdx.y; row < rows; row += blockDim.y)
        for (int column = threadIdx.x; column < columns; column += WARP)
            to[row * to_distance + column] = get(x, (i64)row * distance + column);
}

template <typename T>
__global__ void attention(const T* VIEW q, const T* VIEW k, const T* VIEW v, const int* key_lengths, T* weights, T* y, int H,
                          int queries, int keys, int d_k, int d_v, float scale, int causal, Q_HEADS, K_HEADS,
                          V_HEADS) {
    __shared__ float rows[MOST_ROWS][MOST_COLUMNS];  // of q
    __shared__ float matrix[MOST_KEYS][MOST_COLUMNS + 1];  // k, then v; one more column, since a warp reads columns
    __shared__ float shares[MOST_ROWS][MOST_KEYS];  // the weights
    int sentence = blockIdx.x / H, head = blockIdx.x % H, lane = threadIdx.x;
    q += (i64)sentence * q_sentence + (i64)head * q_head;
    k += (i64)sentence * k_sentence + (i64)head * k_head;
    v += (i64)sentence * v_sentence + (i64)head * v_head;
    for (int first = 0; first < queries; first += MOST_ROWS) {
        load(q + (i64)first * q_position, min(MOST_ROWS, queries - first), d_k, q_position, rows[0], MOST_COLUMNS);
        load(k, keys, d_k, k_position, matrix[0], MOST_COLUMNS + 1);
        __syncthreads();
        int row = QUERIES * threadIdx.y, last = min(QUERIES, queries - first - row);
        for (int i = 0; i < last; i++) {
            int query = first + row + i;
            int seen = keys_seen(query, queries, keys, key_lengths ? key_lengths[sentence] : keys, causal);
            float highest = NOTHING, sum = 0, score[MOST_KEYS / WARP];
#pragma unroll
            for (int s = 0; s < MOST_KEYS / WARP; s++) {
                int key = s * WARP + lane;
                score[s] = 0;
                if (key >= seen) continue;
                for (int c = 0; c < d_k; c++) score[s] += rows[row + i][c] * matrix[key][c];
                score[s] *= scale;
                highest = fmaxf(highest, score[s]);
            }
            highest = warp_max(highest);
#pragma unroll
            for (int s = 0; s < MOST_KEYS / WARP; s++) {
                score[s] = s * WARP + lane < seen ? expf(score[s] - highest) : 0;
                sum += score[s];
            }
            sum = warp_sum(sum);
#pragma unroll
            for (int s = 0; s < MOST_KEYS / WARP; s++) {
                int key = s * WARP + lane;
                if (key >= keys) continue;
                shares[row + i][key] = sum == 0 ? 0 : score[s] / sum;
                put(weights, ((i64)blockIdx.x * queries + query) * keys + key, shares[row + i][key]);
            }
        }
        __syncthreads();
        load(v, keys, d_v, v_position, matrix[0], MOST_COLUMNS + 1);
        __syncthreads();
        for (int c = lane; c < d_v; c += WARP) {
            float sum[QUERIES] = {};
            for (int key = 0; key < keys; key++)
#pragma unroll
                for (int i = 0; i < QUERIES; i++)
                    if (i < last) sum[i] += shares[row + i][key] * matrix[key][c];
#pragma unroll
            for (int i = 0; i < QUERIES; i++)
                if (i < last) put(y, (((i64)sentence * queries + first + row + i) * H + head) * d_v + c, sum[i]);
        }
        __syncthreads();
    }
}

// dy is contiguous; dq, dk and dv are laid out as q, k and v. Of dk and dv, warp w has the rows w, w + MOST_WARPS, ...
template <typename T>
__global__ void attention_backward(const T* dy, const T* VIEW q, const T* VIEW k, const T* VIEW v, const T* weights,
                                   T* VIEW dq, T* VIEW dk, T* VIEW dv, int H, int queries, int keys, int d_k, int d_v, float scale, Q_HEADS,
                                   K_HEADS, V_HEADS) {
    __shared__ float rows[MOST_ROWS][MOST_COLUMNS];  // of dy, then of q
    __shared__ float matrix[MOST_KEYS_BACKWARD][MOST_COLUMNS + 1];  // v, then k
    __shared__ float shares[MOST_ROWS][MOST_KEYS_BACKWARD];  // the weights
    __shared__ float dscores[MOST_ROWS][MOST_KEYS_BACKWARD];
    constexpr int EACH = MOST_KEYS_BACKWARD / MOST_WARPS, BOTH = MOST_COLUMNS / WARP;
    int sentence = blockIdx.x / H, head = blockIdx.x % H, lane = threadIdx.x, warp = threadIdx.y;
    i64 q_begin = (i64)sentence * q_sentence + (i64)head * q_head;
    i64 k_begin = (i64)sentence * k_sentence + (i64)head * k_head;
    i64 v_begin = (i64)sentence * v_sentence + (i64)head * v_head;
    float dk_sum[EACH][BOTH] = {}, dv_sum[EACH][BOTH] = {};
    for (int first = 0; first < queries; first += MOST_ROWS) {
        int n = min(MOST_ROWS, queries - first), row = QUERIES * warp, last = min(QUERIES, n - row);
        load(dy + (((i64)sentence * queries + first) * H + head) * d_v, n, d_v, H * d_v, rows[0], MOST_COLUMNS);
        load(v + v_begin, keys, d_v, v_position, matrix[0], MOST_COLUMNS + 1);
        __syncthreads();
        for (int i = 0; i < last; i++) {
            const T* weight = weights + ((i64)blockIdx.x * queries + first + row + i) * keys;
            float along = 0;
            for (int key = lane; key < keys; key += WARP) {
                float dweight = 0;
                for (int c = 0; c < d_v; c++) dweight += rows[row + i][c] * matrix[key][c];
                shares[row + i][key] = get(weight, key);
                dscores[row + i][key] = dweight;
                along += dweight * shares[row + i][key];
            }
            along = warp_sum(along);
            for (int key = lane; key < keys; key += WARP)
                dscores[row + i][key] = scale * shares[row + i][key] * (dscores[row + i][key] - along);
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < EACH; s++)
#pragma unroll
            for (int half = 0; half < BOTH; half++) {
                int key = warp + s * MOST_WARPS, c = lane + half * WARP;
                if (key < keys && c < d_v)
                    for (int t = 0; t < n; t++) dv_sum[s][half] += shares[t][key] * rows[t][c];
            }
        __syncthreads();
        load(q + q_begin + (i64)first * q_position, n, d_k, q_position, rows[0], MOST_COLUMNS);
        load(k + k_begin, keys, d_k, k_position, matrix[0], MOST_COLUMNS + 1);
        __syncthreads();
#pragma unroll
        for (int s = 0; s < EACH; s++)
#pragma unroll
            for (int half = 0; half < BOTH; half++) {
                int key = warp + s * MOST_WARPS, c = lane + half * WARP;
                if (key < keys && c < d_k)
                    for (int t = 0; t < n; t++) dk_sum[s][half] += dscores[t][key] * rows[t][c];
            }
        for (int c = lane; c < d_k; c += WARP) {
            float sum[QUERIES] = {};
            for (int key = 0; key < keys; key++)
#pragma unroll
                for (int i = 0; i < QUERIES; i++)
                    if (i < last) sum[i] += dscores[row + i][key] * matrix[key][c];
#pragma unroll
            for (int i = 0; i < QUERIES; i++)
                if (i < last) put(dq, q_begin + (i64)(first + row + i) * q_position + c, sum[i]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < EACH; s++)
#pragma unroll
        for (int half = 0; half < BOTH; half++) {
            int key = warp + s * MOST_WARPS, c = lane + half * WARP;
            if (key < keys && c < d_k) put(dk, k_begin + (i64)key * k_position + c, dk_sum[s][half]);
            if (key < keys && c < d_v) put(dv, v_begin + (i64)key * v_position + c, dv_sum[s][half]);
        }
}

// Rows and words: one block for each row ------------------------------------------------------------------------------

template <typename T>
__global__ void gather_rows(const T* x, const int* index, T* rows, int D) {
    i64 from = (i64)index[blockIdx.x] * D, to = (i64)blockIdx.x * D;
    for (int column = threadIdx.x; column < D; column += blockDim.x) rows[to + column] = x[from + column];
}

// dx must be zero.
template <typename T>
__global__ void gather_rows_backward(const T* drows, const int* index, T* dx, int D) {
    i64 from = (i64)blockIdx.x * D, to = (i64)index[blockIdx.x] * D;
    for (int column = threadIdx.x; column < D; column += blockDim.x) dx[to + column] = drows[from + column];
}

template <typename T>
__global__ void embedding(const int* ids, const T* E, T* x, int D, float scale) {
    int id = ids[blockIdx.x];
    for (int column = threadIdx.x; column < D; column += blockDim.x)
        put(x, (i64)blockIdx.x * D + column, id == 0 ? 0 : get(E, (i64)id * D + column) * scale);
}

// The gradient of words[x] is the sum of the rows rows[starts[x]] to rows[starts[x + 1] - 1] of dx. Block (x, y) adds
// them up in columns 32 y to 32 y + 31. Its warps share the rows, since a frequent word has thousands.
template <typename T>
__global__ void embedding_backward(const T* dx, const int* words, const int* starts, const int* rows, float* dE, int D,
                                   float scale) {
    __shared__ float sum_of[WARP][WARP];  // [warp][column]
    int column = blockIdx.y * WARP + threadIdx.x, end = starts[blockIdx.x + 1];
    float sum = 0;
    if (column < D)
        for (int i = starts[blockIdx.x] + threadIdx.y; i < end; i += blockDim.y)
            sum += get(dx, (i64)rows[i] * D + column);
    sum_of[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= D) return;
    for (int warp = 1; warp < blockDim.y; warp++) sum += sum_of[warp][threadIdx.x];
    dE[(i64)words[blockIdx.x] * D + column] += sum * scale;
}

// Loss and search: one block for each row of logits -------------------------------------------------------------------

// Of a row of logits z: the largest, sum of exp(z - highest), sum of z - shift. Every thread of the block gets them.
struct RowSums { float highest, sum, total; };

template <typename T>
__device__ RowSums block_sums(const T* logits, i64 begin, int V, float shift) {
    __shared__ float highest_of[WARP], sum_of[WARP], total_of[WARP];  // [warp]
    int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    float highest = NOTHING, sum = 0, total = 0;  // of this thread so far
    for (int v = threadIdx.x; v < V; v += blockDim.x) {
        float z = get(logits, begin + v);
        if (z > highest) {
            sum *= expf(highest - z);
            highest = z;
        }
        sum += expf(z - highest);
        total += z - shift;
    }
    float of_warp = warp_max(highest);
    sum = warp_sum(sum * expf(highest - of_warp));
    total = warp_sum(total);
    if (threadIdx.x % WARP == 0) {
        highest_of[warp] = of_warp;
        sum_of[warp] = sum;
        total_of[warp] = total;
    }
    __syncthreads();
    RowSums found = {NOTHING, 0, 0};
    for (int w = 0; w < warps; w++) found.highest = fmaxf(found.highest, highest_of[w]);
    for (int w = 0; w < warps; w++) {
        found.sum += sum_of[w] * expf(highest_of[w] - found.highest);
        found.total += total_of[w];
    }
    return found;
}

template <typename T>
__global__ void log_sum_exp(const T* logits, T* sums, int V) {
    RowSums row = block_sums(logits, (i64)blockIdx.x * V, V, 0);
    if (threadIdx.x == 0) put(sums, blockIdx.x, row.highest + logf(row.sum));
}

constexpr int THREADS = 256;  // in a block of the next kernel
constexpr double LARGEST = 1.7976931348623157e308;

__device__ bool ranks_above(double value, int index, double other, int its_index) {
    return value > other || (value == other && index < its_index);
}

// Each of n rounds finds the number that ranks next below the last one found. Of equal numbers the first ranks highest,
// and NaN counts as LARGEST, so that no index comes twice.
__global__ void top_indices(const double* x, int* indices, int m, int n) {
    __shared__ double value_of[THREADS];  // [thread]
    __shared__ int index_of[THREADS];
    const double* row = x + (i64)blockIdx.x * m;
    int thread = threadIdx.x, last_index = -1;
    double last = LARGEST;
    for (int rank = 0; rank < n; rank++) {
        double highest = -LARGEST;
        int index = m;
        for (int i = thread; i < m; i += blockDim.x) {
            double value = fmax(fmin(row[i], LARGEST), -LARGEST);
            if (ranks_above(last, last_index, value, i) && ranks_above(value, i, highest, index)) {
                highest = value;
                index = i;
            }
        }
        value_of[thread] = highest;
        index_of[thread] = index;
        for (int half = blockDim.x / 2; half > 0; half /= 2) {  // the first half of the threads takes the better of two
            __syncthreads();
            int other = thread + half;
            if (thread < half && ranks_above(value_of[other], index_of[other], value_of[thread], index_of[thread])) {
                value_of[thread] = value_of[other];
                index_of[thread] = index_of[other];
            }
        }
        __syncthreads();
        last = value_of[0];
        last_index = index_of[0];
        if (thread == 0) indices[(i64)blockIdx.x * n + rank] = last_index;
        __syncthreads();  // before the next round overwrites them
    }
}

// The first pass over a row finds its sums. A second pass reads it, mostly from the cache, and writes its gradient;
// dlogits may be logits. The gradient is multiplied by *loss_scale unless that is null.
template <typename T>
__global__ void cross_entropy(const T* logits, const int* targets, T* dlogits, float* losses, int V, float on_target,
                              float off_target, const float* loss_scale) {
    i64 begin = (i64)blockIdx.x * V;
    int target = targets[blockIdx.x];
    float of_target = get(logits, begin + target);
    RowSums row = block_sums(logits, begin, V, of_target);
    // loss = -sum q log p, where q is off_target, plus on_target on the target. Differences come first: logits may be
    // large numbers that are close to each other.
    float log_sum = row.highest - of_target + logf(row.sum);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = target == 0 ? 0 : on_target * log_sum + off_target * (V * log_sum - row.total);
    float scale = loss_scale ? *loss_scale : 1;
    for (int v = threadIdx.x; v < V; v += blockDim.x) {
        float p = expf(get(logits, begin + v) - row.highest) / row.sum, q = off_target + (v == target ? on_target : 0);
        put(dlogits, begin + v, target == 0 ? 0 : scale * (p - q));
    }
}

// Optimizer -----------------------------------------------------------------------------------------------------------

// total *= factor / loss_scale. Each thread writes its sum of squares to `squares`.
__global__ void divide_inplace(float* total, double* squares, i64 n, float factor, const float* loss_scale) {
    i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, threads = (i64)gridDim.x * blockDim.x;
    if (loss_scale) factor /= *loss_scale;
    double sum = 0;
    for (i64 i = thread; i < n; i += threads) {
        float value = total[i] * factor;
        total[i] = value;
        sum += (double)value * value;
    }
    squares[thread] = sum;
}

__device__ bool finite(const double* x) { return *x - *x == 0; }  // x - x is NaN for NaN and for infinities

__global__ void adam_inplace(float* w, const float* dw, float* m, float* v, i64 n, float step_size, float beta1,
                             float beta2, float eps, const double* norm) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || (norm && !finite(norm))) return;
    float g = dw[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    w[i] -= step_size * m[i] / (sqrtf(v[i]) + eps);
}

// After a step with fp16. scale[0] is the loss scale, scale[1] the number of steps since it changed without overflow.
__global__ void adapt_loss_scale(float* scale, const double* norm, int patience) {
    if (!finite(norm)) {
        scale[0] /= 2;
        scale[1] = 0;
    } else if (++scale[1] >= patience) {
        scale[0] *= 2;
        scale[1] = 0;
    }
}
