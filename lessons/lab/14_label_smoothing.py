# %% [markdown]
# # Lab notes 14 · The loss, label smoothing and dropout
#
# Behind [lesson 14](../14_label_smoothing.py): longer runs with BLEU, and a check of the paper's sentence about
# perplexity and BLEU.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import numpy as np

from support.lesson import recorded, table

# %% [markdown]
# ## Experiment 1: little text and plenty
#
# Two layers, $d_{model} = 64$, no dropout, 600 steps, with 1,000 pairs or all 20,000 of the bundled corpus. Runs of
# the same number begin with the same weights and see the same batches, so we compare them in pairs. All losses are
# plain, on 500 new sentences. BLEU is that of greedy translations. Recorded by
# [benchmarks/label_smoothing.py](../../benchmarks/label_smoothing.py), with the library's loss: it spreads $\epsilon$
# over the $V - 1$ wrong pieces, and lesson 14 over all $V$. With $V$ = 1,600, the targets differ by less than 0.0001.

# %% All runs
runs = {(row["pairs"], row["eps_ls"]): row["runs"]
        for row in recorded("label_smoothing")["results"]}


def of_runs(pairs, smoothing, name):
    return np.array([run[name] for run in runs[pairs, smoothing]])      # (3,)


COLUMNS = {"nats": "loss", "accuracy": "accuracy", "confidence": "confidence",
           "bleu": "BLEU"}
table(["pairs", "smoothing", *COLUMNS.values()],
      [[f"{pairs:,}", smoothing,
        *(f"{of_runs(pairs, smoothing, name).mean():.3f}" for name in COLUMNS)]
       for pairs, smoothing in runs])


def differences(pairs, smoothing, name):
    return of_runs(pairs, smoothing, name) - of_runs(pairs, 0, name)


COMPARED = [                # pairs, smoothing, what, bounds of all three differences
    (20_000, 0.1, "nats", 0.09, 0.125), (20_000, 0.1, "accuracy", 0, 0.01),
    (20_000, 0.1, "bleu", 0, 2.5), (1_000, 0.1, "nats", -0.2, -0.14),
    (1_000, 0.1, "bleu", -1, 2)]
rows = []
for pairs, smoothing, name, lo, hi in COMPARED:
    found = differences(pairs, smoothing, name)
    assert lo <= found.min() and found.max() <= hi, (pairs, smoothing, name, found)
    if lo < 0 < hi:
        assert found.min() < 0 < found.max(), (pairs, smoothing, name, found)
    rows.append([f"{pairs:,}", f"{smoothing} − 0", COLUMNS[name],
                 ", ".join(f"{each:+.3f}" for each in found)])
table(["pairs", "smoothing", "difference in", "the three runs"], rows)
assert [round(gain, 1) for gain in differences(20_000, 0.1, "bleu")] == [1.8, 0.2, 1.1]
assert [round(gain, 1) for gain in differences(1_000, 0.1, "bleu")] == [1.5, -0.6, 1.8]

# %% [markdown]
# **Plenty of text.** With 0.1 the loss rises in all three runs, by 0.10 to 0.11 nats. Accuracy and BLEU are higher in
# all three, which chance alone would give once in eight.
#
# **Little text.** With 0.1 the loss falls in all three runs. BLEU has both signs.
#
# The two cases differ in more than the amount of text. One reads its pairs again and again, the other was stopped
# while it was still learning. We haven't tested which of these matters. Nor have we tested dropout together with
# smoothing (the paper has both), or larger models.
#
# ## Experiment 2: check the claim "hurts perplexity"
#
# > Label smoothing "hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# How much must it hurt, if being unsure is all that happens? Take the models that were trained *without* smoothing,
# and smooth each of their probabilities by hand, with $s = \frac{\epsilon}{V - 1}$:
#
# $$p' = (1 - \epsilon) p + s (1 - p)$$
#
# The last term isn't negative, so $-\ln p'$ lies at most $-\ln (1 - \epsilon)$ above $-\ln p$. We call that the
# **tax**. (Where $p$ is below $\frac{1}{V}$, $p'$ is larger than $p$, and the loss falls.) All probabilities of a
# token go through the same rising function, so their order stays. So accuracy and greedy translations stay exactly as
# they are.

# %% The tax
rows = []
for pairs, smoothing, by_hand_band, trained_band in (
    (20_000, 0.1, (0.92, 0.95), (1, 1.05)),
    (1_000, 0.1, (-1.5, -1.3), (-1.75, -1.55)),
):
    tax = -math.log(1 - smoothing)
    by_hand = np.mean([run["mixed_nats"] - run["nats"]
                       for run in runs[pairs, 0]]) / tax
    trained = differences(pairs, smoothing, "nats").mean() / tax
    assert by_hand_band[0] < by_hand < by_hand_band[1]
    assert trained_band[0] < trained < trained_band[1]
    rows.append([f"ours, {pairs:,} pairs", smoothing, f"{tax:.4f}", f"{by_hand:.2f}",
                 f"{trained:.2f}"])
for smoothing, perplexity, expected in (0.1, 4.92, 0.495), (0.2, 5.47, 0.709):
    tax = -math.log(1 - smoothing)
    rise = math.log(perplexity / 4.67) / tax    # Table 3: 4.67 without smoothing, (D)
    assert abs(rise - expected) < 0.001
    rows.append(["the paper, Table 3 (D)", smoothing, f"{tax:.4f}", "", f"{rise:.2f}"])
table(["runs", "smoothing", "tax, nats", "smoothed by hand: rise over the tax",
       "trained with it: rise over the tax"], rows)

# %% [markdown]
# With plenty of text, training with 0.1 costs about the tax. In the paper the rise is about half and 0.7 of the tax.
#
# With little text the loss falls, and it falls for the models smoothed by hand, too, by most of what training with
# smoothing gained. Only words with $p$ below $\frac{1}{V}$ can bring that about. Where a model is confident and wrong,
# it gains from being less confident of everything.
#
# So "hurts perplexity, as the model learns to be more unsure" is right where text is plentiful, and the tax tells how
# much to expect. But a model that is made unsure by hand translates as before. In greedy translation being unsure can
# improve nothing *by itself*. If smoothing does, then by other weights, learned from another gradient. We haven't
# tested why those might translate better.
#
# (The paper's translations come from beam search, which compares products of probabilities. There, smoothing by hand
# can change which translation wins. We haven't tested it.)
