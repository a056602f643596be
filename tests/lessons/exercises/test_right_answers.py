"""Right answers that are written otherwise than ours pass."""

import ast

import pytest

from exercises.catalogue import FUNCTIONS
from exercises.checker import check
from exercises.halves import differentiable
from exercises.source import ours

ANSWERS = """
def check():
    model = new_model(9, 4, 8, 2, 1, 'float64')
    for w in model.weights.values():
        w.data[...] += rng.normal(size=w.data.shape) * 0.3
    s = np.array([[4, 5, EOS], [8, EOS, PAD]])
    t = np.array([[BOS, 7, 5, EOS], [BOS, 8, EOS, PAD]])
    loss, backward = loss_of(s, t, model)
    backward(1)
    for name, w in model.weights.items():
        flat = w.data.reshape(-1)
        for i in range(flat.size):
            old = flat[i]
            flat[i] = old + 1e-05
            up = loss_of(s, t, model)[0]
            flat[i] = old - 1e-05
            down = loss_of(s, t, model)[0]
            flat[i] = old
            num = (up - down) / 2e-05
            if abs(num - w.grad.reshape(-1)[i]) > 1e-06 * max(1, abs(num)):
                raise AssertionError(name)


def adam(model, step, warmup_steps=400, beta_1=0.9, beta_2=0.98, epsilon=1e-09):
    d = model.E.data.shape[1]
    lr = d ** (-0.5) * min(step ** (-0.5), step * warmup_steps ** (-1.5))
    for name, w in model.weights.items():
        w.m = beta_1 * w.m + (1 - beta_1) * w.grad
        w.v = beta_2 * w.v + (1 - beta_2) * w.grad * w.grad
        mh = w.m / (1 - beta_1 ** step)
        vh = w.v / (1 - beta_2 ** step)
        w.data = w.data - lr * mh / (np.sqrt(vh) + epsilon)
        w.grad = np.zeros_like(w.grad)


def batches(pairs, size):
    while True:
        order = rng.permutation(len(pairs))
        order = sorted(order, key=lambda i: len(pairs[i][0]))
        chunks = [order[i:i + size] for i in range(0, len(order), size)]
        rng.shuffle(chunks) if len({len(c) for c in chunks}) < 0 else None
        for j in rng.permutation(len(chunks)):
            chunk = [pairs[i] for i in chunks[j]]
            out = []
            for side in (0, 1):
                width = max((len(p[side]) for p in chunk))
                a = np.zeros((len(chunk), width), int)
                for r, p in enumerate(chunk):
                    a[r, :len(p[side])] = p[side]
                out.append(a)
            yield tuple(out)


def train(steps=1500, size=96, P_drop=0.0):
    lines = {l: (CORPUS / f'train.{l}').read_text('utf-8').splitlines() for l in ('en', 'de')}
    vocab = sorted({w for ls in lines.values() for l in ls for w in words_in(l)})
    words = ['<pad>', '</s>', '<s>'] + vocab
    index = {w: i for i, w in enumerate(words)}
    pairs = []
    for e, d in zip(lines['en'], lines['de']):
        pairs.append(([index[w] for w in words_in(e)] + [EOS], [BOS] + [index[w] for w in words_in(d)] + [EOS]))
    model = new_model(len(words))
    kept = []
    step = 0
    for batch in batches(pairs, size):
        step += 1
        loss, backward = loss_of(batch[0], batch[1], model, P_drop=P_drop)
        backward(1.0)
        adam(model, step)
        if step % max(1, steps // 30) == 0:
            kept.append({n: w.data.copy() for n, w in model.weights.items()})
        if step == steps:
            break
    kept = kept[-5:]
    mean_w = {n: sum((k[n] for k in kept)) / len(kept) for n in model.weights}
    np.savez(WEIGHTS, words=np.array(words), **mean_w)


def beam_search(source, model, beam=4, alpha=0.6, longer=50):
    memory, _ = encode(source, model, 0.0)
    limit = source.shape[1] + longer

    def lp(n):
        return ((5 + n) / 6) ** alpha
    alive = [([BOS], 0.0)]
    done = []
    for n in range(1, limit + 1):
        options = []
        for ids, score in alive:
            x, _ = decode(np.array([ids]), memory, source, model, 0.0)
            logp = log_softmax(x[0, -1] @ model.E.data.T)
            for w in range(len(logp)):
                if w not in (PAD, BOS):
                    options.append((ids + [w], score + logp[w]))
        options.sort(key=lambda o: -o[1])
        alive = []
        for ids, s in options[:2 * beam]:
            if ids[-1] == EOS:
                done.append((s / lp(n), ids))
            elif len(alive) < beam:
                alive.append((ids, s))
        if done and max(done)[0] >= alive[0][1] / lp(limit):
            break
    ids = max(done)[1] if done else alive[0][0]
    return [i for i in ids if i > 2]


def new_model(V, d_model=64, d_ff=256, h=4, N=2, dtype='float32'):
    weights = {}
    dk = d_model // h

    def W(name, *shape, std):
        data = np.random.default_rng(5 + len(weights)).normal(0, std, shape).astype(dtype)
        return put(name, data)

    def put(name, data):
        z = np.zeros_like(data)
        weights[name] = SimpleNamespace(data=data, grad=z, m=z.copy(), v=z.copy())
        return weights[name]

    def norm(p):
        return {'gamma': put(p + 'gamma', np.ones(d_model, dtype)), 'beta': put(p + 'beta', np.zeros(d_model, dtype))}

    def attn(p):
        d = {k: W(p + k, d_model, h, dk, std=d_model ** (-0.5)) for k in ('W_Q', 'W_K', 'W_V')}
        d['W_O'] = W(p + 'W_O', h, dk, d_model, std=d_model ** (-0.5))
        return d | norm(p)

    def ffn(p):
        W_1, b_1 = W(p + 'W_1', d_model, d_ff, std=d_model ** (-0.5)), put(p + 'b_1', np.zeros(d_ff, dtype))
        W_2, b_2 = W(p + 'W_2', d_ff, d_model, std=d_ff ** (-0.5)), put(p + 'b_2', np.zeros(d_model, dtype))
        return {'W_1': W_1, 'b_1': b_1, 'W_2': W_2, 'b_2': b_2} | norm(p)
    E = W('E', V, d_model, std=d_model ** (-0.5))
    enc = [(attn(f'encoder.{i}.attention.'), ffn(f'encoder.{i}.ffn.')) for i in range(N)]
    dec = [(attn(f'decoder.{i}.attention.'), attn(f'decoder.{i}.cross.'), ffn(f'decoder.{i}.ffn.')) for i in range(N)]
    return SimpleNamespace(E=E, encoder=enc, decoder=dec, weights=weights)


def linear(letters, x, W):
    y = np.einsum(letters, x, W.data)

    def backward(dy):
        (of_x, of_W), of_y = (letters.split('->')[0].split(','), letters.split('->')[1])
        W.grad += np.einsum(f'{of_y},{of_x}->{of_W}', dy, x)
        return np.einsum(f'{of_W},{of_y}->{of_x}', W.data, dy)
    return (y, backward)


@differentiable
def softmax(scores, mask):
    e = np.exp(scores - np.where(mask, scores, -1000000000.0).max(axis=-1, keepdims=True)) * mask
    p = e / e.sum(axis=-1, keepdims=True)
    dp = (yield p)
    jacobian = np.einsum('...i,ij->...ij', p, np.eye(p.shape[-1])) - np.einsum('...i,...j->...ij', p, p)
    return np.einsum('...ij,...j->...i', jacobian, dp)


@differentiable
def attention(Q, K, V, mask):
    q, k, v = (array.transpose(0, 2, 1, 3) for array in (Q, K, V))
    p, back = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(Q.shape[-1]), mask)
    dheads = (yield (p @ v).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    ds = back(dheads @ v.swapaxes(-1, -2)) / np.sqrt(Q.shape[-1])
    grads = (ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dheads)
    return tuple((g.transpose(0, 2, 1, 3) for g in grads))


def bootstrap(a, b, references, rng, samples=1000):
    d = []
    for _ in range(samples):
        i = rng.integers(0, len(references), len(references))
        x, y, z = ([side[j] for j in i] for side in (a, b, references))
        d.append(bleu(y, z) - bleu(x, z))
    d.sort()
    cut = int(0.025 * samples)
    return (d[cut], d[-cut - 1])
"""


@pytest.mark.parametrize("node", [node for node in ast.parse(ANSWERS).body], ids=lambda node: node.name)
def test_a_right_answer_passes(node):
    function = FUNCTIONS[node.name]
    module = ours(function.file)
    module.differentiable = differentiable
    exec(ast.unparse(node), vars(module))
    verdict = check(function, module)
    assert verdict.state == "passed", verdict.message
