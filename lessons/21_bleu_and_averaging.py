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
from sacrebleu.metrics import CHRF
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
# A trained translator can write with greedy search or with a beam of 4 ([lesson 20](20_beam_search.py)). Which one
# should we use? The loss can't say, because the model is the same. So let's translate the 500 sentences of the test set
# both ways. For each sentence, the test set has one **reference**, a correct translation. **BLEU** compares all
# translations with their references. It's the usual score of translation, from 0 to 100.

# %% Greedy search and a beam of 4
greedy, beam = (translator.translate(english, beam=size) for size in (1, 4))
scores = [corpus_scores(lines, german).bleu for lines in (greedy, beam)]
measure("BLEU of greedy search", scores[0], 95, 99)
measure("BLEU, beam of 4 − greedy search", scores[1] - scores[0], -0.3, -0.05)
measure("sentences that differ, of 500", sum(a != b for a, b in zip(greedy, beam)),
        2, 9)

# %% [markdown]
# Greedy search is ahead by 0.2 points, and only five sentences differ. Would another test set agree? First we must know
# what BLEU counts.
#
# ## The picture
#
# An **n-gram** is a run of $n$ words. For $n$ from 1 to 4, BLEU counts how many n-grams of a translation are also in
# the reference. Say the reference is *Der alte Mann sieht heute ein Pferd.* (The old man sees a horse today), and a
# translator writes *Schaf* (sheep) for *Pferd*. The full stop counts as a word:

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
# eight costs 29 points. Now you: our model really wrote *Am Sonntag wird mein Bruder **seinem** Autos folgen.* The
# reference has *seinen*. What is its BLEU?
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
# Precisions alone can be fooled. Take the reference with the horse again.
#
# **Stop early.** A translator writes *Der alte Mann sieht*, and stops. Every n-gram is right, so all four precisions
# are 1. BLEU would be 100 for half a sentence! So BLEU is multiplied by a **brevity penalty** $B$. With $c$ words
# written, and $r$ words in the reference:
#
# $$B = e^{1 - r/c} \quad \text{if } c < r, \text{ else } 1$$
#
# Here $c = 4$ and $r = 8$, so $B = e^{1 - 2} = 1/e = 0.37$: 37 BLEU instead of 100.
#
# **Repeat what is right.** Another translator writes *Der alte Mann sieht Der alte Mann sieht*. It has the right
# length, so $B = 1$. Each of its 8 words is somewhere in the reference. But the reference has *Der* only once. So BLEU
# counts an n-gram at most as often as the reference has it. This count is **clipped**:
#
# | | precisions $p_1$ to $p_4$ | BLEU |
# |---|---|---|
# | not clipped | 8/8, 6/7, 4/6, 2/5 | 69 |
# | clipped | 4/8, 3/7, 2/6, 1/5 | 35 |
#
# And why runs of more than one word? Because all the right words in a wrong order would have $p_1 = 1$.
#
# ### Two sentences
#
# BLEU is a score of a whole test set. **First add up the counts of all sentences, then divide.** Say the test set has
# our reference twice. One translation is perfect, the other stops after four words. All precisions are 1. The words
# written are $c = 8 + 4 = 12$, the words of the references $r = 16$. So $B = e^{1 - 16/12} = e^{-1/3} = 0.717$: 71.7
# BLEU. The mean of the two sentences' scores, 100 and 36.8, is another number: 68.4.

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
# \mathrm{BLEU} = 100 \cdot B \cdot (p_1 \, p_2 \, p_3 \, p_4)^{1/4}$$
#
# So all that BLEU needs of a sentence are nine numbers: four clipped counts, four counts of n-grams written, and the
# length of the reference. *Der alte Mann sieht* has 4, 3, 2, 1, then 4, 3, 2, 1, then 8.
#
# **Your turn.** Write three functions in `more.py`: `clipped_counts` makes the nine numbers of one sentence,
# `bleu_of_counts` makes BLEU of a sum of such numbers, and `bleu` takes lists of sentences. Run `scratchformer learn
# check clipped_counts bleu_of_counts bleu`.

# %%
quote("clipped_counts", "bleu_of_counts", "bleu", file="more")

# %% Checking against sacreBLEU
same("500 translations: our BLEU and sacreBLEU's", bleu(tokens(greedy), wanted),
     scores[0])

# %% [markdown]
# ## What BLEU can't see
#
# Here are four other ways to translate "The horse leaves the street because it is too dark". The reference is *Das
# Pferd verlässt die Straße, weil sie zu dunkel ist.* The score **chrF** counts runs of *letters*, up to six (Popović,
# 2015).

# %% Four translations of one sentence
HORSE = "Das Pferd verlässt die Straße, weil sie zu dunkel ist."
OTHERS = {"Das Pferd betritt die Straße, weil sie zu dunkel ist.": "opposite: enters",
          "Das Pferd verlässt die Straßen, weil sie zu dunkel ist.": "one letter wrong",
          "Weil die Straße zu dunkel ist, verlässt das Pferd sie.": "right",
          "Das Pferd geht von der Straße, denn sie ist zu dunkel.": "right"}
table(["translation", "meaning", "BLEU", "chrF"],
      [[line, meaning, f"{bleu(tokens([line]), tokens([HORSE])):.0f}",
        f"{CHRF().sentence_score(line, [HORSE]).score:.0f}"]
       for line, meaning in OTHERS.items()])

# %% [markdown]
# The opposite of what the sentence says gets 77 BLEU. Two right translations get 0, because they share no run of four
# words with the reference. BLEU knows no meaning and no synonyms, and chrF doesn't either. It's useful all the same,
# because over thousands of sentences such errors average out, most of all between *similar* systems.
#
# ## Backward
#
# There is nothing to send back through BLEU. If one weight moves a little, the scores of all words move a little, but
# nearly always the largest stays the largest. So the text stays the same, letter by letter, and BLEU's derivative is 0
# ([lab notes 21](lab/21_bleu_and_averaging.py#experiment-1-bleu-has-no-slope)). That's why we train on the loss.
#
# There is a way around. Let the model *sample* its word: *sie* with probability 0.6 (BLEU 100), *es* with 0.4 (BLEU
# 73). The **expected** BLEU is 0.6 · 100 + 0.4 · 73 = 89.2, and it does have a slope: with 0.61 and 0.39 it is 0.27
# higher. Minimum-risk training and reinforcement learning follow this slope.
#
# ## How sure is a difference?
#
# With many test sets, we could see how much the difference varies. But we have only one. The **bootstrap** makes new
# test sets from it. It draws as many sentences as there are, *with replacement*: some sentences come twice, others not
# at all. Let's do it with four sentences of 10 words. The score is simply the share of right words:

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
     caption="A test set of four sentences, and two samples from it. Both systems are "
     "scored on the same sample.")

# %% [markdown]
# The test set says that B is 5 points better. One sample says 12.5, the other −2.5. So four sentences can't tell. A
# computer draws a thousand samples, sorts the thousand differences, and cuts off 2.5 % at each end. What is left is the
# **95 % interval**. If 0 lies in it, the test set doesn't decide.
#
# Notice that both systems are scored on the *same* samples: this is the **paired bootstrap** (Koehn, 2004). Sample 1
# has the hard sentence twice, and that lowers both. If A had sample 2 and B sample 1, the difference would be 82.5 − 90
# = −7.5. The other way around it is +17.5. So without pairing the differences spread more.
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
# - **What goes in:** three small translators, trained alike but for the seed. Each translates the 500 test sentences
#   three times: with its *last* weights; with the *mean* of its last five checkpoints ([lesson
#   19](19_train_a_translator.py)); and with a learning rate that *fell* to 0 at the end.
# - **What is measured:** the difference in BLEU and its 95 % interval.
# - **Control:** for every sentence we toss a coin, and exchange the two translations if it shows heads. Now neither
#   side is better, and the interval should contain 0. (It fails to in 5 % of 300 such exchanges, as promised: [lab
#   notes 21](lab/21_bleu_and_averaging.py#experiment-3-what-the-interval-promises).)
#
# The mean of five is 2.6 to 3.6 BLEU above the last weights; the falling rate is 0.2 to 0.6 above the mean with two
# seeds, and 0.2 below it with the third. Which of these differences are larger than chance: (a) all, (b) the larger
# ones, (c) none?
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

# %% [markdown]
# Answer (b). The mean of five checkpoints is better than the last weights in all three trainings ([lab notes
# 21](lab/21_bleu_and_averaging.py#experiment-2-the-mean-of-the-last-checkpoints) say why). Between the mean and the
# falling rate, this test set doesn't decide. And our first question? For beam 4 against greedy search 0 is inside, too:
# we don't know.
#
# **We fell into this trap ourselves.** An earlier version of this page had the same three seeds, trained on another
# processor. (It adds up in another order, and training magnifies the difference of rounding.) There the falling rate
# was ahead in all three, by 0.6 to 1.3 BLEU, and the page called it better. But three coins fall on the same side, by
# chance alone, in one case of four.
#
# </details>
#
# Three warnings before you use such an interval ([lab notes
# 21](lab/21_bleu_and_averaging.py#experiment-3-what-the-interval-promises)):
#
# - **Look how many sentences differ.** Between beam and greedy search it's a handful. Many samples contain hardly any
#   of them, so their interval is too narrow. Read the sentences instead.
# - **Another training isn't in it.** The bootstrap draws other sentences, not other seeds. The last weights of our
#   three trainings differ by 1.5 BLEU. So a claim about a *method* needs several trainings.
# - **Small differences need large test sets.** Four times the sentences halve the width. For *mean − last*, 500
#   sentences give ±1.3. For ±0.3 you would need about nine thousand.
#
# ## Today
#
# BLEU is still reported, so that results can be compared. But people agree more with **COMET** (Rei et al., 2020), a
# network that reads source, translation and reference, and was trained on human ratings. In 2022, the yearly comparison
# of metrics was published under the title *Stop Using BLEU* (Freitag et al.). Large language models now judge
# translations, too. The best reference is still people who mark errors. A newer danger is **contamination**: a test set
# that is on the web may be in the training text. The bootstrap works for all these scores.
#
# ## Paper and code
#
# BLEU is by Papineni et al. (2002). The paper has 27.3 and 28.4 for English to German (Table 2), and no intervals. What
# counts as a word changes BLEU by a point or more: [one model](https://github.com/tensorflow/tensor2tensor/issues/317)
# had 29.02 by the paper's script and 27.52 by sacreBLEU. So give the rule with the score, as sacreBLEU's *signature*
# does (Post, 2018). sacreBLEU replaces a clipped count of 0 by a small number; ours stays 0. PyTorch itself has no
# BLEU; its users call `sacrebleu.corpus_bleu(lines, [references])`, the score checked above. In the library,
# `scratchformer evaluate RUN --against RUN2` compares two runs by the paired bootstrap.
#
# ## What to remember
#
# BLEU counts shared runs of one to four words over a whole test set, with a penalty for short texts. It can't see
# meaning. Give every difference an interval: score both systems on the same samples of the test set. If you claim
# something about a method, train several times.
#
# **Test yourself.**
#
# 1. The reference has 6 words, and a translation of 6 words has all of them right but the last. What is its BLEU?
# 2. All n-grams are right, but only 10 of 20 words are written. What is BLEU?
# 3. The paired interval of B − A is −0.4 to +1.2. Is B better? Is A as good as B?
#
# <details><summary>Answers</summary>
#
# 1. 5/6 · 4/5 · 3/4 · 2/3 = 1/3, and its fourth root is 0.76: 76 BLEU.
# 2. $100 \, e^{1 - 2} = 37$.
# 3. The test set can't tell either. B may be up to 1.2 better, or 0.4 worse.
#
# </details>
#
# **Yours:** `clipped_counts`, `bleu_of_counts`, `bleu`, `bootstrap` · `scratchformer learn check 21`
#
# **Next:** [22 · GPT](22_gpt.py). You have a translator that you can train, search with, and judge.

# %% Checking the answers
assert round(bleu_of_counts(np.array([5, 4, 3, 2, 6, 5, 4, 3, 6]))) == 76
assert np.isclose((1 / 3) ** 0.25, 0.76, atol=0.001)
wrong_ending = "Das Pferd verlässt die Straße, weil es zu dunkel ist."
assert round(bleu(tokens([wrong_ending]), tokens([HORSE]))) == 73
