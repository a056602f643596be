# %% [markdown]
# # Lab notes 05 · Why attention divides by √d_k
#
# The measurements behind [lesson 05](../05_scaling.py): the 24 queries with every learning rate and with other seeds,
# which keys get a gradient, all runs of the small Transformer with the controls, and a public implementation that
# divides by the wrong root.

# %% Imports
import course  # noqa: F401  finds lessons/support
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import ScaledDotProductAttention
from support.lesson import measure, recorded, same, show, table, varying
from support.numeric import numeric_gradient
from support.one_key import RATES, found, learn_to_look, softmax, successes

random = np.random.default_rng(3)

# %% [markdown]
# ## Experiment 1: the 24 queries
#
# The task of the opening: 32 keys of $d_k$ random numbers for each of 24 queries, 120 steps of gradient descent on the
# queries. It is `learn_to_look` in [support/one_key.py](../support/one_key.py). First the mean weight on the right key
# in the end, for every learning rate, with seed 0.

# %% Every learning rate
for_table, best = [], {}
for d_k in 4, 8, 64, 512:
    for name, factor in ("not divided", 1), ("divided by √d_k", 1 / math.sqrt(d_k)):
        means = [learn_to_look(d_k, factor, rate).mean() for rate in RATES]
        best[name, d_k] = max(means)
        for_table.append([d_k, name, *(f"{mean:.2f}" for mean in means)])
table(["d_k", "", *(f"rate {rate:g}" for rate in RATES)], for_table)
for d_k, lo, hi in (64, 0.25, 0.75), (512, 0, 0.3):
    measure(f"d_k = {d_k}, not divided, best", best["not divided", d_k], lo, hi)
    measure(f"d_k = {d_k}, divided, best", best["divided by √d_k", d_k], 0.95, 1)
measure(
    "d_k = 4, best: not divided − divided",
    best["not divided", 4] - best["divided by √d_k", 4],
    -0.2,
    0.2,
)

# %% [markdown]
# At $d_k = 4$ the division makes little difference, and neither does well. Of 32 points in so few dimensions, many
# have the largest dot product with no query at all, so that no query can find them.
#
# **Other seeds.** The number of queries that found their key at the best of the six rates, as on the page, with seeds
# 0 to 2.

# %% Three seeds
SEEDS, counts = range(3), {}
for d_k in 8, 64, 512:
    for name, factor, start, on_log in (
        ("not divided", 1, 1, False),
        ("divided by √d_k", 1 / math.sqrt(d_k), 1, False),
        ("divided, large start", 1 / math.sqrt(d_k), math.sqrt(d_k), False),
        ("small start", 1, 1 / math.sqrt(d_k), False),
        ("logarithm", 1, 1, True),
        ("divided by d_k", 1 / d_k, 1, False),
    ):
        counts[d_k, name] = [found(d_k, factor, start, on_log, seed) for seed in SEEDS]
table(
    ["d_k", "", *(f"seed {seed}" for seed in SEEDS)],
    [[d_k, name, *values] for (d_k, name), values in counts.items() if d_k > 8],
)
for (d_k, name), values in counts.items():
    if d_k == 8:
        varying(f"d_k = 8, {name}: {' '.join(map(str, values))}")
measure("d_k = 64, not divided: most of 24", max(counts[64, "not divided"]), 9, 18)
measure("d_k = 512, not divided: most of 24", max(counts[512, "not divided"]), 1, 6)
for d_k, hi in (64, 14), (512, 6):
    most = max(counts[d_k, "divided, large start"])
    measure(f"d_k = {d_k}, divided, large start: most of 24", most, 0, hi)
measure(
    "d_k = 64 and 512, all repairs: fewest of 24",
    min(
        min(values)
        for (d_k, name), values in counts.items()
        if d_k > 8 and name not in ("not divided", "divided, large start")
    ),
    24,
    24,
)

# %% [markdown]
# **The query that is left.** With seed 0 and the division, one query of $d_k = 8$ doesn't find its key in 120 steps. It
# is slow, not stuck: with more steps, at the rate 10, its weight goes on growing.

# %% More steps
factor = 1 / math.sqrt(8)
weights = {
    steps: learn_to_look(8, factor, 10, steps=steps) for steps in (120, 300, 1000)
}
slowest = weights[120].argmin()
for steps, lo, hi in (120, 0.2, 0.45), (300, 0.55, 0.8), (1000, 0.9, 1):
    name = f"d_k = 8, divided: weight of the slowest query, {steps} steps"
    measure(name, weights[steps][slowest], lo, hi)
for d_k, rate, steps, lo, hi in (
    (8, 10, 1_200, 20, 24),
    (8, 10, 12_000, 22, 24),
    (512, 1000, 1_200, 1, 6),
):
    count = successes(learn_to_look(d_k, 1, rate, steps=steps))
    name = f"d_k = {d_k}, not divided, rate {rate}: found after {steps} steps"
    measure(name, count, lo, hi)

# %% [markdown]
# At $d_k = 8$ the queries find their keys without the division, too, only later. At 512 ten times the steps find no
# further one.
#
# **Larger rates.** At $d_k = 512$ six rates are not enough to say that none helps: half of the right keys start with a
# weight below $10^{-21}$, and a large rate can make up for a small factor. Rates that nobody would use help most of the
# queries:

# %% Much larger rates
LARGER = (1e3, 1e6, 1e10, 1e15, 1e20, 1e30)
at_larger = {
    d_k: [successes(learn_to_look(d_k, 1, rate)) for rate in LARGER]
    for d_k in (64, 512)
}
table(
    ["found, not divided", *(f"rate {rate:.0e}" for rate in LARGER)],
    [[f"d_k = {d_k}", *values] for d_k, values in at_larger.items()],
)
measure(
    "median weight of the right key at the start, d_k = 512, log10",
    math.log10(np.median(learn_to_look(512, 1, 0))),
    -25,
    -18,
)
measure("d_k = 512: found at rate 1e6, of 24", at_larger[512][1], 2, 8)
measure("d_k = 512: found at rate 1e30, of 24", at_larger[512][-1], 18, 24)

# %% [markdown]
# **Steps of one length.** If what is lost is mainly the *size* of the gradient, then stretching each query's step to
# the length `rate` should repair it. It does. (The direction changes a little, too: on the page the divided push is
# (−1, 6, −5)/32, and the other one about (0, 1, −1) · 0.00065.) Adam does something similar: it divides each number's
# gradient by the root of a running mean of its squares. But in a model, $W_Q$ and $W_K$ are shared by all queries, so
# Adam can't stretch the step of each query by itself.

# %% Steps of one length
LENGTHS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)
stretched = {
    (d_k, name): [
        successes(learn_to_look(d_k, factor, length, unit_steps=True))
        for length in LENGTHS
    ]
    for d_k in (64, 512)
    for name, factor in (("not divided", 1), ("divided by √d_k", 1 / math.sqrt(d_k)))
}
table(
    ["d_k", "found", *(f"length {length:g}" for length in LENGTHS)],
    [[d_k, name, *values] for (d_k, name), values in stretched.items()],
)
measure(
    "d_k = 512, not divided: best of 24", max(stretched[512, "not divided"]), 22, 24
)

# %% [markdown]
# **A small start is the division in other units.** With $q' = q / \sqrt{d_k}$ the dot product $q' \cdot k$ is the score
# of the divided run, and a step of $q'$ at the rate $\eta / d_k$ is its step at the rate $\eta$. So the two runs are
# the same. In the same way a run with the division and a large start, the control of the page, is an undivided run at
# the rate $\eta / d_k$. So when each may choose its rate, the division can only matter through the scores at the start:

# %% The same run twice
divided, small = (
    learn_to_look(64, 1 / 8, 10),
    learn_to_look(64, 1, 10 / 64, start=1 / 8),
)
same("weights after 120 steps: divided, and small start", small, divided, 1e-6)
large, plain = (
    learn_to_look(64, 1 / 8, 10, start=8),
    learn_to_look(64, 1, 10 / 64),
)
same("divided with a large start, and not divided", large, plain, 1e-6)

# %% [markdown]
# **And why the root?** One step moves $q$ by at most about rate · $c$ times a key, for the factor $c$ before softmax.
# It moves that key's score by rate · $c^2 |k|^2$, about rate · $c^2 d_k$. With $c = 1/\sqrt{d_k}$ that is the
# rate itself, whatever $d_k$. With $c = 1/d_k$ it is rate$/d_k$, so the rate must be $d_k$ times as large:

# %% Divided by d_k
for rate, lo, hi in (1, 0, 0.1), (512, 0.9, 1):
    measure(
        f"d_k = 512, divided by d_k, rate {rate}: weight on the key",
        learn_to_look(512, 1 / 512, rate).mean(),
        lo,
        hi,
    )
SERVED = (4, 8, 64, 512)
table(
    ["found of 24", *(f"d_k = {d_k}" for d_k in SERVED)],
    [
        [name, *(successes(learn_to_look(d_k, 1 / d_k**power, rate)) for d_k in SERVED)]
        for name, power, rate in (
            ("divided by √d_k, rate 10", 0.5, 10),
            ("divided by d_k, rate 1000", 1, 1000),
        )
    ],
)

# %% [markdown]
# So with plain gradient descent, and in this task, the root lets one learning rate serve heads of 8 to 512. But with
# $1/d_k$ the rate 1000 serves them about as well. What speaks for the root is the derivation, not this table.
#
# **Check the claim:** *large scores saturate softmax, and a saturated softmax has no gradient.* In lesson 01 softmax
# was followed by a logarithm, and the gradient of the pair was $p - q$, as far from zero as the answer was wrong,
# saturated or not. The rows *logarithm* above show the same for our queries: the steps raise $\ln w$, which takes the
# factor $w$ out of the gradient and leaves $1 - w$. So in this task large scores do harm through that factor. The claim
# holds for a softmax in the *middle* of a network. At its end, under the logarithm of the loss, the same large scores
# do no harm. (Attention can't choose the logarithm. Its weights get their gradient through the values, $dw = dy \cdot
# v$, never as $\ln w$ of a known right word.) With one rate:

# %% On the logarithm
measure(
    "d_k = 512, not divided, on the logarithm, rate 0.1: weight on the key",
    learn_to_look(512, 1, 0.1, on_log=True).mean(),
    0.95,
    1,
)

# %% [markdown]
# ## Experiment 2: which keys get a push?
#
# 1,000 random queries for each $d_k$, with 32 random keys each. If the loss wants the weight of key $r$ to grow, the
# push on its dot product is $c \, w_r (1 - w_r)$, with $c = 1$ or $1/\sqrt{d_k}$. Here are its median and its mean over
# all 32,000 keys.

# %% The push on a key
PUSH_SIZES, pushes = (4, 9, 16, 64, 256, 1024), {}
push_random = np.random.default_rng(1)
for d_k in PUSH_SIZES:
    dots = np.einsum(
        "nk,nsk->ns",
        push_random.normal(size=(1000, d_k)),
        push_random.normal(size=(1000, 32, d_k)),
    )
    for name, factor in ("plain", 1), ("root", 1 / math.sqrt(d_k)):
        weights = softmax(factor * dots)
        push = factor * weights * (1 - weights)
        pushes[name, d_k] = np.median(push), push.mean(), push
table(
    [
        "d_k",
        "median, not divided",
        "median, divided",
        "mean, not divided",
        "mean, divided",
    ],
    [
        [
            d_k,
            f"{pushes['plain', d_k][0]:.0e}",
            f"{pushes['root', d_k][0]:.4f}",
            f"{pushes['plain', d_k][1]:.4f}",
            f"{pushes['root', d_k][1]:.4f}",
        ]
        for d_k in PUSH_SIZES
    ],
)
ratio = pushes["root", 64][0] / pushes["plain", 64][0]
measure("d_k = 64, median: divided over not divided", ratio, 15_000, 60_000)
stronger = (pushes["plain", 64][2] > pushes["root", 64][2]).mean()
measure("d_k = 64: share of keys with more push, not divided", stronger, 0.03, 0.2)
ratio = pushes["root", 9][0] / pushes["plain", 9][0]
measure("d_k = 9, median: divided over not divided", ratio, 3.2, 5)
for d_k in 9, 64, 1024:
    measure(
        f"d_k = {d_k}, mean: not divided over divided",
        pushes["plain", d_k][1] / pushes["root", d_k][1],
        1.7,
        2.6,
    )

# %% [markdown]
# Without the division the *median* key gets nearly nothing, while the *mean* push is about twice as large as with it.
# Both are true: at $d_k = 64$ about 8 % of the keys get more push without the division, and all others get less.
#
# **The three words of the page, for a small $d_k$.** With $d_k = 9$ the dot products 0, 3 ln 2 and 3 ln 5 give 0, ln 2
# and ln 5 after the division. Without it, the exponentials are 1, 8 and 125, *street* has the weight 8/134, and its
# push is 0.056. With it, its push is 0.188 / 3 = 0.063, hardly more. The paper, too, suspects trouble only "for large
# values of $d_k$".

# %% The push on street
street = {}
for d_k in 9, 64:
    for name, scale in ("not divided", math.sqrt(d_k)), ("divided", 1):
        w = softmax(scale * np.log([1.0, 2.0, 5.0]))[1]
        street[name, d_k] = scale / math.sqrt(d_k) * w * (1 - w)
for d_k, lo, hi in (9, 1.1, 1.13), (64, 35.5, 36.1):
    ratio = street["divided", d_k] / street["not divided", d_k]
    measure(f"d_k = {d_k}: push on street, divided over not divided", ratio, lo, hi)

# %% [markdown]
# **All derivatives at once.** The derivatives of the weights form a matrix $J_{sr} = w_s ([s = r] - w_r)$. Its norm
# says how strongly the weights react to the scores $z$, and $cJ$ how strongly they react to the dot products. Here with
# division by $d_k$ as well, as a control: if smaller scores were always better, it would be better still.

# %% The norm of J
FACTORS = {
    "q·k": lambda d_k: 1.0,
    "q·k / √d_k": lambda d_k: 1 / math.sqrt(d_k),
    "q·k / d_k": lambda d_k: 1 / d_k,
}


def jacobian_norm(weights):
    """weights (n, S) -> (n,): the norm of d weights / d scores"""
    J = weights[:, :, None] * (np.eye(weights.shape[1]) - weights[:, None, :])
    return np.sqrt((J**2).sum(axis=(1, 2)))


SIZES, largest, norms = [4, 16, 64, 256, 1024], {}, {}
for d_k in SIZES:
    dots = np.einsum(
        "nk,nsk->ns",
        random.normal(size=(2000, d_k)),
        random.normal(size=(2000, 32, d_k)),
    )
    for name, factor in FACTORS.items():
        weights = softmax(dots * factor(d_k))
        largest[name, d_k], norms[name, d_k] = weights.max(
            axis=1
        ).mean(), jacobian_norm(weights)
first, second = np.sort(dots, axis=1)[:, :-3:-1].T  # d_k = 1024
close = first - second < 2
table(
    ["d_k", "", "largest weight", "median J", "median cJ", "mean cJ"],
    [
        [
            d_k,
            name,
            f"{largest[name, d_k]:.2f}",
            f"{np.median(norms[name, d_k]):.1e}",
            f"{factor(d_k) * np.median(norms[name, d_k]):.1e}",
            f"{factor(d_k) * norms[name, d_k].mean():.1e}",
        ]
        for d_k in SIZES
        for name, factor in FACTORS.items()
    ],
)
plain, root = (
    {d_k: norms[name, d_k] for d_k in SIZES} for name in ("q·k", "q·k / √d_k")
)
measure(
    "not divided: median J, d_k = 1024 over d_k = 4",
    np.median(plain[1024]) / np.median(plain[4]),
    0,
    1e-2,
)
measure(
    "divided by √d_k: the same", np.median(root[1024]) / np.median(root[4]), 0.95, 1.1
)
measure(
    "d_k = 64: median cJ, not divided over divided",
    np.median(plain[64]) / np.median(root[64]) * 8,
    3,
    8,
)
measure(
    "d_k = 1024: the same", np.median(plain[1024]) / np.median(root[1024]) * 32, 0, 0.1
)
measure(
    "d_k = 1024: the same of the means",
    plain[1024].mean() / root[1024].mean() * 32,
    5,
    12,
)
measure("d_k = 1024: two best keys less than 2 apart", close.mean(), 0.08, 0.18)
measure(
    "their part of the sum of cJ, not divided",
    norms["q·k", 1024][close].sum() / norms["q·k", 1024].sum(),
    0.65,
    0.9,
)
measure(
    "divided by d_k: largest weight at 1024 (uniform 0.031)",
    largest["q·k / d_k", 1024],
    0.031,
    0.036,
)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for panel, by_factor in zip(panels, (False, True)):
    for (name, factor), style, colour in zip(
        FACTORS.items(), ["o-", "s-", "^--"], [ACCENT, DARK, LIGHT]
    ):
        values = [
            np.median(norms[name, d_k]) * (factor(d_k) if by_factor else 1)
            for d_k in SIZES
        ]
        panel.loglog(SIZES, values, style, color=colour, label=name)
    panel.set(
        xlabel="d_k",
        title="of the dot products (cJ)" if by_factor else "of the scores (J)",
    )
    panel.set_xticks(SIZES, [str(d_k) for d_k in SIZES])
    panel.minorticks_off()
panels[0].set_ylabel("median norm of the derivative")
panels[0].legend()
show(
    figure,
    "05_lab_jacobian",
    alt="Median norm of the derivative of the weights against d_k from 4 to 1024, "
    "logarithmic, in two panels. With respect to the scores: not divided it stays "
    "near 0.3 up to 16, then falls by more than three powers of ten; with either "
    "division it is flat. With respect to the dot products: all three fall, and the "
    "one without a division is the highest up to 64, level with the root at 256, and "
    "the lowest at 1024.",
    caption="The division keeps softmax's own derivative alive (left). But up to $d_k "
    "= 64$ the dot products get less of it (right).",
)

# %% [markdown]
# 1. Without the division, softmax's own derivative $J$ collapses for the typical query. With the root it doesn't
#    depend on $d_k$.
# 2. But the division also makes the gradient of the dot products smaller. At $d_k = 64$ their $cJ$ is five to six times
#    *larger* without the division. At 256 the two are about level. At 1024 the typical query gets between a fiftieth
#    and a hundredth without it, depending on the random queries.
# 3. At 1024 the mean hides it. The 13 % of queries whose two best keys lie less than 2 apart make up three quarters of
#    the sum, so that the mean of $cJ$ stays higher without the division.
# 4. Division by $d_k$ keeps the derivative alive as well. What it loses at first is the *choice*: all keys get nearly
#    the same weight, whatever the query.
#
# **How far ahead is the winner?** For $d_k = 64$ and 32 keys, over 500 queries. Softmax turns a difference of scores
# into a ratio of weights, $e^{z_1 - z_2}$.

# %% The lead of the largest score
q, k = random.normal(size=(500, 64)), random.normal(size=(32, 64))
second, first = np.sort(q @ k.T, axis=1)[:, -2:].T
gap = measure(
    "lead of the largest dot product over the second, mean",
    (first - second).mean(),
    2.5,
    4.5,
)
measure(
    "e to the minus that: weight of the second over the first",
    math.exp(-gap),
    0.01,
    0.08,
)
measure("the same with the division", math.exp(-gap / 8), 0.55, 0.75)
for d_k in 4, 64, 1024:
    many_q, many_k = random.normal(size=(2, 20_000, d_k))
    measure(
        f"d_k = {d_k}: variance of q · k over d_k",
        (many_q * many_k).sum(axis=1).var() / d_k,
        0.95,
        1.05,
    )
for d_k in 1, 4, 16:  # each product is +1 or -1: all 2^d_k cases
    products = np.array(list(itertools.product([-1.0, 1.0], repeat=d_k)))
    mean_square = (products.sum(axis=1) ** 2).mean()
    same(f"±1, all {len(products):,} cases: mean square", mean_square, float(d_k))

# %% [markdown]
# **All 32 weights**, of one random query, without a division and with two.

# %% The figure of random keys
DIVISORS = {"q·k": lambda d_k: 1, "q·k / √d_k": math.sqrt, "q·k / d_k": lambda d_k: d_k}
figure_random = np.random.default_rng(3)
layout = {"sharex": True, "sharey": True, "layout": "constrained"}
figure, axes = plt.subplots(3, 3, figsize=(8, 5), **layout)
for row, d_k in zip(axes, (4, 64, 1024)):
    scores = figure_random.normal(size=(32, d_k)) @ figure_random.normal(size=d_k)
    for panel, divisor in zip(row, DIVISORS.values()):
        panel.axhline(1 / 32, color=ACCENT, linestyle="--", linewidth=1)
        weights = np.sort(softmax(scores / divisor(d_k)))[::-1]
        panel.bar(np.arange(1, 33), weights, color=DARK)
        panel.text(32, 0.85, f"largest {weights[0]:.2f}", ha="right")
    row[0].set_ylabel(f"d_k = {d_k}\nweight")
for panel, name in zip(axes[0], DIVISORS):
    panel.set_title(name)
for panel in axes[2]:
    panel.set_xlabel("keys, by weight")
show(
    figure,
    "05_lab_saturation",
    alt="Nine bar charts of attention weights over 32 random keys. Without a "
    "division, one key takes nearly all the weight as d_k grows from 4 to 1024. "
    "Divided by the root of d_k the bars look alike in all three rows. Divided by d_k "
    "they become flat, at the dashed line at 1/32.",
    caption="Weights of 32 random keys; the dashed line is 1/32. As $d_k$ grows, the "
    "left column collapses onto one key and the right one goes flat. Only the middle "
    "column stays as it is.",
)

# %% [markdown]
# **When the assumptions fail**, with $d_k = 64$: a query that equals its key; numbers with mean 1/2 and variance 1;
# and numbers with standard deviation 2. The size is the root mean square, over $\sqrt{d_k} = 8$.


# %% Other assumptions
def size_of(q, k):
    return math.sqrt(((q * k).sum(axis=1) ** 2).mean()) / 8


many_q, many_k = random.normal(size=(2, 20_000, 64))
measure("independent, mean 0, variance 1", size_of(many_q, many_k), 0.97, 1.03)
measure(
    "query equal to the key: about √d_k times as large",
    size_of(many_q, many_q),
    7.9,
    8.4,
)
measure(
    "mean 1/2: drifts to d_k / 4 = 16, twice √d_k",
    size_of(many_q + 0.5, many_k + 0.5),
    2.25,
    2.45,
)
measure(
    "standard deviation 2: four times as large",
    size_of(2 * many_q, 2 * many_k),
    3.9,
    4.1,
)

# %% [markdown]
# ## Experiment 3: a Transformer with and without
#
# Small Transformers were trained on the bundled corpus (2 layers, $d_{model} = 128$, 300 steps, seeds 0 to 2), with one
# head of $d_k = 128$, all at one learning rate. The factor $c$ before softmax is 1, or $1/\sqrt{d_k}$ as in the paper,
# or $1/d_k$.
#
# A factor says how large the scores are at the *start*, and how far a *step* in $W_Q$ and $W_K$ moves them. To take
# the two apart, three more variants have no factor, but $W_Q$ and $W_K$ that begin $d_k^{1/4}$ times smaller; or steps
# of theirs that are $d_k^{1/4}$ times smaller; or both. Adam takes steps whose length hardly depends on the size of
# the gradient, so a matrix that is everywhere smaller by a factor, start and steps, makes a query that is smaller by
# that factor, always. With *both*, each score is smaller by $d_k^{1/4} \cdot d_k^{1/4} = \sqrt{d_k}$: it is the
# paper's model in other units. A last variant has the paper's factor and the smaller steps.

# %% The table
result = recorded("attention_scaling")
rows = {row["variant"]: row for row in result["results"]}


def as_row(row):
    final = row["final_loss"]
    return [
        f"{final['mean']:.2f}",
        f"{final['lowest']:.2f} to {final['highest']:.2f}",
    ]


COLUMNS = ["loss", "lowest to highest"]
table(
    ["factor", *COLUMNS],
    [[variant, *as_row(row)] for variant, row in rows.items()],
)

# %% [markdown]
# The loss is the validation loss in nats per token, the mean over the seeds.


# %% Bands
def loss(variant, which):
    return rows[variant]["final_loss"][which]


PAPER, PAPER_SMALL_STEPS = "1/sqrt(d_k)", "1/sqrt(d_k), smaller steps"
early = [
    abs(dict(a["curve"])[25] - dict(b["curve"])[25])
    for a, b in zip(rows[PAPER]["runs"], rows["1, both smaller"]["runs"])
]
measure("both smaller: difference from the paper's after 25 steps", max(early), 0, 0.02)
measure(
    "both smaller: mean in the end − the paper's",
    loss("1, both smaller", "mean") - loss(PAPER, "mean"),
    -0.1,
    0.1,
)
for variant, lo, hi in (
    ("1", 1, 2.5),
    ("1, smaller start", 0.8, 2.5),
    ("1, smaller steps", 0.8, 2.5),
):
    measure(
        f"{variant}: lowest − the paper's highest",
        loss(variant, "lowest") - loss(PAPER, "highest"),
        lo,
        hi,
    )
measure(
    "1/d_k: highest − the paper's lowest",
    loss("1/d_k", "highest") - loss(PAPER, "lowest"),
    -1,
    -0.1,
)
measure(
    "1/d_k: mean − the paper's factor with smaller steps",
    loss("1/d_k", "mean") - loss(PAPER_SMALL_STEPS, "mean"),
    -0.1,
    0.1,
)
# %% The figure
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
looks = {
    "1": ("-", ACCENT),
    "1, smaller start": ("--", ACCENT),
    "1, smaller steps": (":", ACCENT),
    PAPER: ("-", DARK),
    PAPER_SMALL_STEPS: (":", DARK),
    "1/d_k": ("-", LIGHT),
}
for variant, (style, colour) in looks.items():
    curves = np.array([run["curve"] for run in rows[variant]["runs"]])
    axes.plot(
        curves[0, :, 0],
        curves[:, :, 1].mean(axis=0),
        ls=style,
        color=colour,
        lw=2,
        label=variant,
    )
axes.set(xlabel="step", ylabel="validation loss, nats per token", ylim=(0, 6))
axes.legend(title="factor", fontsize=9, loc="upper right")
show(
    figure,
    "05_lab_trained",
    alt="Validation loss over 300 steps for six of the variants, mean of three seeds. "
    "The three without a factor stay above 2.4 nats while the three with one fall to "
    "about 1.",
    caption="Validation loss during training. Without a factor (the upper curves) it "
    "falls more slowly.",
)

# %% [markdown]
# - **Without a factor, training suffers**: by more than a nat per token, for every seed.
# - **Two things go wrong, and either is enough.** Correct the steps and keep the large start, or correct the start and
#   keep the long steps: both end more than a nat above the paper's model. Correct both, and it follows the paper's
#   model: the losses differ by about 0.001 after 25 steps, and their means in the end by 0.05, less than three runs of
#   one model differ. (In exact arithmetic, and without Adam's ε, the two are the same model. We think that rounding and
#   ε make the difference; we haven't tested it.)
# - **The root isn't the optimum here.** $1/d_k$ ends lower for every seed. But the paper's factor with smaller steps
#   does as well. The root keeps the scores at the start the same for every $d_k$, but one size of head can't say which
#   power of $d_k$ is best for training. (This is a small model, early in its training.) Yang et al. (2022), [Tensor
#   Programs V](https://arxiv.org/abs/2203.03466), divide by $d_k$: trained queries and keys may point the same way, and
#   then their dot product grows like $d_k$ itself.
#
# **Is it the missing push?** One more control takes all pushes away: no gradient goes through any score, so $W_Q$ and
# $W_K$ stay as they were. Everything else trains. A gap that is left can't come from a missing push, since neither
# model has any.

# %% Without any push
unpushed = recorded("attention_without_push")
rows |= {row["variant"]: row for row in unpushed["results"]}
table(
    ["", "loss", "lowest to highest"],
    [
        [name, *as_row(rows[variant])]
        for name, variant in (
            ("divided by √d_k", PAPER),
            ("divided, no push", f"{PAPER}, no push"),
            ("not divided", "1"),
            ("not divided, no push", "1, no push"),
        )
    ],
)
MEAN = {row["variant"]: row["final_loss"]["mean"] for row in unpushed["results"]}
gap = MEAN["1, no push"] - MEAN[f"{PAPER}, no push"]
measure("gap without any push, of the means", gap, 0.4, 1)
gained = MEAN[f"{PAPER}, no push"] - loss(PAPER, "mean")
measure("the divided model gains by its pushes", gained, 0.4, 0.8)
measure(
    "the undivided model loses by its pushes",
    loss("1", "mean") - MEAN["1, no push"],
    0.1,
    0.8,
)

# %% [markdown]
# With pushes the gap is 1.65. Without any it is 0.65, and the two ranges are far apart. So that much is no missing
# push: large scores harm by themselves. The rest is what the divided model gains by its pushes, 0.60, and what the
# undivided one loses by its own, 0.40. So the missing push explains 0.60 of 1.65 at most, and the pushes that are there
# do harm. (The
# runs without a push were made on another processor than the others.)
#
# ## Experiment 4: the wrong root
#
# [A published implementation](../../docs/correctness.md) (AkiRusProd/numpy-nn-model) divides by $\sqrt{d_{model}}$
# instead of $\sqrt{d_k}$. With 8 heads the scores come out $\sqrt 8$ times too small. No gradient check objects, since
# backward belongs to this forward. In numbers, at the sizes of the base model:

# %% Two divisors
q, keys = random.normal(size=(500, 64)), random.normal(size=(32, 64))
for name, divisor, lo, hi in (
    ("√d_k = 8", 8, 0.14, 0.19),
    ("√d_model = 22.6", math.sqrt(512), 0.05, 0.08),
):
    measure(
        f"divided by {name}: largest of 32 weights, mean",
        softmax(q @ keys.T / divisor).max(axis=1).mean(),
        lo,
        hi,
    )

# %% [markdown]
# ## Checks
#
# The backward pass of the page against central differences, with a random upstream gradient; and the whole layer of the
# library, against the softmax of support/one_key.py. (In the library scores have a batch and a head axis, and a mask.
# Its factor is a Python float on purpose: `np.sqrt(64)` is a float64 scalar, and in NumPy 2 it would turn a float32
# model into a float64 one.)

# %% Against finite differences, and against the library
T, S, d_k = 3, 5, 7
scores, upstream = random.normal(size=(T, S)), random.normal(size=(T, S))
weights = softmax(scores / math.sqrt(d_k))
average = (weights * upstream).sum(axis=-1, keepdims=True)
dscores = weights * (upstream - average) / math.sqrt(d_k)
numeric = numeric_gradient(
    lambda scores: (softmax(scores / math.sqrt(d_k)) * upstream).sum(), scores
)
same("dscores: ours and finite differences", dscores, numeric, 1e-8)

q, k, v = (
    random.normal(size=shape) for shape in ((2, T, 1, 7), (2, S, 1, 7), (2, S, 1, 4))
)
y, _ = ScaledDotProductAttention().forward(q, k, v)  # (B, T or S, H, .)
for b in range(2):
    weights = softmax(q[b, :, 0] @ k[b, :, 0].T / math.sqrt(7))
    same(f"sentence {b}: softmax(Q K^T / √d_k) V", weights @ v[b, :, 0], y[b, :, 0])

# %% [markdown]
# Why a *random* upstream gradient? A simple check would take the sum of the weights as the loss, which is an upstream
# gradient of ones. But the weights of a row always add up to 1, so the true gradient of that sum is zero, and a
# backward that returns zeros passes:

# %% An upstream gradient of ones
ones = np.ones((T, S))
true = numeric_gradient(
    lambda scores: (softmax(scores / math.sqrt(d_k)) * ones).sum(), scores
)
measure("upstream of ones: largest true gradient", np.abs(true).max(), 0, 1e-9)
measure("random upstream: largest true gradient", np.abs(numeric).max(), 0.01, 1)
