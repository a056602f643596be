# %% [markdown]
# # Lab notes 21 · BLEU, its error bars, and averaging checkpoints
#
# The experiments and controls behind [lesson 21](../21_bleu_and_averaging.py): sums against means of sentences, rules
# of splitting, why BLEU has no slope, whether a 95 % interval is one, how many sentences would decide, the theory of
# averaging and its test in training, and one sentence on its way through the whole translator.

# %%
import course  # noqa: F401  finds lessons/support

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from scratchformer.decoding.search import search
from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import batch_loss, batch_loss_backward
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import Example, read_text
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run
from support import bleu_by_hand
from support.bleu_by_hand import bleu
from support.lesson import QUICK, ROOT, measure, recorded, same, table, varying

translator = load_run(ROOT / "data/tiny_model")
english, german, *_ = read_text("test")
split_13a = Tokenizer13a()


def tokens(lines):
    return [split_13a(line).split() for line in lines]


wanted = tokens(german)


def table_of(lines, references=wanted):
    return bleu_by_hand.count_table(tokens(lines), references)


record = recorded("averaging")
systems = {(each["seed"], each["n"], each["rate"]): each["lines"]
           for each in record["translations"]}
texts = {(seed, n): lines for (seed, n, rate), lines in systems.items()
         if rate == "schedule"}
small = {key: table_of(lines) for key, lines in texts.items()}          # (500, 9) each
translations = {f"beam {size}": translator.translate(english, beam=size)
                for size in (1, 4)}                                     # 1: greedy
tables = [table_of(lines) for lines in translations.values()]

# %% [markdown]
# The BLEU of the lesson's formula against sacreBLEU, unrounded, for a good and a worse translator:

# %%
for name, lines in ("shipped model", translations["beam 1"]), \
        ("small translator", texts[2, 1]):
    same(f"{name}: BLEU, and sacreBLEU's", bleu(table_of(lines).sum(axis=0)),
         corpus_scores(lines, german).bleu)

# %% [markdown]
# ## Experiment 1: sums over the test set
#
# One could compute BLEU for each sentence and take the mean. But a sentence without a right run of four words has $p_4
# = 0$, and so BLEU 0, whatever else is in it. Six systems: three small translators, trained alike but for the seed,
# each with its last weights and with a mean of five.

# %%
def gap(rows):
    """BLEU of the corpus − the mean of its sentences'"""
    return bleu(rows.sum(axis=0)) - bleu(rows).mean()


measure("corpus − mean of sentences: least of six", min(map(gap, small.values())),
        1.5, 2.5)
above_0 = [rows[bleu(rows) > 0] for rows in small.values()]
measure("the same without sentences of BLEU 0: largest of six",
        max(abs(gap(rows)) for rows in above_0), 0, 0.8)
zeros = np.concatenate([rows[bleu(rows) == 0] for rows in small.values()])
measure("sentences with BLEU 0, of 500, mean of six", len(zeros) / 6, 20, 32)
measure("share of their words that are right", zeros[:, 0].sum() / zeros[:, 4].sum(),
        0.65, 0.85)

# %% [markdown]
# About one sentence in twenty gets 0, with three quarters of its words right. These make the gap: without them the two
# scores are within one point. In the sums, a sentence without a run of four still counts with its words and pairs.
#
# ## Experiment 2: what is a word?
#
# One of the six systems under three rules of sacreBLEU: *13a* makes words of punctuation marks, *none* cuts at spaces
# only, *char* makes a word of every letter.

# %%
usual, *others = (BLEU(tokenize=rule).corpus_score(texts[0, 5], [german]).score
                  for rule in ("13a", "none", "char"))
measure("none − 13a", others[0] - usual, -1.8, -0.7)
measure("char − 13a", others[1] - usual, 4, 8)
measure("hyphens in the references", sum(line.count("-") for line in german), 0, 0)

# %% [markdown]
# The script beside the paper's code also cuts words at their hyphens, so that one compound counts as three words. Our
# text has none, so we can't measure that.
#
# Recall, the share of the reference that was found, would stop short translations too, with one reference. But BLEU was
# made for several references of a sentence, and nobody should write the words of all of them. So it asks only for the
# length. A single word over and over scores 0 even without clipping: its pairs are in no reference.
#
# ## Experiment 3: BLEU has no slope
#
# A small move of one weight changes the scores of the next piece a little. Search takes the largest, and a small move
# doesn't change which that is. So the text stays, letter by letter: the derivative is 0. Where two pieces are exactly
# level, BLEU jumps, and the derivative doesn't exist. (If translations are sampled by their probabilities, the
# *expected* score has a slope; Shen et al., 2016, "Minimum Risk Training for Neural Machine Translation", use that.)
#
# Here are the loss and BLEU along one random direction $u$, as long as the vector of all weights, on forty sentences.

# %%
model = translator.model
at_start, few = model.store.data.copy(), slice(0, 40)
batch = teacher_forced(translator.tokenizer,
                       [Example(source, target, "", "", [], None)
                        for source, target in zip(english[few], german[few])])
u = np.random.default_rng(2).normal(size=at_start.size).astype(at_start.dtype)
u *= np.linalg.norm(at_start) / np.linalg.norm(u)                       # (867328,)


def loss_and_bleu(h):
    """The weights moved by h u -> loss in nats per piece, BLEU of greedy search"""
    model.store.data[...] = at_start + h * u
    model.store.refresh()
    loss, n_pieces = batch_loss(model, batch[:2], batch[2])
    rows = table_of(translator.translate(english[few], beam=1), wanted[few])
    model.store.data[...] = at_start
    model.store.refresh()
    return float(loss) / n_pieces, float(bleu(rows.sum(axis=0)))


h = 0.001
(loss_behind, bleu_behind), (loss_ahead, bleu_ahead) = map(loss_and_bleu, (-h, h))
model.zero_grad()
_, n_pieces = batch_loss_backward(model, batch[:2], batch[2])
slope = float(model.store.grad @ u) / n_pieces
numeric = (loss_ahead - loss_behind) / (2 * h)
measure("loss: its slope by differences", numeric, -0.055, -0.047)
measure("loss: by differences − by its gradient", numeric - slope, -0.002, 0.002)
measure("BLEU: its slope by differences", (bleu_ahead - bleu_behind) / (2 * h), 0, 0)

# %% [markdown]
# ## Experiment 4: is it a 95 % interval?
#
# Before any interval, a simpler question: do two random halves of the test set agree on greedy against beam 4?

# %%
random, opposed = np.random.default_rng(0), []
for _ in range(200 if QUICK else 1000):
    halves = np.split(random.permutation(500), 2)
    greedy, beam = (np.array([bleu(rows[half].sum(axis=0)) for half in halves])
                    for rows in tables)
    opposed.append((beam - greedy).prod() < 0)
measure("pairs of halves that prefer different systems", np.mean(opposed), 0.28, 0.48)

# %% [markdown]
# In more than a third of the splittings one half says *greedy* and the other *beam*.
#
# A 95 % interval should hold the true difference in 95 of 100 test sets. To know the truth we let our 500 sentences be
# the whole world, sample test sets of 100 from it, and make the interval from each of them alone.

# %%
def holds_the_truth(a, b, random, n_sets=100 if QUICK else 300):
    """a, b (500, 9) -> share of test sets whose interval holds the difference of all"""
    truth, held = bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)), 0
    for test_set in random.integers(0, 500, (n_sets, 100)):
        low, high = bleu_by_hand.difference_interval(
            a[test_set], b[test_set], random.integers(0, 100, (200, 100)))
        held += low <= truth <= high
    return held / n_sets


random = np.random.default_rng(3)
n_differing = sum(a != b for a, b in zip(*translations.values()))
measure("mean of 5 − last: truth inside",
        holds_the_truth(small[0, 1], small[0, 5], random), 0.84, 0.98)
measure("beam 4 − greedy: truth inside", holds_the_truth(*tables, random), 0.3, 0.6)
measure("sets of 100 in which nothing differs, expected",
        (1 - n_differing / 500) ** 100, 0.25, 0.6)

# %% [markdown]
# For the mean of five it is a 95 % interval, or nearly. For greedy and beam search it isn't at all: they differ in so
# few sentences that many a set of 100 holds none of them, and its interval goes from 0 to 0. The bootstrap can only
# sample what the test set has.
#
# ## Experiment 5: how many sentences would decide?
#
# Smaller and larger samples from the same table, and the width of their intervals:

# %%
for S, lo, hi in (125, 2.3, 3.7), (500, 1, 1.9), (2000, 0.5, 1):
    sets = np.random.default_rng(2).integers(0, 500, (200 if QUICK else 1000, S))
    low, high = bleu_by_hand.difference_interval(small[0, 1], small[0, 5], sets)
    half_width = measure(f"{S} sentences: half the width", (high - low) / 2, lo, hi)
measure("sentences for half a width of 0.3", S * (half_width / 0.3) ** 2, 7_000, 18_000)
of_seeds = [bleu(small[seed, 1].sum(axis=0)) for seed in (0, 1, 2)]
measure("three trainings that differ in the seed: best − worst",
        max(of_seeds) - min(of_seeds), 1.2, 2.4)

# %% [markdown]
# Four times the sentences halve the width, as with any mean. Another seed is worth about half as much as the gain
# from averaging, and that is in no interval of this kind.
#
# ## Experiment 6: why a mean of weights can be better
#
# One coordinate $x$ near its best value 0, with the loss $\frac{1}{2} \lambda x^2$: the slope is $\lambda x$, plus a
# noise $\xi$ (xi) of variance $\sigma^2$ that is new in each step. With the learning rate $\eta$:
#
# $$x \leftarrow x - \eta (\lambda x + \xi) = (1 - \eta \lambda) x - \eta \xi$$
#
# After a while the variance of $x$, $\tau^2$ (tau), stays the same: what the noise adds, the pull takes away.
#
# $$\tau^2 = (1 - \eta \lambda)^2 \tau^2 + \eta^2 \sigma^2 \quad \Rightarrow \quad
# \tau^2 = \frac{\eta \sigma^2}{\lambda (2 - \eta \lambda)}$$
#
# The expected loss is $\frac{1}{2} \lambda \tau^2$; it never reaches 0 unless $\eta$ does. Now take the mean of $K$
# checkpoints, $m$ steps apart. Two of them, $j$ checkpoints apart, have the covariance $\tau^2 \rho^j$ with $\rho = (1
# - \eta \lambda)^m$, since each step keeps $1 - \eta \lambda$ of $x$ and adds noise that is new. The variance of a mean
# is the mean of all $K^2$ covariances: $K$ of them have $j = 0$, and $2 (K - j)$ of them each other $j$.
#
# $$\tau_K^2 = \frac{\tau^2}{K} \left( 1 + 2 \sum_{j=1}^{K-1} \left( 1 - \frac{j}{K} \right) \rho^j \right)$$
#
# If the checkpoints are far apart, $\rho$ is near 0, and **the mean has $1/K$ of the loss**. If they are close
# together, or the direction is so flat that $x$ hardly comes back, $\rho$ is near 1 and nothing is gained. A simulation
# with $\eta = 0.2$, $\sigma = 1$, $K = 5$ (loss of the mean over loss of one):

# %%
def predicted(K, rho):
    """-> the loss of the mean of K checkpoints, over that of one"""
    j = np.arange(1, K)
    return (1 + 2 * ((1 - j / K) * rho**j).sum()) / K


eta, steps, n_walks = 0.2, 150, 1000 if QUICK else 5000
random = np.random.default_rng(4)
for direction, lam, m, lo, hi in [("steep, 30 steps apart", 1, 30, 0.18, 0.22),
                                  ("steep, 1 step apart", 1, 1, 0.68, 0.76),
                                  ("flat, 30 steps apart", 0.01, 30, 0.87, 0.95)]:
    walk = np.empty((steps + 1, n_walks))
    walk[0] = random.normal(size=n_walks) * np.sqrt(eta / (lam * (2 - eta * lam)))
    for step in range(steps):
        noise = random.normal(size=n_walks)
        walk[step + 1] = walk[step] - eta * (lam * walk[step] + noise)
    kept = walk[[steps - m * i for i in range(5)]]                      # (5, n_walks)
    found = (kept.mean(axis=0) ** 2).mean() / (kept**2).mean()
    measure(f"{direction}: predicted {predicted(5, (1 - eta * lam)**m):.3f}, found",
            found, lo, hi)

# %% [markdown]
# ## Experiment 7: the same in training
#
# A model half as wide as the shipped one, 1,500 steps, seeds 0, 1 and 2; weights kept every 30 steps
# ([benchmarks/averaging.py](../../benchmarks/averaging.py)). Its learning rate follows the paper's schedule, so it is
# far from 0 at the end. *Rate to 0*: it falls to 0 in the last 300 steps, from the same weights and with the same
# batches. It's trained by Adam, with many weights and a loss that is no parabola, so the derivation can't say how much.

# %%
def row(n, apart="save_every", rate="schedule"):
    return next(each for each in record["results"]
                if (each["n"], each["apart"], each["rate"]) == (n, apart, rate))


last, five, falling = row(1), row(5), row(1, rate="to 0")
table(["weights", "loss of three seeds", "BLEU of three seeds"],
      [[name, *(", ".join(f"{value:.{digits}f}" for value in way[quantity])
                for quantity, digits in (("loss", 3), ("bleu", 1)))]
       for name, way in {
           "last": last, "5 successive steps": row(5, apart="one step"),
           **{f"mean of {n}": row(n) for n in (2, 5, 10, 20, 40)},
           "rate to 0": falling, "rate to 0, mean of 5": row(5, rate="to 0")}.items()])
for name, a, b, of_loss, of_bleu in [
        ("mean of 5 − last", last, five, (-0.075, -0.05), (2.6, 3.8)),
        ("5 successive steps − last", last, row(5, apart="one step"), (-0.01, 0.01),
         (-0.5, 0.8)),
        ("rate to 0 − last", last, falling, (-0.055, -0.025), (2.8, 4)),
        ("rate to 0: mean of 5 − last", falling, row(5, rate="to 0"), (-0.01, 0.01),
         (-0.8, 0.4)),
        ("mean of 10 − mean of 5", five, row(10), (-0.02, 0), (-0.4, 0.7)),
        ("mean of 40 − last", last, row(40), (0.01, 0.05), (-9, -5))]:
    measure(f"{name}: loss", b["mean_loss"] - a["mean_loss"], *of_loss)
    measure(f"{name}: BLEU", b["mean_bleu"] - a["mean_bleu"], *of_bleu)

# %% [markdown]
# All three predictions came true, in BLEU too. Between five and ten, BLEU doesn't decide.
#
# **A falling rate or a mean of five?** Seed by seed, with the paired bootstrap (1,000 samples, seed 1):

# %%
samples = np.random.default_rng(1).integers(0, 500, (300 if QUICK else 1000, 500))
apart, inside = [], 0
for seed in (0, 1, 2):
    a, b = table_of(systems[seed, 5, "schedule"]), table_of(systems[seed, 1, "to 0"])
    low, high = bleu_by_hand.difference_interval(a, b, samples)
    sampled = [bleu_by_hand.bleu_of_samples(rows, samples) for rows in (a, b)]
    apart.append(sampled[1] - sampled[0])
    inside += low < 0 < high
    varying(f"seed {seed}: {bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)):+.2f} BLEU, "
            f"interval {low:+.2f} to {high:+.2f}")
measure("seeds whose interval holds 0", inside, 3, 3)
low, high = bleu_by_hand.interval(np.mean(apart, axis=0))
measure("mean of the three seeds: lower end", low, -1, -0.3)
measure("mean of the three seeds: upper end", high, 0.5, 1.3)
loss_apart = np.subtract(falling["loss"], five["loss"])
measure("rate to 0 − mean of 5, loss: least of three seeds", loss_apart.min(), 0.01,
        0.03)

# %% [markdown]
# In loss, the falling rate is worse in all three seeds, by 0.017 to 0.027. In BLEU it's +0.63, +0.23 and −0.17, and no
# interval excludes 0.
#
# An earlier version of lesson 21 had a run of the same program and the same seeds on another processor (Intel Xeon,
# 2026-11-21, commit a3a2d82). Its differences in BLEU were +0.78, +0.65 and +1.33, and the page concluded that the
# falling rate translates better although its validation loss is higher. Three equal signs have p = 1/8 in one direction
# and 1/4 in either, Student's interval over those three seeds was 0.9 ± 0.9, and each difference was smaller than the
# half-width of the test set's interval. The translations of that run weren't kept. With them kept, and on another
# processor, one sign changed. So six runs favour the falling rate five times, and don't decide. The gain of the mean of
# five over the last weights was 2.0 BLEU there and is 3.2 here.
#
# ## One sentence, all the way
#
# The translator is complete. One sentence on its way through it, each line with its lesson:

# %%
sentence, right = ("The horse leaves the street because it is too dark.",
                   "Das Pferd verlässt die Straße, weil sie zu dunkel ist.")
ids = np.array([[*translator.tokenizer.encode([sentence])[0], EOS]])    # (1, 15)
[[best]] = search(model, ids, beam=4, alpha=0.6, extra_length=50)
[text] = translator.tokenizer.decode([best.ids])
logits, cache = model.forward(ids, np.array([[BOS, *best.ids]]))        # (1, T, V)
shapes = dict.fromkeys(str(weights.shape) for weights in attention_weights(cache))
score = bleu(table_of([text], tokens([right]))[0])
print("17      pieces       ", *translator.tokenizer.pieces(ids[0]))
print("08, 09  vectors      ", f"{ids.shape[1]} of {model.config.d_model} numbers")
print("04-07   attention    ", *shapes)
print("11-13   layers, model", f"{model.config.N} + {model.config.N} layers;",
      f"scores {logits.shape}")
print("20      beam search  ", f"{len(best.ids)} pieces, score {best.score:.2f}")
print("17      text         ", text)
print("21      BLEU         ", f"{score:.1f}")

# %% [markdown]
# The three shapes of attention are the encoder's, the decoder's, and that of the decoder over the encoder's output. The
# weights came from batches of pairs ([18](../18_batches.py)), the smoothed loss ([14](../14_label_smoothing.py)), a
# gradient carried backwards through every layer by hand (01 to 13), Adam and the warm-up
# ([15](../15_adam_and_warmup.py)), a training that was watched ([16](../16_first_training.py),
# [19](../19_train_a_translator.py)), and the mean of the last five checkpoints.
