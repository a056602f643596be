# %% [markdown]
# # Lab notes 22 · GPT
#
# What stands behind [lesson 22](../22_gpt.py): the counts and a better rule for them, a second training, a larger GPT,
# and mistakes that the gradient check of the page would find.

# %% Imports
import course  # noqa: F401  finds lessons/support

import sys

import numpy as np

from support.gpt_parts import Counts
from support.lesson import ROOT, measure, recorded, table

sys.path.append(str(ROOT / "benchmarks"))
from ngram import kneser_ney  # noqa: E402

# %% [markdown]
# ## Experiment 1: the rule that falls back
#
# Let $c(h)$ be how often the characters $h$ occur in the text with something after them, $c(hw)$ how often it is $w$,
# and $u(h)$ how many different characters follow $h$. With $h'$ for $h$ without its first character,
#
# $$p(w \mid h) = \frac{c(hw) + u(h) \, p(w \mid h')}{c(h) + u(h)}$$
#
# (Witten and Bell 1991). Say that *th* occurs four times, three times before *e* and once before *a*, and that *e* has
# probability 0.5 after *h* alone. Then *e* gets (3 + 2 · 0.5) / (4 + 2) = 2/3. Without any characters before it, the
# shorter model gives each character the same probability.
#
# A better rule, with modified Kneser-Ney smoothing ([benchmarks/ngram.py](../../benchmarks/ngram.py)), on the same text and
# the same 4,000 places as on the page, with at most 7 characters before each:

# %%
text = (ROOT / "data/tiny/train.en").read_text(encoding="utf-8")
train, test = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
places = np.random.default_rng(0).integers(64, len(test), size=4000)
assert Counts("thethatthethe", order=3).counts["the"] == 3
id_of = {character: i for i, character in enumerate(sorted(set(text)))}
*_, model = kneser_ney([[id_of[character] for character in train]], 8, len(id_of))
ids = [id_of[character] for character in test]
bits = -np.mean([np.log2(model.probability(tuple(ids[i - 7:i]), ids[i]))
                 for i in places])
measure("bits per character by Kneser-Ney, n = 8", bits, 0.83, 0.9)

# %% [markdown]
# ## Experiment 2: a larger GPT, and better counts
#
# The benchmark `language_model` has trained `gpt-tiny` (four layers, $d_{model} = 128$, pieces instead of characters) on
# the pages of the course, once. A tenth of each page was held out. The n-grams have the better rule of experiment 1.

# %%
result = recorded("language_model")
[run], n_grams = result["results"], result["n_grams"]
characters, tokens = n_grams["characters"], n_grams["tokens"]
averaged = run["bits_per_character"]["average"]
table(["model", "bits per character"],
      [["gpt-tiny, weights averaged", averaged],
       *([f"n-grams of characters, n = {n}", characters[n - 1]] for n in (4, 8, 16)),
       ["n-grams of pieces, n = 9", tokens[8]]])
best = characters.index(min(characters)) + 1
measure("n of the best n-gram model of characters", best, 16, 16)
assert min(characters) < min(tokens) < averaged
curve = dict(run["curve"])
measure("loss after 1,500 steps, minus that after 3,000",
        curve[1500] - curve[3000], 0.1, 0.12)
measure("the same from 2,500 to 3,000", curve[2500] - curve[3000], 0, 0.02)

# %% [markdown]
# One training, one text, and the number of steps was chosen on the same held-out text, which favours the GPT. At the
# end its loss hardly falls. So this isn't a training that was stopped too early, as that of the page is.
