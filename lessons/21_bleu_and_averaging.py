# %% [markdown]
# # 21 · BLEU and its error bars
#
# **One translator scores 0.2 BLEU more than another. Is it better?**
#
# *Needs [lesson 19](19_train_a_translator.py) (a trained translator) and [lesson 20](20_beam_search.py) (greedy and
# beam search) · you will compute BLEU by hand, and an interval that says how far to trust it.*

# %% Imports
import numpy as np
from more import bleu, bleu_of_counts, bootstrap, clipped_counts
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import read_text
from scratchformer.training.run import load_run
from support.drawing import Drawing
from support.lesson import ROOT, measure, quote, recorded, same, show, table, varying

translator = load_run(ROOT / "data/tiny_model")
english, german, *_ = read_text("test")
split_13a = Tokenizer13a()


def tokens(lines):
    """-> the words of each line; a punctuation mark is a word"""
    return [split_13a(line).split() for line in lines]


wanted = tokens(german)

# %% [markdown]
# The translator of [lesson 00](00_whole_game.py) can write with greedy search or with a beam of 4 ([lesson
# 20](20_beam_search.py)). Which one is better? The loss can't say, because the model is the same. So let's translate
# the 500 test sentences both ways. Each has a **reference**, a correct translation. **BLEU** compares all translations
# with the references. It goes from 0 to 100.

# %% Greedy search and a beam of 4
greedy, beam = (translator.translate(english, beam=size) for size in (1, 4))
scores = [corpus_scores(lines, german).bleu for lines in (greedy, beam)]
measure("BLEU of greedy search", scores[0], 95, 99)
measure("BLEU, beam of 4 − greedy search", scores[1] - scores[0], -0.3, -0.05)
measure("sentences that differ, of 500", sum(a != b for a, b in zip(greedy, beam)),
        2, 9)

# %% [markdown]
# (Ours are sentences of a small grammar. On real news, the paper's models have 27 and 28.) Greedy search is ahead by
# 0.2 points, and only five sentences differ. Would another test set agree? First, what does BLEU count?
#
# ## The picture
#
# An **n-gram** is a run of $n$ words. BLEU counts how many n-grams of a translation are also in the reference, for $n$
# from 1 to 4. Say the reference is *Der alte Mann sieht heute ein Pferd.* (The old man sees a horse today), and the
# translation has *Schaf* (sheep) for *Pferd*. The full stop counts as a word:

# %% Drawing the n-grams
REFERENCE = "Der alte Mann sieht heute ein Pferd .".split()
SHEEP = "Der alte Mann sieht heute ein Schaf .".split()


def ngrams_picture(hypothesis, reference):
    drawing, cell, y = Drawing(740, 365), 72, 60
    for i, word in enumerate(hypothesis):
        drawing.text(40 + cell * (i + 0.5), 25, word, bold=word in reference,
                     italic=word not in reference)
    counts = clipped_counts(hypothesis, reference)
    for n in (1, 2, 3, 4):
        there = {tuple(reference[i:i + n]) for i in range(len(reference) - n + 1)}
        for i in range(len(hypothesis) - n + 1):
            known = tuple(hypothesis[i:i + n]) in there
            middle = 40 + cell * (i + n / 2), y + 24 * (i % n)
            drawing.rectangle(*middle, cell * n - 8, 18,
                              "forward" if known else "plain",
                              filled=0.55 if known else 0, radius=3)
        share = f"n = {n}: {counts[n - 1]} of {counts[3 + n]}"
        drawing.text(640, y + 12 * (n - 1), share, anchor="start", size=14)
        y += 24 * n + 22
    return drawing


show(ngrams_picture(SHEEP, REFERENCE), "21_ngrams",
     alt="The words Der alte Mann sieht heute ein Schaf, full stop, and under them a "
     "bar for every run of one to four words. Filled bars are in the reference: 7 of 8 "
     "single words, 5 of 7 pairs, 4 of 6 triples, 3 of 5 runs of four. The empty bars "
     "are those that contain Schaf.",
     caption="One wrong word spoils every run that contains it (empty bars).")

# %% [markdown]
# ## By hand
#
# The four shares in figure 1 are the **precisions** $p_1$ to $p_4$. BLEU takes their **geometric mean**: the fourth
# root of their product.
#
#     7/8 · 5/7 · 4/6 · 3/5 = 420/1680 = 1/4
#
# The square root of 1/4 is 1/2. The square root of that is 0.707, so this sentence has 70.7 BLEU. One wrong word of
# eight costs 29 points. Now you: our model wrote *Am Sonntag wird mein Bruder **seinem** Autos folgen.* The reference
# has *seinen*. What is its BLEU?
#
# <details><summary>Calculate, then unfold</summary>
#
# There are 9 words with the full stop. 8/9 · 6/8 · 4/7 · 2/6 = 8/63 = 0.127, and the fourth root is 0.597: 59.7 BLEU.
# The wrong word is nearer to the middle here, so it spoils more runs.
#
# </details>
#
# ### Two translators that cheat
#
# **Stop early.** A translator writes *Der alte Mann sieht*, and stops. Every n-gram is right, so all four precisions
# are 1. BLEU would be 100 for half a sentence! So BLEU is multiplied by a **brevity penalty**. With $c$ words written,
# and $r$ words in the reference:
#
# $$\mathrm{BP} = e^{1 - r/c} \quad \text{if } c < r, \text{ else } 1$$
#
# Here $c = 4$ and $r = 8$, so BP is $e^{1 - 2} = 1/e = 0.37$: 37 BLEU instead of 100.
#
# **Repeat what is right.** Another translator writes *Der alte Mann sieht Der alte Mann sieht*. It has the right
# length, so BP is 1. Each of its 8 words is somewhere in the reference. But the reference has *Der* only once. So an
# n-gram counts at most as often as the reference has it. This count is **clipped**:
#
# | | precisions $p_1$ to $p_4$ | BLEU |
# |---|---|---|
# | not clipped | 8/8, 6/7, 4/6, 2/5 | 69 |
# | clipped | 4/8, 3/7, 2/6, 1/5 | 35 |
#
# (With single words alone, the right words in a wrong order would be perfect.)
#
# ### Two sentences
#
# BLEU is a score of a whole test set. **First add up the counts of all sentences, then divide.** Say the test set has
# our reference twice. One translation is perfect, the other stops after four words. All precisions are 1. With $c = 8 +
# 4 = 12$ and $r = 16$, BP is $e^{1 - 16/12} = e^{-1/3} = 0.717$: 71.7 BLEU. (The mean of the two sentences' scores, 100
# and 36.8, would be 68.4.)

# %% Checking the numbers by hand
CHEATS = "Der alte Mann sieht".split(), ("Der alte Mann sieht " * 2).split()
for words, score in zip((SHEEP, *CHEATS), (70.71, 36.79, 34.57)):
    assert round(bleu([words], [REFERENCE]), 2) == score
assert round(bleu([REFERENCE, CHEATS[0]], [REFERENCE, REFERENCE]), 1) == 71.7
assert round(100 * (8 / 8 * 6 / 7 * 4 / 6 * 2 / 5) ** 0.25) == 69

# %% [markdown]
# ## In general
#
# Let $c_{sg}$ be how often the n-gram $g$ occurs in translation $s$, and $r_{sg}$ how often it occurs in its reference.
#
# $$p_n = \frac{\sum_s \sum_g \min(c_{sg}, r_{sg})}{\sum_s \sum_g c_{sg}} \qquad
# \mathrm{BLEU} = 100 \cdot \mathrm{BP} \cdot (p_1 \, p_2 \, p_3 \, p_4)^{1/4}$$
#
# If no n-gram is written, $p_n$ is 0. So BLEU needs nine numbers of a sentence: four clipped counts, four counts of
# n-grams written, and the length of the reference. *Der alte Mann sieht* has 4, 3, 2, 1, then 4, 3, 2, 1, then 8.
#
# **Your turn.** In `more.py`, write `clipped_counts` (the nine numbers of a sentence), `bleu_of_counts` (BLEU of a sum
# of such numbers) and `bleu` (for lists of sentences). Run `scratchformer learn check clipped_counts bleu_of_counts
# bleu`.

# %%
quote("clipped_counts", "bleu_of_counts", "bleu", file="more")

# %% Checking against sacreBLEU
same("500 translations: our BLEU and sacreBLEU's", bleu(tokens(greedy), wanted),
     scores[0])

# %% [markdown]
# ## What BLEU can't see
#
# Here are four other ways to translate "The horse leaves the street because it is too dark". The reference is *Das
# Pferd verlässt die Straße, weil sie zu dunkel ist.*

# %% Four translations of one sentence
HORSE = "Das Pferd verlässt die Straße, weil sie zu dunkel ist."
OTHERS = {"Das Pferd betritt die Straße, weil sie zu dunkel ist.": "opposite (enters)",
          "Das Pferd verlässt die Straßen, weil sie zu dunkel ist.": "a letter off",
          "Weil die Straße zu dunkel ist, verlässt das Pferd sie.": "right",
          "Das Pferd geht von der Straße, denn sie ist zu dunkel.": "right"}
table(["translation", "it is", "BLEU"],
      [[line, verdict, f"{bleu(tokens([line]), tokens([HORSE])):.0f}"]
       for line, verdict in OTHERS.items()])

# %% [markdown]
# The opposite gets 77 BLEU. Two right translations get 0, because they share no run of four words with the reference.
# (sacreBLEU replaces a count of 0 by a small number, and says 19 and 12.) BLEU knows no meaning and no synonyms. So
# compare only *similar* systems by it, which lose alike (Callison-Burch et al., 2006).
#
# ## Backward
#
# There is nothing to send back through BLEU. If one weight moves a little, the scores of all words move a little, but
# nearly always the largest stays the largest. So the text stays the same, and BLEU's derivative is 0 ([lab notes
# 21](lab/21_bleu_and_averaging.py#experiment-1-bleu-has-no-slope)). That's why we train on the loss.
#
# ## How sure is a difference?
#
# Another test set would give another difference. The **bootstrap** makes new test sets from ours: it draws as many
# sentences, *with replacement*, so some come twice, others not at all. Let's do it with four sentences of 10 words. The
# score is the share of right words:

# %% Drawing the bootstrap
A, B = np.array([10, 8, 5, 9]), np.array([10, 9, 7, 8])
DRAWS = [("test set", [1, 2, 3, 4]), ("sample 1", [3, 3, 1, 2]),
         ("sample 2", [4, 4, 1, 2])]


def bootstrap_picture():
    drawing = Drawing(740, 280)
    for x, name in (285, "right words of A"), (510, "right words of B"), (690, "B − A"):
        drawing.text(x, 20, name, "soft", 13)
    for i, (name, drawn) in enumerate(DRAWS):
        y, rows = 80 + 85 * i, np.array(drawn) - 1
        drawing.text(20, y, name, anchor="start", bold=True)
        shares = []
        for x, right, role in (265, A[rows], "plain"), (490, B[rows], "forward"):
            box = drawing.vector(x, y, right.tolist(), role, 36, 32)
            for j, sentence in enumerate(drawn):
                drawing.text(box.cell(j).x, y - 28, f"nr {sentence}", "soft", 11)
            shares.append(right.sum() / 40)
            drawing.text(x + 82, y, f"{100 * shares[-1]:g} %", anchor="start", size=14)
        drawing.text(690, y, f"{100 * (shares[1] - shares[0]):+g}".replace("-", "−"),
                     bold=True)
    return drawing


show(bootstrap_picture(), "21_bootstrap",
     alt="Three rows of four sentences each. The test set has sentences 1 to 4: A has "
     "10, 8, 5, 9 words right, 80 percent; B has 10, 9, 7, 8, 85 percent; the "
     "difference is +5. Sample 1 draws sentences 3, 3, 1, 2: A 70, B 82.5, +12.5. "
     "Sample 2 draws 4, 4, 1, 2: A 90, B 87.5, −2.5.",
     caption="A test set of four sentences, and two samples from it.")

# %% [markdown]
# The test set says that B is 5 points better, one sample 12.5, the other −2.5. So four sentences can't tell. A computer
# draws a thousand samples, sorts the thousand differences, and cuts off 2.5 % at each end (here 25, in general 2.5 % of
# their number, rounded down). The first and the last that are left are the ends of the **95 % interval**.
# (`np.quantile` finds them, too.) If 0 lies in it, the test set doesn't decide.
#
# Both systems are scored on the *same* samples: this is the **paired bootstrap** (Koehn, 2004). Sample 1 has the hard
# sentence twice, and that lowers both. If A had sample 2 and B sample 1, the difference would be 82.5 − 90 = −7.5, and
# the other way around +17.5. So without pairing the differences spread more.
#
# Now you: sample 3 draws the sentences 2, 2, 3 and 4. What is the difference?
#
# <details><summary>Calculate, then unfold</summary>
#
# A has 8 + 8 + 5 + 9 = 30 of 40 right, 75 %. B has 9 + 9 + 7 + 8 = 33, 82.5 %. The difference is +7.5.
#
# </details>
#
# **Your turn.** Write `bootstrap` in `more.py`, with BLEU for the score, and run `scratchformer learn check bootstrap`.
# Count every sentence once, and then draw rows of nine numbers.

# %%
quote("bootstrap", file="more")

# %% [markdown]
# ## Does it matter?
#
# - **What goes in:** three small translators (three seeds). Each translates the 500 sentences with its *last* weights;
#   with the *mean* of its last five checkpoints ([lesson 19](19_train_a_translator.py)); and with the last weights
#   after a learning rate that fell to 0 at the end (*falling*).
# - **What is measured:** the difference in BLEU and its 95 % interval.
# - **Control:** a coin for every sentence. If it shows heads, we exchange the two translations. Then neither side is
#   better, and the interval should contain 0, but for one case in 20.
#
# For the three seeds, *mean − last* is +2.6, +3.5 and +3.6, *falling − mean* is +0.6, +0.2 and −0.2, and the control is
# −0.9. For which of the seven is 0 outside the interval?
#
# <details><summary>Make a guess, then unfold: the intervals</summary>

# %% Paired intervals
written = {(each["seed"], each["n"], each["rate"]): tokens(each["lines"])
           for each in recorded("averaging")["translations"]}


def row(name, a, b):
    low, high = bootstrap(a, b, wanted, np.random.default_rng(1))
    apart = bleu(b, wanted) - bleu(a, wanted)
    cells = f"{apart:+.1f}", f"{low:+.1f} to {high:+.1f}"
    return [name, *(cell.replace("-", "−") for cell in cells),
            "in" if low < 0 < high else "outside"]


last, mean, falling = ([written[seed, n, rate] for seed in (0, 1, 2)] for n, rate
                       in ((1, "schedule"), (5, "schedule"), (1, "to 0")))
coins = np.random.default_rng(2).random(500) < 0.5
pairs = zip(last[0], mean[0], coins)
mixed = zip(*((b, a) if coin else (a, b) for a, b, coin in pairs))
rows = [*(row(f"mean − last, seed {i}", last[i], mean[i]) for i in (0, 1, 2)),
        *(row(f"falling − mean, seed {i}", mean[i], falling[i]) for i in (0, 1, 2)),
        row("mean − last, seed 0, exchanged by coin", *mixed)]
assert [cells[-1] for cells in rows] == ["outside"] * 3 + ["in"] * 4
table(["difference", "BLEU", "95 % interval", "0 is"], rows)
low, high = bootstrap(tokens(greedy), tokens(beam), wanted, np.random.default_rng(1))
varying(f"beam of 4 − greedy search: {low:+.1f} to {high:+.1f}")
right = [sum(x == z and x != y for x, y, z in zip(*pair, german))
         for pair in ((greedy, beam), (beam, greedy))]
varying(f"right where the other is wrong: greedy {right[0]}, beam {right[1]}")

# %% [markdown]
# For the first three: the mean of five checkpoints is better than the last weights, and each interval is far from zero.
# ([Lab notes 21](lab/21_bleu_and_averaging.py#experiment-2-the-mean-of-the-last-checkpoints) say why a mean helps.)
# Between the mean and the falling rate, this BLEU doesn't decide. The mean's loss is lower in all three, but a lower
# loss is not yet a better translation. (With 300 coins like this, 0 was outside in 5 %.)
#
# And beam search? 0 is inside. Of the five sentences that differ, beam 4 has one right (*schlafen die Kühe*, greedy
# *schläft die Kühe*), greedy search has another (*arbeiteten*, beam *arbeitete*), and three are wrong in both.
#
# **We fell into this trap ourselves.** An earlier version of this page had the same seeds and text, but another
# processor and an older version of our library. There *mean − last* was only 1.8 to 2.2. And the falling rate was ahead
# of the mean in all three, so the page called it better. But three coins fall on the same side in one case of four.
#
# </details>
#
# Three warnings ([lab notes 21](lab/21_bleu_and_averaging.py#experiment-3-what-the-interval-promises)):
#
# - **Look how many sentences differ.** For beam search, five decide. A test set of 100 has one such sentence on
#   average, and its interval holds the true difference (that of our 500 sentences, as if they were the whole world) in
#   46 % instead of 95 %; with 500 sentences in 89 %.
# - **Another training isn't in it.** The bootstrap draws other sentences, not other seeds, and our three trainings
#   differ by 1.5 BLEU. So a claim about a *method* needs several.
# - **Small differences need large test sets.** For *mean − last*, 500 sentences give ±1.3. Four times as many halve it.
#
# ## Today
#
# BLEU is still reported. But people agree more with **COMET** (Rei et al., 2020), a network trained on human ratings.
# The best judges are still people who mark errors (Freitag et al., 2022, *Stop Using BLEU*). Another danger is
# **contamination**: a test set on the web may be in the training text.
#
# ## Paper and code
#
# - BLEU is by Papineni et al. (2002). The paper has 27.3 (base) and 28.4 (big) for English to German (Table 2).
# - Tokens and quotes of the reference change BLEU by a point or more: [one
#   model](https://github.com/tensorflow/tensor2tensor/issues/317) had 29.02 by the paper's script and 27.52 by
#   sacreBLEU. So give sacreBLEU's *signature*, too (Post, 2018).
# - With PyTorch, people call `sacrebleu.corpus_bleu(lines, [references])`. In the library: `scratchformer evaluate RUN
#   --against RUN2`.
#
# ## What to remember
#
# BLEU counts shared runs of one to four words over a whole test set. It can't see meaning. Give every difference an
# interval, from the same samples for both systems. To claim something about a method, train several times.
#
# **Test yourself.**
#
# 1. A translation of 6 words, as the reference, is right but for the last word. What is its BLEU?
# 2. All n-grams are right, but only 10 of 15 words are written. What is BLEU?
# 3. The paired interval of B − A is −0.4 to +1.2. Is B better? Is A as good as B?
#
# <details><summary>Answers</summary>
#
# 1. 5/6 · 4/5 · 3/4 · 2/3 = 1/3, and its fourth root is 0.76: 76 BLEU.
# 2. $100 \, e^{1 - 1.5} = 61$.
# 3. The test set can't tell either. B may be up to 1.2 better, or 0.4 worse.
#
# </details>
#
# **Yours:** `clipped_counts`, `bleu_of_counts`, `bleu`, `bootstrap` · `scratchformer learn check 21`
#
# **Next:** [22 · GPT: the decoder without a source](22_gpt.py). You can train a translator, search with it, and judge
# it.

# %% Checking the answers
assert round(bleu_of_counts(np.array([5, 4, 3, 2, 6, 5, 4, 3, 6]))) == 76
assert np.isclose((1 / 3) ** 0.25, 0.76, atol=0.001)
assert round(bleu_of_counts(np.array([10, 9, 8, 7, 10, 9, 8, 7, 15]))) == 61
smoothed = [corpus_scores([line], [HORSE]).bleu for line in list(OTHERS)[2:]]
assert [round(score) for score in smoothed] == [19, 12]
