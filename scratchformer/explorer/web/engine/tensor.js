/**
 * The arithmetic of the model: matrices of float32 numbers, and each operation `f` with its `fBackward` beside it, as in
 * scratchformer/nn/ops.py. For one sentence, so no operation has a batch.
 *
 * Shapes: T queries, S keys, h heads, D d_model. A weight is (in, out), so a layer is x W. `dy` stands for the gradient
 * of the loss with respect to y.
 *
 * @typedef {{ rows: number, cols: number, data: Float32Array }} Matrix  row after row
 * @typedef {{ W: Matrix, b: ?Float32Array }} Affine  W (in, out); b (out) or null
 * @typedef {{ gamma: Float32Array, beta: Float32Array, eps: number }} Norm
 */

let Numbers = Float32Array;

/** What `compute` returns while every new matrix has float64 numbers, with which finite differences are exact enough. */
export function inDouble(compute) {
  Numbers = Float64Array;
  try {
    return compute();
  } finally {
    Numbers = Float32Array;
  }
}

/** @returns {Matrix} zeros, or the given data */
export function matrix(rows, cols, data = new Numbers(rows * cols)) {
  return { rows, cols, data };
}

/** Row i of a matrix, as a view: a change of the row changes the matrix. */
export function row(m, i) {
  return m.data.subarray(i * m.cols, (i + 1) * m.cols);
}

/** Column j of a matrix, as a copy. */
export function column(m, j) {
  const values = new Numbers(m.rows);
  for (let i = 0; i < m.rows; i++) values[i] = m.data[i * m.cols + j];
  return values;
}

/** Columns `start` to `start + count`, as a copy. */
export function columns(m, start, count) {
  const part = matrix(m.rows, count);
  for (let i = 0; i < m.rows; i++) row(part, i).set(row(m, i).subarray(start, start + count));
  return part;
}

/** Write the matrix `part` over the columns of m that begin at `start`. */
export function setColumns(m, start, part) {
  for (let i = 0; i < m.rows; i++) row(m, i).set(row(part, i), start);
}

/** a + b, which have the same shape. */
export function add(a, b) {
  return matrix(a.rows, a.cols, a.data.map((x, i) => x + b.data[i]));
}

/** total += m, in place. */
export function addInPlace(total, m) {
  for (let i = 0; i < total.data.length; i++) total.data[i] += m.data[i];
}

// Products ------------------------------------------------------------------------------------------------------------

/**
 * a b.   a (n, k), b (k, m) -> (n, m)
 *
 * y[i, :] = sum over k of a[i, k] b[k, :]. Four k at once are twice as fast, since y is read and written less often.
 */
export function matmul(a, b) {
  const y = matrix(a.rows, b.cols);
  const [K, m, A, B, Y] = [a.cols, b.cols, a.data, b.data, y.data];
  for (let i = 0; i < a.rows; i++) {
    let k = 0;
    for (; k + 4 <= K; k += 4) {
      const [at, from, to] = [i * K + k, k * m, i * m];
      const [a0, a1, a2, a3] = [A[at], A[at + 1], A[at + 2], A[at + 3]];
      for (let j = 0; j < m; j++) {
        const b0 = from + j;
        Y[to + j] += a0 * B[b0] + a1 * B[b0 + m] + a2 * B[b0 + 2 * m] + a3 * B[b0 + 3 * m];
      }
    }
    for (; k < K; k++) for (let j = 0; j < m; j++) Y[i * m + j] += A[i * K + k] * B[k * m + j];
  }
  return y;
}

/** a bᵀ.   a (n, k), b (m, k) -> (n, m) */
export function matmulT(a, b) {
  const y = matrix(a.rows, b.rows);
  for (let i = 0; i < a.rows; i++) {
    for (let j = 0; j < b.rows; j++) y.data[i * b.rows + j] = dot(a.data, i * a.cols, b.data, j * b.cols, a.cols);
  }
  return y;
}

/** aᵀ b.   a (k, n), b (k, m) -> (n, m) */
export function Tmatmul(a, b) {
  return matmul(transpose(a), b);
}

/** The sum of the rows, as a row.   m (T, n) -> (1, n) */
export function sumOfRows(m) {
  const y = matrix(1, m.cols);
  for (let i = 0; i < m.data.length; i++) y.data[i % m.cols] += m.data[i];
  return y;
}

/** @returns {Matrix} (n, m) -> (m, n), as a copy */
export function transpose(m) {
  const y = matrix(m.cols, m.rows);
  for (let i = 0; i < m.rows; i++) for (let j = 0; j < m.cols; j++) y.data[j * m.rows + i] = m.data[i * m.cols + j];
  return y;
}

/** The dot product of n numbers of a, from index i, and n numbers of b, from index j. */
function dot(a, i, b, j, n) {
  let sum = 0;
  for (let k = 0; k < n; k++) sum += a[i + k] * b[j + k];
  return sum;
}

/** y = x W + b.   x (T, in) -> y (T, out) */
export function linear(x, { W, b }) {
  const y = matmul(x, W);
  if (b) for (let t = 0; t < y.rows; t++) for (let j = 0; j < y.cols; j++) y.data[t * y.cols + j] += b[j];
  return y;
}

/** dy (T, out) -> dx (T, in) */
export function linearBackward(dy, { W }) {
  return matmulT(dy, W);
}

/** x (T, in), dy (T, out) -> dW (in, out) and, of a layer with a bias, db (1, out) */
export function linearWeightsBackward(dy, x, { b }) {
  return [Tmatmul(x, dy), ...(b ? [sumOfRows(dy)] : [])];
}

// Position by position ------------------------------------------------------------------------------------------------

/** y = max(x, 0). */
export function relu(x) {
  return matrix(x.rows, x.cols, x.data.map((value) => Math.max(value, 0)));
}

/** The gradient passes where the output is positive. */
export function reluBackward(dy, y) {
  return matrix(y.rows, y.cols, dy.data.map((value, i) => (y.data[i] > 0 ? value : 0)));
}

/** exp(x) / sum(exp(x)), for a vector. -Infinity becomes exactly 0. */
export function softmax(x) {
  const highest = x.reduce((a, b) => Math.max(a, b)); // so that exp cannot overflow
  const y = x.map((value) => Math.exp(value - highest));
  const total = y.reduce((a, b) => a + b);
  return y.map((value) => value / total);
}

/** log(sum(exp(x))), for a vector: x minus this are the logarithms of softmax(x). */
export function logSumExp(x) {
  const highest = x.reduce((a, b) => Math.max(a, b));
  return highest + Math.log(x.reduce((sum, value) => sum + Math.exp(value - highest), 0));
}

/** dx = y (dy - sum(dy y)), for vectors. */
export function softmaxBackward(dy, y) {
  const shared = dot(dy, 0, y, 0, y.length);
  return y.map((weight, i) => weight * (dy[i] - shared));
}

/** y = gamma (x - mean) / sqrt(variance + eps) + beta, for each row.   x (T, D) -> y (T, D), and what backward needs */
export function layerNorm(x, { gamma, beta, eps }) {
  const y = matrix(x.rows, x.cols);
  const normalized = matrix(x.rows, x.cols);
  const mean = new Numbers(x.rows);
  const deviation = new Numbers(x.rows);
  for (let t = 0; t < x.rows; t++) {
    const values = row(x, t);
    const center = values.reduce((a, b) => a + b, 0) / x.cols;
    mean[t] = center;
    deviation[t] = Math.sqrt(values.reduce((sum, value) => sum + (value - center) ** 2, 0) / x.cols + eps);
    row(normalized, t).set(values.map((value) => (value - center) / deviation[t]));
    row(y, t).set(row(normalized, t).map((value, j) => gamma[j] * value + beta[j]));
  }
  return { y, normalized, mean, deviation };
}

/** With n the normalised x and means over a row: dn = gamma dy, dx = (dn - mean(dn) - n mean(dn n)) / deviation. */
export function layerNormBackward(dy, { normalized, deviation }, { gamma }) {
  const dx = matrix(dy.rows, dy.cols);
  for (let t = 0; t < dy.rows; t++) {
    const n = row(normalized, t);
    const dn = row(dy, t).map((value, j) => gamma[j] * value);
    const mean = dn.reduce((a, b) => a + b, 0) / dn.length;
    const alongItself = dot(dn, 0, n, 0, n.length) / n.length;
    row(dx, t).set(dn.map((value, j) => (value - mean - n[j] * alongItself) / deviation[t]));
  }
  return dx;
}

/** dgamma = sum over rows of dy n, dbeta = sum over rows of dy -> both (1, D) */
export function layerNormWeightsBackward(dy, { normalized }) {
  const products = matrix(dy.rows, dy.cols, dy.data.map((value, i) => value * normalized.data[i]));
  return [sumOfRows(products), sumOfRows(dy)];
}

/** PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos of the same angle -> (D) */
export function sinusoids(position, d_model) {
  return Numbers.from({ length: d_model }, (_, channel) => {
    const angle = position / 10000 ** ((2 * Math.floor(channel / 2)) / d_model);
    return channel % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// Attention -----------------------------------------------------------------------------------------------------------

/**
 * head = softmax(q kᵀ / √d_k) v for each head; the heads stand side by side.
 *
 * q (T, h d_k), k (S, h d_k), v (S, h d_v) -> heads (T, h d_v), and per head the scores and the weights (T, S)
 *
 * @param {Set<number>} removed  heads whose output is zeros
 * @param {boolean} causal  query t sees keys 0 to t: the other scores are -Infinity, the other weights 0
 * @param {number} divisor  of the products q kᵀ: √d_k, unless another is given
 */
export function attention(q, k, v, h, { causal = false, removed = new Set(), divisor = Math.sqrt(q.cols / h) } = {}) {
  const d_k = q.cols / h;
  const d_v = v.cols / h;
  const heads = matrix(q.rows, v.cols);
  const scores = [];
  const weights = [];
  for (let head = 0; head < h; head++) {
    const s = matmulT(columns(q, head * d_k, d_k), columns(k, head * d_k, d_k)); // (T, S)
    s.data.forEach((score, i) => (s.data[i] = score / divisor));
    if (causal) for (let t = 0; t < s.rows; t++) row(s, t).fill(-Infinity, t + 1);
    const w = matrix(s.rows, s.cols);
    for (let t = 0; t < s.rows; t++) row(w, t).set(softmax(row(s, t)));
    if (!removed.has(head)) setColumns(heads, head * d_v, matmul(w, columns(v, head * d_v, d_v)));
    scores.push(s);
    weights.push(w);
  }
  return { heads, scores, weights };
}

/** dheads (T, h d_v) -> dq (T, h d_k), dk (S, h d_k), dv (S, h d_v). Where a weight is 0, so is the score's gradient. */
export function attentionBackward(dheads, q, k, v, weights, { removed = new Set(), divisor } = {}) {
  const d_k = q.cols / weights.length;
  const d_v = v.cols / weights.length;
  const [dq, dk, dv] = [q, k, v].map((x) => matrix(x.rows, x.cols));
  weights.forEach((w, head) => {
    if (removed.has(head)) return; // its output does not depend on q, k and v
    const dhead = columns(dheads, head * d_v, d_v); // (T, d_v)
    // head = w v
    setColumns(dv, head * d_v, Tmatmul(w, dhead));
    const dw = matmulT(dhead, columns(v, head * d_v, d_v)); // (T, S)
    // w = softmax(scores), scores = q kᵀ / divisor
    const dproducts = matrix(w.rows, w.cols);
    for (let t = 0; t < w.rows; t++) row(dproducts, t).set(softmaxBackward(row(dw, t), row(w, t)));
    dproducts.data.forEach((value, i) => (dproducts.data[i] = value / (divisor ?? Math.sqrt(d_k))));
    setColumns(dq, head * d_k, matmul(dproducts, columns(k, head * d_k, d_k)));
    setColumns(dk, head * d_k, Tmatmul(dproducts, columns(q, head * d_k, d_k)));
  });
  return [dq, dk, dv];
}
