# %% [markdown]
# # 20 · Beam search
#
# *About 35 minutes. You need: [lesson 06](06_masks.py) (the causal mask), [lesson 13](13_whole_model.py) (the whole
# model), [lesson 14](14_label_smoothing.py) (label smoothing), [lesson 17](17_byte_pairs.py) (pieces) and [lesson
# 19](19_train_a_translator.py) (the trained translator and its BLEU). You will have: beam search in thirty lines, a
# search that proves which sentence is the likeliest, and a measured answer to whether you want that one.*

# %% Imports
import math
import time
from itertools import product

import matplotlib.pyplot as plt
import numpy as np

from library.lesson import QUICK, ROOT, duration, measure, recorded, same, show
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import length_penalty, search
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.text.batches import encode_sequences
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **The model gives a probability to every next piece. How do we find the sentence that it finds most likely, and is
# that the sentence we want?**
#
# The answer in one sentence: keep the few likeliest beginnings instead of one, and do not ask for the likeliest
# sentence but for the best *score*, for what the model finds likeliest may be a sentence that leaves things out.
#
# So far, sentences were written *greedily*: take the likeliest piece, write it down, ask again. Here is one of the
# test set. $\log P$ is the natural logarithm of the probability of the whole sentence, in nats: the sum over its
# pieces, `</s>` included. Both lines are judged by the same model.

# %%
translator = load_run(ROOT / "data/tiny_model", dtype="float64")
model, tokenizer = translator.model, translator.tokenizer
V = model.config.vocab_size


def ids_of(sentence):
    """-> (1, S), </s> last"""
    return np.array([[*tokenizer.encode([sentence])[0], EOS]])


def log_softmax(logits):
    """(..., V) -> (..., V)"""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_probability(source_ids, ids):
    """log P of a whole sentence, in nats. source_ids (1, S), ids without </s>"""
    logits, _ = model.forward(source_ids, np.array([[BOS, *ids]]))             # (1, n + 1, V)
    return log_softmax(logits[0])[np.arange(len(ids) + 1), [*ids, EOS]].sum()


SENTENCE = "If the child is sad, the cows sleep in front of the door."
source_ids = ids_of(SENTENCE)
[[greedy]] = search(model, source_ids, beam=1)
better = tokenizer.encode(["Wenn das Kind traurig ist, schlafen die Kühe vor der Tür."])[0]
print(f"{SENTENCE}\ngreedy: {tokenizer.decode([greedy.ids])[0]}\nbetter: {tokenizer.decode([better])[0]}")
measure("greedy: log P", log_probability(source_ids, greedy.ids), -3.1, -2.9)
measure("better: log P", log_probability(source_ids, better), -2.5, -2.3)
measure("logarithm to base 10 of the number of sentences of 25 pieces", 25 * math.log10(V), 80, 80.2)

# %% [markdown]
# *Die Kühe* are several, so they *schlafen*; greedy search wrote *schläft*, of one. The model knows: it gives the
# right sentence the higher probability. It is the search that missed it. To try all sentences is out of the question:
# of 25 pieces alone there are $10^{80}$.
#
# ## The idea in one picture
#
# Where did it go wrong? Below, two beginnings are kept at each step instead of one, and each is continued by its
# likeliest pieces. The number under a piece is $\log P$ of the sentence up to there; `▁` is a space.

# %%
def next_log_p(source_ids, written):
    """log P of each piece to come next, (W, V). written: W lists of t ids. The slow way: the whole prefix is read."""
    logits, _ = model.forward(np.repeat(source_ids, len(written), axis=0), np.array([[BOS, *ids] for ids in written]))
    log_p = log_softmax(logits[:, -1])
    log_p[:, [PAD, BOS]] = -np.inf                             # never written
    return log_p


def best_continuations(alive, log_p, m):
    """alive (W,): log P of each beginning, log_p (W, V) -> the m largest sums: (log P, which beginning, piece)"""
    totals = np.array(alive)[:, None] + log_p                                      # (W, V)
    best = np.argsort(-totals, axis=None)[:m]
    return [(totals.flat[i], int(i // log_p.shape[1]), int(i % log_p.shape[1])) for i in best]


K, alive, written, layers = 2, [0.0], [[]], []
for _ in range(12):
    layers.append(best_continuations(alive, next_log_p(source_ids, written), 2 * K))
    alive = [total for total, _, _ in layers[-1][:K]]
    written = [[*written[parent], piece] for _, parent, piece in layers[-1][:K]]
for words, to, since, lo, hi in [("'▁schl' at the fork", layers[6][0], layers[5][0], 0.45, 0.52),
                                 ("'▁schla' at the fork", layers[6][1], layers[5][0], 0.35, 0.42),
                                 ("'▁die▁Kü' after 'schläft'", layers[10][1], layers[8][0], 0.26, 0.34),
                                 ("'▁die▁Kü' after 'schlafen'", layers[9][1], layers[7][1], 0.58, 0.68)]:
    measure(f"probability of {words}", math.exp(to[0] - since[0]), lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(9, 3.9), layout="constrained")
at = {0: (0, 0)}                                               # the beginnings kept -> where they stand
axes.text(0, 0, f"... ist,\n{layers[5][0][0]:.2f}", ha="center", va="center",
          bbox=dict(boxstyle="round", fc="white", ec=DARK))
for x, layer in enumerate(layers[6:12], start=1):
    places = {}
    for rank, (total, parent, piece) in enumerate(layer):
        is_kept, y = rank < 2, (0.6, -0.6, -1.9, -2.9)[rank]
        text = f"{tokenizer.pieces([piece])[0]}\n{total:.2f}"
        axes.annotate("", (x - 0.2, y), (at[parent][0] + 0.2, at[parent][1]), zorder=0, arrowprops=dict(
            arrowstyle="-", lw=2 if is_kept else 0.9, ls="-" if is_kept else ":", color=DARK if is_kept else "#666666"))
        axes.text(x, y, text, ha="center", va="center", fontsize=9.5, color="black" if is_kept else "#555555",
                  bbox=dict(boxstyle="round", fc="#dbe9f6" if is_kept else "white", ec=DARK if is_kept else "#bbbbbb"))
        places[rank] = (x, y)
    at = places
axes.text(0, 1.35, "kept", color=DARK, ha="center", weight="bold")
axes.text(0, -2.4, "dropped", color="#555555", ha="center")
axes.set(xlim=(-0.5, 6.5), ylim=(-3.4, 1.7), title="A beam of 2 keeps the second best beginning, and it overtakes")
axes.axis("off")
show(figure, "20_tree", alt="A tree of pieces with the log probability of the sentence so far. From 'ist,' at -0.42 it "
     "forks into 'schl' at -1.14 and 'schla' at -1.37. Up to 'ft' the first leads. With 'die' it falls to -1.89; the "
     "other, 'schlafen die Kühe', passes it and stands at -2.07 against -2.66 two steps later. The two dropped "
     "continuations of each step are drawn faint, most of them below -4.")

# %% [markdown]
# At the fork, *schl-ä-ft* is ahead of *schla-fen*. Then comes the subject, *die Kühe*, which does not go with
# *schläft*: there the model gives *die Kü* 0.30, after *schlafen* 0.63, and the other line overtakes. What a piece
# costs may show only later. Greedy search has no other beginning left by then; a beam has.
#
# ## The equation, and the same in code
#
# Let $x$ be the source and $Y = y_1 \dots y_n$ a sentence whose last piece is `</s>`. Its log probability is a sum.
# Finished sentences are ranked by a *score*: that sum divided by a length penalty. (The paper names the penalty and its
# $\alpha$; the formula is from Wu et al. 2016, *Google's Neural Machine Translation System*, which it cites.)
#
# $$\log P(Y) = \sum_{t=1}^{n} \log P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# $$s(Y) = \frac{\log P(Y)}{lp(n)}, \qquad lp(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# With $\alpha = 0$ the penalty is 1. Why divide? Every piece adds a negative number to the sum, so of two sentences in
# which all pieces are equally sure, the shorter is the likelier. With $\alpha = 1$ and large $n$ the score is nearly
# the *mean* per piece, times 6, and length matters no more; the paper's $\alpha = 0.6$ lies between. The 5 softens the
# formula for short sentences.
#
# A beginning of $t$ pieces is a *hypothesis*. The beam keeps $W \le K$ of them: one at first, then $K$. One step: $a_w$
# (`alive`) is $\log P$ of hypothesis $w$, and $\ell_{wv}$ (`log_p`; no loss here) that of piece $v$ as its next one.
# All $W \cdot V$ continuations have $a_w + \ell_{wv}$ (`totals`), and the largest are taken, **across** the hypotheses.
#
# ## Forward

# %%
def lp(n, alpha):
    return ((5 + n) / 6) ** alpha


def beam_by_hand(next_log_p, longest, K, alpha, nbest=1):
    """The nbest: (score, log P, ids with </s>), best first. next_log_p: W lists of ids -> (W, V)"""
    alive, done = [(0.0, [])], []
    for t in range(1, longest + 1):
        log_p = next_log_p([ids for _, ids in alive])                              # (W, V)
        options = [(total, [*alive[w][1], v]) for total, w, v in
                   best_continuations([total for total, _ in alive], log_p, 2 * K) if np.isfinite(total)]
        done += [(total / lp(t, alpha), total, ids) for total, ids in options if ids[-1] == EOS]
        done = sorted(done, reverse=True)[:K]
        alive = [(total, ids) for total, ids in options if ids[-1] != EOS][:K]
        if len(done) >= nbest and done[nbest - 1][0] >= alive[0][0] / lp(longest, alpha):
            break
    return done[:nbest]


def of(source_ids):
    """-> next_log_p for this source alone"""
    return lambda written: next_log_p(source_ids, written)


for score, total, ids in beam_by_hand(of(source_ids), source_ids.size + 50, 4, 0.6, nbest=3):
    print(f"score {score:6.3f}   log P {total:7.3f}   {tokenizer.decode([ids[:-1]])[0]}")

# %% [markdown]
# Three choices in it deserve a reason.
#
# - **Why $2K$ continuations?** A finished hypothesis must leave the beam, or it would take the place of one that can
#   still grow. Each of the $W \le K$ hypotheses can end in one way only, so among $2K$ at least $K$ go on.
# - **When may it stop?** A living hypothesis only loses: its $\log P$ falls with each piece. The best it can ever
#   score is its present $\log P$, divided by the largest penalty, that of the greatest length. If the `nbest`-th
#   finished score is at least that, nothing alive can come among the `nbest` that are asked for.
# - **Why a greatest length?** A model may never write `</s>`. The paper allows the source's length plus 50.
#
# ## Backward: none, and what follows
#
# The search chooses; a choice has no slope. Follow a number of the model to the output: a weight changes a logit by a
# little, the order of the totals stays as it is, and the ids are the same ids. They change only where two totals are
# equal, and there they jump. So the derivative is 0 wherever it exists.

# %%
weights, [[before]] = model.store.data.copy(), search(model, source_ids)
model.store.data += 1e-7 * np.random.default_rng(0).normal(size=weights.shape)
[[after]] = search(model, source_ids)
model.store.data[:] = weights
measure("all weights move by about 1e-7: pieces that change", sum(a != b for a, b in zip(before.ids, after.ids)), 0, 0)
measure("    change of log P", abs(after.log_probability - before.log_probability), 1e-9, 1e-3)

# %% [markdown]
# $\log P$ of a *fixed* sentence does have a gradient: that is the training loss. What follows from the missing one:
#
# - $K$ and $\alpha$ cannot be learnt by descent. They are tried out on validation text, as the paper did (§6.1).
# - The model is trained on beginnings that people wrote, and searches among beginnings that it wrote itself. No
#   gradient tells it about the difference. (Ranzato et al. 2016, *Sequence Level Training with Recurrent Neural
#   Networks*, call it exposure bias. How much it matters here we have not tested.)
#
# ## Check
#
# Ours against the library's, all $K$ hypotheses of several sentences. Then ours against brute force: a *table* gives
# random probabilities to 3 words and the end after each beginning. At most 5 pieces make 121 sentences, so all can be
# scored. There are $3^4 = 81$ beginnings of 4 words, with $81 \cdot 4$ continuations: a beam with $2K = 324$ drops
# nothing and must find the best. Smaller ones need not.

# %%
def lines_of(name):
    return (ROOT / "data/tiny" / name).read_text(encoding="utf-8").splitlines()


for sentence in lines_of("test.en")[:2 if QUICK else 4]:
    ids = ids_of(sentence)
    ours = beam_by_hand(of(ids), ids.size + 50, 3, 0.6, nbest=3)
    [theirs] = search(model, ids, beam=3, alpha=0.6, nbest=3)
    assert [ids[:-1] for _, _, ids in ours] == [hypothesis.ids for hypothesis in theirs]
    same("three scores", [score for score, _, _ in ours], [each.score for each in theirs], 1e-9)
same("length penalty", lp(np.arange(1, 50), 0.6), length_penalty(np.arange(1, 50), 0.6))

# %%
LONGEST = 5


def table(seed):
    """-> a function like next_log_p, of random numbers: 3 words (0, 2, 3) and the end (1)"""
    rows = {ids: log_softmax(1.5 * np.random.default_rng([seed, *ids]).normal(size=4))
            for n in range(LONGEST) for ids in product((0, 2, 3), repeat=n)}
    return lambda written: np.array([rows[tuple(ids)] for ids in written])


def brute_force(next_log_p, alpha):
    """The best score of all 121 sentences"""
    return max(sum(next_log_p([ids[:t]])[0][piece] for t, piece in enumerate((*ids, EOS))) / lp(n + 1, alpha)
               for n in range(LONGEST) for ids in product((0, 2, 3), repeat=n))


def first_score(next_log_p, K):
    """-inf if no hypothesis ended"""
    return max((score for score, _, _ in beam_by_hand(next_log_p, LONGEST, K, 0.6)), default=-np.inf)


tables = [table(seed) for seed in range(40 if QUICK else 100)]
truth = np.array([brute_force(each, 0.6) for each in tables])
found = {K: np.array([first_score(each, K) for each in tables]) for K in (1, 2, 4, 162)}
for K, lo, hi in (1, 0.55, 0.88), (2, 0.88, 1), (4, 0.96, 1), (162, 1, 1):
    measure(f"beam {K}: share of tables whose best sentence it finds", (found[K] > truth - 1e-12).mean(), lo, hi)

# %% [markdown]
# Last, the cost. `next_log_p` reads the whole prefix for each new piece: $1 + 2 + \dots + n$ positions. The causal mask
# (lesson 06) makes that unnecessary: what a position computes never depends on a later one, so its keys and values can
# be kept. `Transformer.step` takes the newest piece alone and looks at what was kept. When hypotheses change places in
# the beam, their keys and values move with them (`DecodingState.select`).

# %%
long_source, n = ids_of(lines_of("test_long.en")[0]), 30 if QUICK else 40
pieces, state = np.random.default_rng(0).integers(4, V, (1, n)), begin_decoding(model, long_source)
positions = {"whole prefix": 0, "kept": 0}
start = time.perf_counter()
for t in range(n):
    slow, _ = model.forward(long_source, pieces[:, :t + 1])
    positions["whole prefix"] += slow.shape[1]
middle = time.perf_counter()
for t in range(n):
    quick, state = decoding_step(model, pieces[:, t:t + 1], state)
    positions["kept"] += quick.shape[1]
duration(f"{positions['whole prefix']} positions, the whole prefix each time", middle - start)
duration(f"{positions['kept']} positions, keys and values kept", time.perf_counter() - middle)
same("logits of the last piece", quick[0, -1], slow[0, -1], 1e-9)
measure("positions, one way over the other: (n + 1) / 2", positions["whole prefix"] / positions["kept"], 15.5, 20.5)

# %% [markdown]
# Both loops compute the same logits, so the library uses the second. Time falls less than the number of positions. One
# reason can be read in the formula: the newest piece still looks at all $t$ that are kept, so those products are
# $1 + 2 + \dots + n$ even now. How much of the time that is we have not measured.
#
# ## Experiment 1: does it find the likeliest sentence?
#
# On the tables, brute force knew. Among $1600^n$ sentences it cannot, but $\log P$ only falls as a sentence grows: a
# beginning that is less likely than some *finished* sentence is lost, with all that could come of it. So take what the
# beam found, keep **every** beginning that is still ahead of it, however many, and what is left at the end is the
# likeliest sentence ($\alpha = 0$), but for the rounding of floats. (Stahlberg & Byrne 2019, *On NMT Search Errors and
# Model Errors: Cat Got Your Tongue?*, proved it for their models by a search of the same kind, depth first.)
#
# Two sets: the test set, and `test_long`, sentences of the same grammar, but far longer than most of the training text.

# %%
def likeliest_sentence(source_ids, found):
    """-> log P and ids with </s>; `found`: log P of some finished sentence"""
    alive, best = [(0.0, [])], (found - 1e-6, [])              # a little less, so that this sentence is found again
    while alive:
        t = len(max(alive)[1])                                 # go on where the likeliest stands, up to 16 at once
        front = sorted((each for each in alive if len(each[1]) == t), reverse=True)[:16]
        totals = np.array([total for total, _ in front])[:, None] + next_log_p(source_ids, [ids for _, ids in front])
        options = [(totals[w, v], [*front[w][1], int(v)]) for w, v in np.argwhere(totals > best[0])]
        best = max([best, *(option for option in options if option[1][-1] == EOS)])
        rest = [each for each in alive if each not in front]
        alive = [(total, ids) for total, ids in rest + options if total > best[0] and ids[-1] != EOS]
    return best


def sources_of(lines):
    return encode_sequences(tokenizer.encode, lines).padded(np.arange(len(lines)))


COUNT = {"test": 90 if QUICK else 200, "test_long": 6 if QUICK else 14}           # the first ones
BEAMS = {"test": [(1, 0), (4, 0), (4, 0.6)],                                       # K, alpha
         "test_long": [(1, 0), (4, 0), (4, 0.6), (16, 0), (16, 0.6)]}
english, german = ({name: lines_of(f"{name}.{suffix}")[:COUNT[name]] for name in COUNT} for suffix in ("en", "de"))
found = {(name, *setting): [best for lines in np.array_split(english[name], math.ceil(COUNT[name] / 50))
                            for [best] in search(model, sources_of(lines.tolist()), *setting)]
         for name in COUNT for setting in BEAMS[name]}


def log_p_of(name, K, alpha=0):
    """(COUNT[name],)"""
    return np.array([best.log_probability for best in found[name, K, alpha]])


length = {name: np.mean([len(line.split()) for line in lines_of(f"{name}.en")]) for name in ("train", "test_long")}
measure("test_long: words of a sentence, over those of the training text", length["test_long"] / length["train"], 3, 4)

# %%
PARTS = {"test": slice(75, 90) if QUICK else slice(0, 100), "test_long": slice(0, 3 if QUICK else 5)}
BANDS = {"test": {1: (1, 1, 0.003, 0.1), 4: (0, 0, 0, 1e-5)},
         "test_long": {1: (2, 5, 4, 60), 4: (1, 4, 0.2, 20), 16: (0, 3, 0, 4)}}
exact = {}
for name, part in PARTS.items():
    log_p = {K: log_p_of(name, K)[part] for K in BANDS[name]}
    exact[name] = [likeliest_sentence(ids_of(line), bound)
                   for line, bound in zip(english[name][part], np.max([*log_p.values()], axis=0))]
    for K, bands in BANDS[name].items():
        behind = np.array([best for best, _ in exact[name]]) - log_p[K]
        measure(f"{name}, beam {K}: missed, of {len(behind)} sentences", (behind > 1e-5).sum(), *bands[:2])
        measure("    nats behind the likeliest, on average", behind.mean().clip(0), *bands[2:])

# %% [markdown]
# On these test sentences the beam of 4 is no approximation: what it finds *is* the likeliest sentence. Greedy search
# misses one of a hundred, the one with the cows. On the long sentences greedy search misses most, by many nats. Is that
# bad? Here is the first of them.

# %%
written = {"greedy": [best.ids for best in found["test_long", 1, 0][PARTS["test_long"]]],
           "likeliest": [ids[:-1] for _, ids in exact["test_long"]]}
print(english["test_long"][0])
for way, hypotheses in written.items():
    print(f"{way:10}{tokenizer.decode(hypotheses[:1])[0]}")
scores = {way: corpus_scores(tokenizer.decode(hypotheses), german["test_long"][PARTS["test_long"]])
          for way, hypotheses in written.items()}
for way, bands in ("greedy", [(23, 40), (0.6, 1.1)]), ("likeliest", [(2, 11), (0.2, 0.5)]):
    measure(f"{way}, {len(written[way])} sentences: BLEU", scores[way].bleu, *bands[0])
    measure("    words, over those of the reference", scores[way].length_ratio, *bands[1])

# %% [markdown]
# The likeliest sentence is right as far as it goes, and then it stops. All of these together have little more than a
# third of the words of the references, and less than half the BLEU of greedy search with all its errors. (Stahlberg and
# Byrne found the extreme: for more than half of their sentences, the likeliest translation was the empty one.)
#
# ## Experiment 2: short sentences, and the penalty
#
# Short ones have fewer negative numbers to add up. In a sentence of the test set this decides:

# %%
PUT = "The teacher put the small gift under the bridge on Tuesday."
[[short]], [[long]] = (search(model, ids_of(PUT), beam=4, alpha=alpha) for alpha in (0, 0.6))
for alpha, best in (0, short), (0.6, long):
    print(f"alpha {alpha}: {tokenizer.decode([best.ids])[0]}   ({len(best.ids) + 1} pieces with </s>)")
measure("log P: short less long", short.log_probability - long.log_probability, 0.02, 0.15)
short_score = short.log_probability / lp(len(short.ids) + 1, 0.6)
measure("score with alpha = 0.6: short less long", short_score - long.score, -1, -0.02)

# %% [markdown]
# Without a penalty, *on Tuesday* is gone: to leave it out is cheaper. (That the longer one has *die kleine Geschenk*
# for *das* is another error. The penalty knows nothing of grammar.)
#
# Now whole texts. BLEU (lesson 19) counts the runs of words shared with the reference, as a share of what was written.
# Who writes little can have a high share. So BLEU multiplies by a *brevity penalty*: $e^{1 - r/c}$ for a text of $c$
# words, if its references have more, $r > c$. To tell the two effects apart, the column "bare" is BLEU divided by this
# penalty, and "length" is $c/r$. "Empty" is the share of sentences for which `</s>` alone is likelier than what the
# search found. The first rows are recorded, from one model trained on the 29,000 sentence pairs of Multi30k, captions
# that people wrote.

# %%
rows = {("Multi30k", row["beam"], row["alpha"] if row["beam"] > 1 else 0): row
        for row in recorded("beam_sizes")["results"]}
empty = {name: log_softmax(model.forward(sources_of(english[name]), np.full((n, 1), BOS))[0])[:, 0, EOS]
         for name, n in COUNT.items()}                                                         # (n,)
for (name, K, alpha), hypotheses in found.items():
    scores = corpus_scores(tokenizer.decode([best.ids for best in hypotheses]), german[name])
    rows[name, K, alpha] = {
        "log_probability": log_p_of(name, K, alpha).mean(), "length_ratio": scores.length_ratio, "bleu": scores.bleu,
        "tokens": np.mean([len(best.ids) + 1 for best in hypotheses]),
        "empty_is_likelier": (empty[name] > log_p_of(name, K, alpha) + 1e-9).mean()}
print("           beam  alpha    log P  length   BLEU   bare  empty")
for (name, K, alpha), row in rows.items():
    row["bare"] = row["bleu"] / math.exp(min(0, 1 - 1 / row["length_ratio"]))
    print(f"{name:10} {K:4} {alpha if K > 1 else '':>6} {row['log_probability']:8.2f} {row['length_ratio']:7.3f} "
          f"{row['bleu']:6.1f} {row['bare']:6.1f} {row['empty_is_likelier']:6.2f}")

# %%
for name, lo, hi in ("test", 0.05, 0.15), ("Multi30k", 0.44, 0.47), ("test_long", 0.3, 0.8):
    row = rows[name, 1, 0]
    measure(f"{name}, greedy: nats per piece", -row["log_probability"] / row["tokens"], lo, hi)
for name, to, since, bands in [("Multi30k", (2, 0.6), (1, 0), [(1, 1.1), (1, 1.4)]),
                               ("Multi30k", (16, 0.6), (2, 0.6), [(-0.3, -0.1), (1, 1.4)]),
                               ("Multi30k", (16, 0), (1, 0), [(-2.7, -2.6), (4, 4.3)]),
                               ("test", (4, 0), (1, 0), [(-1, 1), (-1, 1)]),
                               ("test_long", (16, 0), (1, 0), [(-35, -10), (5, 35)]),
                               ("test_long", (16, 0.6), (16, 0), [(1, 20), (-10, 10)])]:
    for column, band in zip(("bleu", "bare"), bands):
        gain = rows[name, *to][column] - rows[name, *since][column]
        measure(f"{name}, {column}: (beam, alpha) = {to} less {since}", gain, *band)
differing = [i for i, (one, four) in enumerate(zip(found["test", 1, 0], found["test", 4, 0])) if one.ids != four.ids]
measure("test: sentences that beam 4 without penalty writes otherwise than greedy search", len(differing), 1, 3)
print(*(f"    {english['test'][i]}" for i in differing), sep="\n")
nothing = sum(not best.ids for best in found["test_long", 16, 0])
measure("test_long, (16, 0): sentences translated by nothing at all", nothing, 1, 5)
crumb = 0.1 / (V - 1)
measure("P of a piece that has nothing but its crumb of smoothing", crumb, 6.2e-5, 6.3e-5)
measure("P of the empty sentence, median of test, over the crumb", np.exp(np.median(empty["test"])) / crumb, 1.5, 3)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.5), layout="constrained")
for alpha, style, colour in (0, "s--", ACCENT), (0.6, "o-", DARK), (1, "^:", "#555555"):
    chosen = [rows["Multi30k", K, alpha if K > 1 else 0] for K in (1, 2, 4, 8, 16)]
    for panel, column in zip(panels, ("bleu", "length_ratio")):
        panel.plot((1, 2, 4, 8, 16), [row[column] for row in chosen], style, color=colour)
        panel.annotate(f"α = {alpha:g}", (16, chosen[-1][column]), (6, -10 if alpha == 0.6 else 1), color=colour,
                       textcoords="offset points")
for panel, title, label in zip(panels, ("Without penalty, larger beams lose BLEU ...", "... as sentences shrink"),
                               ("BLEU", "words, over those of the reference")):
    panel.set(xscale="log", xlabel="beam K (1: greedy)", ylabel=label, title=title, xlim=(0.9, 32))
    panel.set_xticks((1, 2, 4, 8, 16), (1, 2, 4, 8, 16))
    panel.minorticks_off()
show(figure, "20_beams", alt="Multi30k, two panels over the beam from 1 to 16. Left, BLEU: from 38.6 with greedy "
     "search to about 39.7 with beam 2. With alpha 0.6 and 1 it stays between 39.4 and 39.8; with alpha 0 it falls to "
     "36.5 at beam 4 and 36.0 at 16. Right, length over the reference: from 1.02 to 0.85 with alpha 0, 0.96 with alpha "
     "0.6, 0.98 with alpha 1.")

# %% [markdown]
# Three texts, three answers.
#
# - **Test**: greedy search pays a tenth of a nat per piece, which is little, and a beam of 4 without a penalty changes
#   two sentences of 200: the cows for the better, the gift of Tuesday for the worse. On this corpus the search hardly
#   matters.
# - **Multi30k**: the second hypothesis is worth one point of BLEU. With a penalty, further ones are worth nothing;
#   without, a beam of 16 ends two and a half points below greedy search. "Bare" is the control: there it is four points
#   *above*. So all of this loss is the brevity penalty.
# - **Long**: greedy search has by far the highest BLEU, and by far the lowest "bare". What the likelier sentences say
#   is right more often, but they say too little. The length penalty repairs some of it.
#
# That the model is less sure does not tell the last two apart: their nats per piece are alike. What does, we have not
# tested. (All this is read from test sets, to explain. To choose $K$ and $\alpha$, take the validation set.)
#
# The empty sentence is the limit of shortness. For three of 14 long sentences the beam of 16 writes it. In training,
# `</s>` never came first, so its probability there should be the crumb that label smoothing (lesson 14,
# $\epsilon = 0.1$) gives every piece that is not the answer, $0.1 / (V - 1)$. On the test set it is about double that.
# A translation with a lower probability loses to silence; the column "empty" counts them. Whether a model trained
# without smoothing would differ we have not tested.
#
# ## Check the claim
#
# > "A larger beam is always better."
#
# Better at what? At what the search is for, yes: see $\log P$ of all three texts at $\alpha = 0$. Then look at BLEU.

# %%
for name in ("Multi30k", *COUNT):
    unpenalised = [row for (each, K, alpha), row in rows.items() if each == name and alpha == 0]
    log_p, bleu = ([row[column] for row in unpenalised] for column in ("log_probability", "bleu"))
    measure(f"{name}: smallest rise of log P from one beam to the next", min(np.diff(log_p)), -1e-9, 8)
    measure("    BLEU of the largest beam less the best BLEU", bleu[-1] - max(bleu), *{
        "Multi30k": (-3.6, -3.4), "test": (-2, 0), "test_long": (-45, -8)}[name])

# %% [markdown]
# As a search it gets better, on average; as a translator it does not, or only up to a beam of 2. (Koehn & Knowles 2017,
# *Six Challenges for Neural Machine Translation*, saw quality fall with large beams for models of that time.) Beam and
# penalty are a compromise between what the model finds likely and what we want, and both are tuned by looking at BLEU.
# Nothing in the formula of the penalty follows from the model.
#
# ## Paper and code
#
# - §6.1: "beam search with a beam size of 4 and length penalty $\alpha = 0.6$", chosen "after experimentation on the
#   development set"; "maximum output length during inference to input length + 50, but terminate early when possible".
# - *When to stop* the paper leaves open. Its public code, Tensor2Tensor, stopped when the worst finished hypothesis
#   beat all that is alive, later when the best did. This library stops when the `nbest`-th finished one cannot be
#   beaten. Its "input length" is that of each sentence, with `</s>`, so that results do not depend on the batch.
# - Beam 1 of this library is greedy search by definition, and stops at the first `</s>` that is best; `beam_by_hand`
#   with $K = 1$ may go on with the second best piece. At the greatest length the library adds what is unfinished
#   behind what is finished; ours drops it.
# - In the library: `beam_search`, `length_penalty` and `best_continuations` in
#   [decoding/search.py](../scratchformer/decoding/search.py), which does many sentences at once; `start`, `step` and
#   `select` in [nn/transformer.py](../scratchformer/nn/transformer.py); brute force and equalities in
#   [tests/decoding/test_search.py](../tests/decoding/test_search.py). The recorded rows come from
#   [benchmarks/beam_sizes.py](../benchmarks/beam_sizes.py).
#
# ## Exercises
#
# **Predict.** All $K$ hypotheses begin with the same `<s>`. What would a beam of 4 find if the first step continued all
# four, instead of one?
#
# <details><summary>Answer</summary>
#
# Four copies of the same likeliest piece: equal beginnings have equal continuations, which take all the places. The
# copies stay together for ever, so a beam of 4 costs four times as much as greedy search and finds little more. In
# `beam_by_hand` the beam begins with one hypothesis, the empty one.
#
# </details>
#
# **Build** `20_beam_step`: from $W$ hypotheses and the $\log P$ of their next pieces to the best continuations, and
# where they come from.
#
# **Build** `20_length_penalty`: the scores of finished sentences.
#
# **Break** `20_greedy_trap`: a table of next words on which greedy search loses and a beam of 2 wins.
#
# ## Next
#
# Translations were judged here by BLEU, and by differences of one point of it. [Lesson 21](21_bleu_and_averaging.py)
# builds BLEU and asks how large a difference must be to mean anything. The paper's own words on search are few: section
# 6.1 of [its arXiv page](https://arxiv.org/abs/1706.03762).
