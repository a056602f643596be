# %% [markdown]
# # 14 · The loss, and label smoothing
#
# **Cross-entropy rewards a model for being ever more certain. Should it?**
#
# *Needs [lesson 01](01_backprop.py) (softmax, cross-entropy and its gradient), [lesson 06](06_masks.py) (padding) and
# [lesson 13](13_whole_model.py) (the whole model) · you will compute the paper's loss and its gradient with pencil and
# paper, and see what it costs and what it gives.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import PAD
from scratchformer.training.run import load_run
from support.calibration import loss_floor
from support.calibration_pictures import diagram
from support.drawing import Drawing
from support.lesson import ROOT, measure, recorded, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# A small translator learns 300 sentence pairs, with the loss of lesson 01. Every 60 steps we test it on 150 pairs that
# it doesn't learn. For each **token**, a word or a piece of one, it gives every token of its vocabulary a probability.
# We look at three numbers:
#
# - its **loss**, the mean of $-\ln p$ of the right token, in nats;
# - its **accuracy**: how often is the token with the highest probability the right one?
# - its **confidence**: how high is that highest probability, on average?

# %% The text
translator = load_run(ROOT / "data/tiny_model")


def sentence_pairs(split, count):
    """The first pairs of a set, as ids"""
    texts = [(ROOT / f"data/tiny/{split}.{language}")
             .read_text(encoding="utf-8").splitlines()[:count]
             for language in ("en", "de")]
    return encode_pairs(translator.tokenizer.encode,
                        Pairs(*texts, list(range(count)), 0), 64, 64)


few = sentence_pairs("train", 300)
new = sentence_pairs("test", 150).batch(np.arange(150))


# %% The training
def softmax(z):
    """z (..., V) -> p (..., V), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def guesses(model, batch):
    """-> logits of all real target tokens (n, V) in float64, and the tokens (n,)"""
    real = batch.targets != PAD
    logits, _ = model.forward(*batch.inputs)
    return logits[real].astype(float), batch.targets[real]


def look(model, batch):
    """-> mean loss, accuracy, confidence"""
    z, targets = guesses(model, batch)
    loss_sum, n, _ = cross_entropy(z, targets)
    p = softmax(z)
    return loss_sum / n, (p.argmax(axis=-1) == targets).mean(), p.max(axis=-1).mean()


def learn_few(smoothing, seed=0, steps=240):
    """-> step and what `look` sees of new pairs, every 60 steps (4, 4); model"""
    config = ModelConfig(vocab_size=translator.model.config.vocab_size, d_model=32,
                         d_ff=64, h=2, N=1, P_drop=0.0)
    model, random, seen = Transformer(config, seed), np.random.default_rng(seed), []
    optimizer = Adam(model)
    for step in range(1, steps + 1):
        batch = few.batch(random.integers(0, len(few), 16))
        model.zero_grad()
        _, n = batch_loss_backward(model, batch.inputs, batch.targets, smoothing)
        model.store.grad /= n
        optimizer.step(0.008 * min(1, step / 30))
        if step % 60 == 0:
            seen.append((step, *look(model, new)))
    return np.array(seen), model


plain, model = learn_few(smoothing=0)
end, known = plain[-1], look(model, few.batch(np.arange(300)))
table(["step", "loss on new pairs", "accuracy", "confidence"],
      [[f"{step:.0f}", f"{loss:.2f}", f"{right:.2f}", f"{sure:.2f}"]
       for step, loss, right, sure in plain])
measure("on the 300 pairs that it learns: accuracy", known[1], 0.75, 0.87)
measure("on the 300 pairs that it learns: confidence", known[2], 0.6, 0.74)

# %% [markdown]
# After step 120 more and more guesses are right, and still the loss gets worse. What grows too fast is the
# confidence. At the end the model gives its guesses a probability of 0.53 on average, but only 31 of 100 are right. A
# model is **calibrated** if its guesses with probability 0.8 are right in 8 of 10 cases, and so on. This one is
# **overconfident**.
#
# The loss asked for it. On the pairs that it learns, the model is right in 8 of 10 cases, and its confidence, 0.69, is
# even lower than that. There it can lower the loss of its right guesses by being more sure. There's no end to this:
# $-\ln p$ falls as long as $p$ can still rise, and $p = 1$ would take infinite logits.
#
# The paper asks for less. The right word should get 0.9 instead of 1, and the rest is shared among the other words
# (§5.4). This is **label smoothing**. The paper says:
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# *Perplexity* is $e$ to the mean loss: a model that hesitates between 5 words, all alike, has perplexity 5. *BLEU*
# compares translations with those of a human, from 0 to 100 (lesson 00). How can one get worse and the other better?
#
# ## By hand: five words
#
# Take a vocabulary of $V = 5$ words and $\epsilon = 0.1$. We take 0.1 away from the right word, and the four other
# words get a quarter of it each. So the target is $q = (0.9, 0.025, 0.025, 0.025, 0.025)$.
#
# Three models give the right word the probability 0.6, 0.9 and 0.996. The other words share the rest equally.

# %% Drawing the bars
MODELS = {"unsure": 0.6, "as asked": 0.9, "very sure": 0.996}
WORDS = ("tired", "wide", "old", "street", "was")
Q = np.array([0.9, 0.025, 0.025, 0.025, 0.025])


def bars(backward):
    """Figures 1 and 2: p and q of three models, without and with p − q."""
    drawing = Drawing(760, 420 if backward else 320)
    for y, words in (90, "p"), (215, "q"):
        drawing.text(22, y, words, bold=True, size=17)
    if backward:
        drawing.text(10, 350, "p − q", "gradient", 15, "start", italic=True)
    for group, (name, sure) in enumerate(MODELS.items()):
        p = np.array([sure, *[(1 - sure) / 4] * 4])
        left = 85 + 235 * group
        drawing.text(left + 80, 20, name, bold=True)
        for i in range(5):
            x = left + 42 * i - 4
            role = "forward" if i == 0 else "ink"
            drawing.bar(x, 90, p[i], 26, 90, below=f"{p[i]:.3g}", role=role)
            drawing.bar(x, 215, Q[i], 26, 90, below=f"{Q[i]:.3g}", role=role)
            drawing.text(x, 292 + 15 * (i % 2), WORDS[i], "soft", 13)
            if backward:
                value = round(p[i] - Q[i], 3)
                words = f"{value:+g}".replace("-", "−") if value else "0"
                shift = 24 * (i % 2)
                drawing.gradient(x - 10, 345 + shift, -value, words, 13, largest=0.3)
    return drawing


show(bars(backward=False), "14_bars",
     alt="Bars for five words and three models. p of the right word, tired, is 0.6, "
     "0.9 and 0.996; the other four words have 0.1, 0.025 and 0.001 each. Below, the "
     "target q is the same for all three: 0.9 and four times 0.025.",
     caption="What three models say (p), and what label smoothing asks for (q). The "
     "right word is *tired*, in blue.")

# %% [markdown]
# **Forward.** The plain loss is $-\ln p$ of the right word. The smoothed loss weighs $-\ln p$ of *every* word by its
# share of the target. The right word has the share 0.9. The four wrong words together have 0.1, and here they all have
# the same $-\ln p$:
#
# | model | $-\ln p$, right word | $-\ln p$, a wrong word | plain loss | smoothed loss |
# |---|--:|--:|--:|--:|
# | unsure | 0.511 | 2.303 | 0.511 | 0.460 + 0.230 = **0.690** |
# | as asked | 0.105 | 3.689 | 0.105 | 0.095 + 0.369 = **0.464** |
# | very sure | 0.004 | 6.908 | **0.004** | 0.004 + 0.691 = **0.694** |
#
# The plain loss is lowest for the model that is very sure. For the smoothed loss this model is as bad as the unsure
# one, because it gives the wrong words too little. And even the best model, with $p = q$, still has a loss of 0.464.
#
# **Backward.** In lesson 01 the gradient of the logits was $p - q$. It still is, with the new $q$. Which logits
# should go up in each model, and which should go down?
#
# <details><summary>Make a guess, then unfold: figure 2</summary>

# %% Drawing the way back
show(bars(backward=True), "14_bars_backward",
     alt="The same bars with the gradients p minus q below. Unsure: minus 0.3 for "
     "tired, plus 0.075 for each other word. As asked: 0 everywhere. Very sure: plus "
     "0.096 for tired, minus 0.024 for each other word.",
     caption="The same bars with the gradients of the logits. A triangle points where "
     "the logit should go to make the loss smaller. In the very sure model all five "
     "point the other way than in the unsure one.")

# %% [markdown]
# - **Unsure:** the right word goes up ($0.6 - 0.9 = -0.3$: more logit, less loss), the others go down.
# - **As asked:** $p = q$, so all gradients are 0. The logits can rest.
# - **Very sure:** the right word goes *down*, the others *up*.
#
# Without smoothing, $q$ is (1, 0, 0, 0, 0). Then the right word is pushed up and the others down in all three models,
# and no logits exist where they rest.
#
# </details>
#
# The same in code:

# %%
def smoothed_loss_of(p, q):                     # p (V,), q (V,)
    return -(q * np.log(p)).sum()


for name, sure in MODELS.items():
    p = np.array([sure, *[(1 - sure) / 4] * 4])
    print(f"{name:10} loss {smoothed_loss_of(p, Q):.3f}, p - q", (p - Q).round(3) + 0)

# %% [markdown]
# ## In general
#
# With logits $z$ and $p = \mathrm{softmax}(z)$, the cross-entropy with a target $q$ is
#
# $$L = -\sum_v q_v \ln p_v = \ln \sum_u e^{z_u} - \sum_v q_v z_v$$
#
# The right side follows from $\ln p_v = z_v - \ln \sum_u e^{z_u}$, and from the $q_v$ adding up to 1. We compute the
# right side. On the left side a tiny probability can be rounded to 0, and $\ln 0$ is $-\infty$. ([Lab notes 14,
# experiment 1](lab/14_label_smoothing.py#experiment-1-which-side-to-compute))
#
# For $q$ there are two conventions, with a different idea of who gets $\epsilon$:
#
# | convention | right word | each other word | used by |
# |---|---|---|---|
# | `"others"`: the wrong words | $1 - \epsilon$ | $\frac{\epsilon}{V - 1}$ | the authors' code and ours |
# | `"uniform"`: all words | $1 - \epsilon + \frac{\epsilon}{V}$ | $\frac{\epsilon}{V}$ | the work the paper cites |
#
# A padded target (id 0) has no loss, so its whole row of $q$ is 0. The loss of a batch is the sum over its *real*
# tokens, divided by their number.
#
# **Your turn.** Open `exercises/14_smoothed_targets.py` for $q$ and `exercises/14_log_sum_exp.py` for the first term
# of the right side. (Think of logits like 1,000, whose exponential overflows.) Run `scratchformer learn check 14`. Our
# solution:

# %% Our solution
def smoothed_targets(targets, V, smoothing, spread="others"):
    """targets (...) int -> q (..., V): rows of sum 1; of zeros for padding"""
    everywhere = smoothing / (V - 1 if spread == "others" else V)
    on_target = 1 - smoothing if spread == "others" else 1 - smoothing + everywhere
    q = np.where(np.arange(V) == targets[..., None], on_target, everywhere)
    return q * (targets != PAD)[..., None]


def log_sum_exp(z):
    """z (..., V) -> ln of the sum of e^z, (...): no exponential is above 1, one is 1"""
    highest = z.max(axis=-1)
    return highest + np.log(np.exp(z - highest[..., None]).sum(axis=-1))


def smoothed_loss(z, q):
    """z, q (..., V) -> the sum of the losses of the real tokens"""
    real = q.any(axis=-1)
    return (log_sum_exp(z) * real).sum() - (q * z).sum()


# %% [markdown]
# ## Backward
#
# Follow one logit $z_j$ of one real token to its loss $\ln \sum_u e^{z_u} - \sum_v q_v z_v$. It takes part in both
# terms.
#
# - **The first term** doesn't depend on the target. Lesson 01 found its derivative: $\frac{e^{z_j}}{\sum_u e^{z_u}} =
#   p_j$.
# - **The second term** contains $z_j$ once, with the factor $q_j$. That gives $-q_j$.
#
# $$\frac{\partial L}{\partial z_j} = p_j - q_j$$
#
# A padded row has gradient 0. For the mean, divide by the number of real tokens, as in the loss.
#
# **Where do the logits rest?** The gradient is 0 only where $p = q$. A ratio of probabilities is $e$ to the
# difference of the logits. So the right logit is ahead of the others by a lead of
#
# $$g = \ln \frac{q_{\mathrm{right}}}{q_{\mathrm{wrong}}} = \ln \frac{(1 - \epsilon)(V - 1)}{\epsilon}$$
#
# In the miniature this is $\ln \frac{0.9}{0.025} = \ln 36 = 3.58$. We can watch it. Five logits start at 0 and go down
# the gradient, once with the plain loss and once with the smoothed one. How does the lead grow?
#
# <details><summary>Make a guess, then unfold: figure 3</summary>

# %% The lead
def lead_loss(g, smoothing, V=5):
    """The loss if the right one of V logits, the last, is g and the others are 0"""
    return cross_entropy(np.append(np.zeros(V - 1), g)[None], np.array([V - 1]),
                         smoothing)[0]


def descend(smoothing, steps, V=5, rate=1.0):
    """Gradient descent on one token's logits, equal at first. -> leads (steps,)"""
    z, target, lead = np.zeros((1, V)), np.array([V - 1]), []
    for _ in range(steps):
        _, _, dz = cross_entropy(z, target, smoothing)
        z -= rate * dz
        lead.append(z[0, -1] - z[0, 0])
    return np.array(lead)


figure, panels = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
leads, ways = np.linspace(0, 12, 97), {}
for smoothing, style, colour in (0, "-", ACCENT), (0.1, "--", DARK):
    ways[smoothing] = descend(smoothing, 3000)
    panels[0].plot(leads, [lead_loss(g, smoothing) for g in leads], style,
                   color=colour, lw=2, label=f"smoothing {smoothing}")
    panels[1].semilogx(np.arange(1, 3001), ways[smoothing], style, color=colour, lw=2)
rest = math.log(36)
panels[0].plot([rest], [lead_loss(rest, 0.1)], "o", color=DARK)
panels[1].axhline(rest, color="#888888", lw=0.8)
panels[0].set(xlabel="lead g of the right logit", ylabel="loss, nats", ylim=(0, 2))
panels[1].set(xlabel="step of gradient descent", ylabel="lead g", ylim=(0, 10))
panels[0].legend()
show(figure, "14_lead",
     alt="Left: loss of one token against the lead of the right logit, from 0 to 12. "
     "Without smoothing it falls towards 0 and never rises. With 0.1 it is lowest at a "
     "lead of 3.58, marked by a dot, and rises in a straight line beyond. Right: the "
     "lead over 3000 steps of gradient descent, on a logarithmic axis. Without "
     "smoothing it goes on rising in a straight line; with smoothing it stays level at "
     "3.58.",
     caption="Left: the smoothed loss has a lowest point, at a lead of 3.58 (dot). "
     "Right: there the lead comes to rest. Without smoothing it grows without end.")
measure("plain: lead after 300 steps", ways[0][299], 6, 8)
measure("plain: growth from step 300 to 3,000", ways[0][-1] - ways[0][299], 2.2, 2.4)
same("smoothed: lead after 3,000 steps, and ln 36", ways[0.1][-1], math.log(36), 1e-9)

# %% [markdown]
# The plain lead grows like a logarithm of time: ten times the steps add about $\ln 10 = 2.3$. The smoothed lead stays
# at $\ln 36$.
#
# </details>
#
# **Your turn.** Open `exercises/14_smoothed_cross_entropy_backward.py`, and run `scratchformer learn check 14`. Our
# solution, checked with padding and in both conventions:

# %% Our solution
def smoothed_loss_backward(z, targets, smoothing, spread="others"):
    """z (..., V), targets (...) -> dL/dz (..., V); L: mean over real tokens"""
    real = (targets != PAD)[..., None]
    q = smoothed_targets(targets, z.shape[-1], smoothing, spread)
    return (softmax(z) - q) * real / real.sum()


random, lengths = np.random.default_rng(14), np.array([2, 9, 4])
targets = np.where(np.arange(9) < lengths[:, None],
                   random.integers(1, 7, (3, 9)), PAD)              # (B, T)
z = random.normal(size=(3, 9, 7))                                   # (B, T, V)
for spread in "others", "uniform":
    q = smoothed_targets(targets, 7, 0.1, spread)
    dz = smoothed_loss_backward(z, targets, 0.1, spread)
    numeric = numeric_gradient(lambda z: smoothed_loss(z, q) / lengths.sum(), z)
    same(f"{spread}: gradient and central differences", dz, numeric, 1e-8)
    loss_sum, n, dlogits = cross_entropy(z, targets, 0.1, spread)
    same(f"{spread}: loss and gradient, this page and the library",
         [smoothed_loss(z, q) / lengths.sum(), *dz.reshape(-1)],
         [loss_sum / n, *(dlogits / n).reshape(-1)])

# %% [markdown]
# ## A smoothed loss is not a perplexity
#
# The best possible smoothed loss isn't 0. In the miniature it was 0.464, the loss of the model with $p = q$. This
# **floor** depends on $\epsilon$ and $V$.
#
# **Your turn.** What is the floor for the paper's $\epsilon = 0.1$ and $V = 37{,}000$? Open `exercises/14_floor.py`,
# and run `scratchformer learn check 14`. Our solution, and beside it the trained model of this project ($\epsilon =
# 0.1$, $V = 1600$) on 300 new sentences:

# %% Our solution
def floor(V, smoothing):
    """Spread over the others"""
    wrong = smoothing / (V - 1)
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(wrong)


same("ours and the library's", floor(37_000, 0.1), loss_floor(37_000, 0.1), 1e-9)
measure("the paper's size: floor", floor(37_000, 0.1), 1.3769, 1.377)
measure("our translator: floor", floor(1600, 0.1), 1.062, 1.063)
test = sentence_pairs("test", 300).batch(np.arange(300))
z, t = guesses(translator.model, test)
p = softmax(z)
losses = [cross_entropy(z, t, smoothing)[0] / len(t) for smoothing in (0.1, 0)]
measure("our translator: smoothed loss", losses[0], 1.12, 1.15)
measure("our translator: plain loss", losses[1], 0.095, 0.104)
measure("our translator: accuracy", (p.argmax(axis=-1) == t).mean(), 0.99, 0.996)
measure("our translator: median confidence", np.median(p.max(axis=-1)), 0.92, 0.935)

# %% [markdown]
# The same model on the same text has a smoothed loss of 1.135 and a plain loss of 0.099. So don't take $e$ to a
# smoothed loss, and don't compare it with a plain loss, or with a run that has another $\epsilon$ or $V$. This
# library smooths the training loss only, and reports plain nats for validation.
#
# Look at the last two rows as well. The model is right in 99 of 100 cases and says 0.93. It learned what it was asked
# for, about 0.9. So this model is **underconfident**.
#
# ## What it costs and what it gives
#
# Let's test the paper's sentence. A model of two layers with $d_{model} = 64$ trains for 600 steps, on little text or
# on plenty:
#
# - **1,000 pairs**: it reads them again and again, and knows them by heart.
# - **20,000 pairs**: it sees none of them more than twice.
#
# Each trains with $\epsilon = 0$ and $\epsilon = 0.1$, three times. We test on 500 new sentences. All losses below
# are plain, so they can be compared. Will smoothing hurt the loss in both cases? And the calibration?
#
# <details><summary>Make a guess, then unfold: the results</summary>

# %% Three runs each
runs = {(row["pairs"], row["eps_ls"]): row["runs"]
        for row in recorded("label_smoothing")["results"]}


def of_runs(pairs, smoothing, name):
    return np.array([run[name] for run in runs[pairs, smoothing]])      # (3,)


table(["pairs", "smoothing", "loss", "accuracy", "confidence", "BLEU"],
      [[f"{pairs:,}", smoothing,
        *(f"{of_runs(pairs, smoothing, name).mean():.{digits}f}"
          for name, digits in (("nats", 2), ("accuracy", 3), ("confidence", 2),
                               ("bleu", 1)))]
       for pairs in (1_000, 20_000) for smoothing in (0.0, 0.1)])

# %% How well calibrated?
figure = diagram(runs, [(0, "o-", ACCENT), (0.1, "s--", DARK)])
figure.axes[0].text(0.55, 0.12, "overconfident", ha="left")
figure.axes[0].text(0.05, 0.9, "underconfident", ha="left")
show(figure, "14_calibration",
     alt="Share of guesses that are right against their probability, two panels with a "
     "diagonal. Trained on 1,000 pairs, the line without smoothing lies below the "
     "diagonal: guesses of 0.75 are right in 0.54 of cases. That of 0.1 lies close "
     "above it. Trained on 20,000 pairs, the line without smoothing lies close above "
     "the diagonal, that of 0.1 farther above.",
     caption="Guesses sorted by their probability into ten bins. On the diagonal a "
     "model is calibrated. Smoothing moves both models upwards: one towards the "
     "diagonal, the other away from it.")

# %% [markdown]
# **Plenty of text.** Smoothing costs about 0.1 nats, in each of the three pairs of runs. Accuracy and BLEU are higher
# in each of them, but by little: BLEU by 1.1 points on average, while two *plain* runs differ by up to 8. So we clearly
# see the first half of the paper's sentence. The second half has the right sign, but three runs are too few to be
# sure.
#
# **Little text.** Here smoothing makes the loss *better*, by 0.17 nats on average. So "hurts perplexity" isn't true
# everywhere.
#
# **Calibration.** Without smoothing, the model of little text is overconfident, and the model of plenty is slightly
# underconfident. Smoothing makes both less sure. That repairs most of the first and harms the second. The mean distance
# from the diagonal, over all guesses, goes from 0.12 to 0.05 with little text, and from 0.03 to 0.14 with plenty.
#
# </details>
#
# The model of the opening is a case of little text. Trained with smoothing, it ends with a better loss, and it is less
# overconfident:

# %% The opening, smoothed
smoothed = learn_few(smoothing=0.1)[0][-1]
measure("loss at the end: smoothed − plain", smoothed[1] - end[1], -0.9, -0.3)
measure("plain: confidence − accuracy", end[3] - end[2], 0.15, 0.3)
measure("smoothed: confidence − accuracy", smoothed[3] - smoothed[2], 0.04, 0.15)
for pairs, lo, hi in (1_000, -0.2, -0.14), (20_000, 0.09, 0.125):
    difference = of_runs(pairs, 0.1, "nats") - of_runs(pairs, 0, "nats")
    assert lo < difference.min() <= difference.max() < hi
for pairs, plain_error, smoothed_error in (1_000, 0.12, 0.05), (20_000, 0.03, 0.14):
    for smoothing, error in (0, plain_error), (0.1, smoothed_error):
        errors = [run["calibration"]["error"] for run in runs[pairs, smoothing]]
        assert round(np.mean(errors), 2) == error
bleu = of_runs(20_000, 0.1, "bleu") - of_runs(20_000, 0, "bleu")
assert bleu.min() > 0 and round(bleu.mean(), 1) == 1.1
assert 7.5 < np.ptp(of_runs(20_000, 0, "bleu")) < 8.5

# %% [markdown]
# Now the riddle of the paper's sentence: how can perplexity get worse, and BLEU better? Perplexity asks *how large*
# the probability of the right word is. Choosing a word only asks whether it's *the largest*. You can take a trained
# model, multiply each probability by 0.9 and share out the other 0.1. Its loss rises by up to $-\ln 0.9 = 0.105$. But
# the order of the words stays the same, so if we always take the likeliest word, each translation stays the same.
# So being unsure costs perplexity, and by itself it changes no such translation. If smoothing improves BLEU, it must be
# because the model learned other weights. ([Lab notes 14, experiment
# 4](lab/14_label_smoothing.py#experiment-4-check-the-claim-hurts-perplexity))
#
# ## Paper and code
#
# - §5.4: $\epsilon_{ls} = 0.1$, citing [Szegedy et al. 2016](https://arxiv.org/abs/1512.00567). They spread
#   $\epsilon$ over all classes. The authors' code (Tensor2Tensor) spreads it over the $V - 1$ others, and that's our
#   default, too. Table 3 (D) has runs with 0 and 0.2.
# - Padding and the start symbol count as wrong words and get their share. The Annotated Transformer leaves padding
#   out and divides by $V - 2$.
# - The paper doesn't say what the loss is divided by. We divide by the real target tokens of a step, as the authors'
#   code does.
# - In the library: `cross_entropy` in [nn/loss.py](../scratchformer/nn/loss.py), based on
#   [nn/ops.py](../scratchformer/nn/ops.py). `loss_floor` is in
#   [lessons/support/calibration.py](../lessons/support/calibration.py).
# - More on calibration: [Guo et al. 2017](https://arxiv.org/abs/1706.04599); with and without smoothing: [Müller et
#   al. 2019](https://arxiv.org/abs/1906.02629).
#
# ## What to remember
#
# With label smoothing the target is 0.9 for the right word and a little for every other word. The gradient is still
# $p - q$, so logits rest at a finite lead, and the loss has a floor above 0. The model becomes less sure. This costs
# perplexity where text is plentiful, and it helped our overconfident models.
#
# **Exercises** `14_smoothed_targets` · `14_log_sum_exp` · `14_smoothed_cross_entropy_backward` · `14_floor` · a puzzle:
#
# *A run with $V = 37{,}000$ and $\epsilon = 0.1$ reports a smoothed training loss of 1.2 nats. What do you conclude?*
#
# <details><summary>Answer</summary>
#
# Something is wrong with the report, since 1.2 lies below the floor of 1.377. Perhaps smoothing was forgotten. Perhaps
# the floor was subtracted, as Tensor2Tensor does. Or the mean runs over padding, which adds zeros and still counts.
#
# </details>
#
# **Next:** [15 · Adam and warm-up](15_adam_and_warmup.py). We have a loss and its gradient. How far should we go along
# it?
