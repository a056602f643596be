# %% [markdown]
# # 00 · The whole game
#
# **How can a machine that only calculates know what "it" means?**
#
# *Needs Python and NumPy arrays (no calculus yet) · you will follow a sentence through a trained Transformer, number by
# number.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from library import translator_pictures
from library.lesson import ROOT, measure, show, table
from library.translator_pictures import Candidate, Side
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import loss_backward
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run

# %% [markdown]
# Here is a Transformer that translates from English into German. How it works is what this course is about.

# %%
translator = load_run(ROOT / "data/tiny_model")
TIRED = "The horse leaves the street because it is too tired."
NARROW = "The horse leaves the street because it is too narrow."
for sentence in TIRED, NARROW:
    print(sentence, translator.translate([sentence])[0], sep="\n    ")

# %% Neither sentence was in the training text
model, tokenizer = translator.model, translator.tokenizer
trained_on = set(read_text("train").source)
assert not {TIRED, NARROW} & trained_on and len(trained_on) > 19_000

# %% [markdown]
# We changed one English word, the last one. In the German, the word for "it" changed as well, from *es* to *sie*. And
# that's right! *Das Pferd* (the horse) is neuter in German, so a tired horse is *es*. *Die Straße* (the street) is
# feminine, so a narrow street is *sie*. It looks as if the model knew which noun is meant, in sentences that it had
# never seen.
#
# Nobody wrote a rule for this. The machine only multiplies and adds, with a few simple functions such as $e^x$ in
# between. So how does it know? The end of this page has a surprise.
#
# ## The picture
#
# Figure 1 follows our first sentence through the model. The German is written up to *weil* ("because"). What comes
# next?

# %%
BEGINNING = "Das Pferd verlässt die Straße, weil"
source_ids = np.array([[*tokenizer.encode([TIRED])[0], EOS]])      # (1, 14)
beginning = tokenizer.encode([BEGINNING])[0]                       # 10 ids

# %% The numbers in the drawing
def vectors_of(ids, embedding, positions):
    return positions.forward(embedding.forward(ids)[0])[0][0]


def shown(sentence, ids, vectors, at):
    tokens = [token.strip("▁") for token in tokenizer.pieces(ids[at])]
    return Side(sentence, tokens, ids[at], vectors[at])


written_ids = np.array([[BOS, *beginning]])
read_vectors = vectors_of(source_ids, model.source_embedding, model.source_positions)
written_vectors = vectors_of(
    written_ids, model.target_embedding, model.target_positions
)
states, _ = model.states(source_ids, written_ids)
scores = model.forward(source_ids, written_ids)[0][0, -1].astype(float)
shares = np.exp(scores) / np.exp(scores).sum()
five = shares.argsort()[::-1][:5]
best = [
    Candidate(token.strip("▁"), scores[i], shares[i])
    for i, token in zip(five, tokenizer.pieces(five))
]

# %% The drawing
reads = shown(TIRED, source_ids[0], read_vectors, [1, 6, 8, 11])
writes = shown(BEGINNING + " …", written_ids[0], written_vectors, [0, 2, 8, 10])
memory = model.encode(source_ids)[0][0, [1, 6, 8, 11]]
show(
    translator_pictures.zoom(reads, memory, writes, states[0, -1], best),
    "00_machine",
    alt="Left, the encoder: the English sentence, the ids of its tokens, a vector for "
    "each, two layers of attention and feed-forward, and new vectors. Right, the "
    "decoder: the German so far, ids, vectors, and two layers which also take in the "
    "encoder's vectors. Its last vector gives 1,600 logits, and softmax turns them "
    "into probabilities: es 0.895, er 0.005, sie 0.004.",
    caption="One question to the trained model: which token comes after *weil*? In "
    "attention the vectors exchange something; everywhere else each is on its own.",
)

# %% [markdown]
# 1. **Sentence → ids.** The text is cut into **tokens**: words, parts of words (*leaves* becomes three) and punctuation
#    marks. This model knows 1,600 tokens, and each has a number, its **id**. A sign for the end, `</s>`, comes last.
# 2. **Ids → vectors.** The id picks a row from a table: a **vector** of 128 numbers. A pattern that tells the position
#    in the sentence is added. (Figure 1 shows the first three numbers after that.)
# 3. **Encoder.** Two **layers** change these vectors. In each, **attention** mixes every vector with the others: the
#    new one may be, roughly, 0.7 times the old one plus 0.3 times that of *horse* ([lesson 04](04_soft_lookup.py)
#    computes such weights). Then a **feed-forward** step works on each vector by itself.
# 4. **Decoder.** The German so far becomes vectors too, with `<s>` for "start" in front. Two layers have one more step:
#    attention to the encoder's vectors. Nothing English gets into the German in any other way.
# 5. **Vector → probabilities.** The decoder's last vector is multiplied, number by number, with a token's row in the
#    table of step 2. The sum of the 128 products is that token's score, its **logit**. **Softmax** turns the logits of
#    all 1,600 tokens into probabilities.
#
# The numbers in the table and the layers, 867,328 altogether, are the **parameters**. They were learned from 20,000
# sentence pairs that a program made from a small grammar. That takes a few minutes on an ordinary computer.
#
# ## By hand
#
# The last step is easy to do with a pencil. Suppose that there were only three tokens, with the logits 0, 0.69 and
# 1.61. Softmax takes $e$ to the power of each: 1, 2 and 5. Their sum is 8, so the probabilities are 1/8, 2/8 and
# 5/8: positive numbers that add up to 1, the largest for the largest logit.
#
# In code:

# %%
def softmax(logits):
    """Any numbers (V,) -> positive numbers that add up to 1"""
    e = np.exp(logits - logits.max())          # the maximum cancels; it avoids overflow
    return e / e.sum()


print(softmax(np.array([0, 0.693, 1.609])))

# %% [markdown]
# For the real logits, here is figure 1 as code. There are $S = 14$ English tokens and, with `<s>`, $T = 11$ German
# ones. (The library's functions return a second result, which training needs; we drop it.)

# %%
def encode(sentence):
    """-> one vector for each of the S English tokens, (1, S, 128)"""
    ids = np.array([[*tokenizer.encode([sentence])[0], EOS]])      # (1, S)
    return model.encode(ids)[0]


def next_logits(memory, written):
    """The encoder's vectors, the German ids so far -> logits (1600,)"""
    ids = np.array([[BOS, *written]])                              # (1, T)
    vectors, _ = model.target_embedding.forward(ids)               # (1, T, 128)
    vectors, _ = model.target_positions.forward(vectors)           # (1, T, 128)
    states, _ = model.decoder.forward(vectors, memory)             # (1, T, 128)
    logits, _ = model.unembedding.forward(states[:, -1])           # (1, 1600)
    return logits[0].astype(float)


logits = next_logits(encode(TIRED), beginning)

# %% [markdown]
# Check the first line with a calculator (the numbers are rounded):

# %% The table of the likeliest three
e, p = np.exp(logits), softmax(logits)
three = p.argsort()[::-1][:3]
rows = [[token.strip("▁"), f"{logits[i]:.4f}", f"{e[i]:,.0f}", f"{p[i]:.4f}"]
        for i, token in zip(three, tokenizer.pieces(three))]
others = e.sum() - e[three].sum()
rows += [["the 1,597 others", "", f"{others:,.0f}", f"{others / e.sum():.4f}"],
         ["all", "", f"{e.sum():,.0f}", "1"]]
table(["next token", "logit", "e to the logit", "probability"], rows)

# %% [markdown]
# *Es* gets only 0.895, and the 1,597 others share about a tenth. That is intended: during training the right token was
# to get 0.9, not 1 ([lesson 14](14_label_smoothing.py) says why).
#
# To write a sentence, we take the likeliest token, write it down, and ask again, until the answer is `</s>`. This is
# called **greedy search**. A model that continues its own output in this way is **autoregressive**.

# %% What is written for both sentences
def written_for(sentence):
    """-> the tokens of greedy search and their probabilities"""
    ids, found = [], []
    while not ids or ids[-1] != EOS:
        p = softmax(next_logits(encode(sentence), ids))
        ids.append(int(p.argmax()))
        found.append((tokenizer.pieces(ids[-1:])[0].strip("▁"), p.max()))
    return found


steps = {sentence: written_for(sentence) for sentence in (TIRED, NARROW)}
assert [len(found) for found in steps.values()] == [16, 16]
assert sum(a[0] != b[0] for a, b in zip(*steps.values())) == 2
assert 0.26 < np.prod([probability for _, probability in steps[TIRED]]) < 0.28

# %% The drawing of the loop
assert np.allclose(p, shares, rtol=1e-3)
show(
    translator_pictures.loop(list(steps.items())),
    "00_loop",
    alt="Two rows of 16 tokens with the probability of each above it, all between "
    "0.88 and 0.97. Das Pferd verl ä s st die Straße, weil es zu müde ist. The second "
    "row is the same except for sie and schmal. A bracket under all tokens before es "
    "points to es.",
    caption="Sixteen questions for each sentence, and each reads *all* tokens so far "
    "(bracket). The two rows differ in two tokens (blue).",
)

# %% [markdown]
# ## In general
#
# Multiply the 16 probabilities in the upper row of figure 2, and you get the probability of the whole translation:
# about 0.27. As an equation, with the English sentence $x$ and the German tokens $y_1, y_2, \dots$:
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# Read $P(y_t \mid \dots)$ as "the probability of token $y_t$, given the tokens before it and $x$".
#
# **Your turn.** The loop around it is yours. Write it in `exercises/00_greedy.py`, for any function that gives scores
# of the next token. (`scratchformer learn start` makes the directory `exercises`, `scratchformer learn check 00` checks
# your answer, `scratchformer learn hint` helps.) Then unfold ours.

# %% Our solution
def greedy(sentence, longest=80):
    memory, written = encode(sentence), []
    while len(written) < longest:
        token = int(next_logits(memory, written).argmax())
        if token == EOS:
            break
        written.append(token)
    return tokenizer.decode([written])[0]


assert [greedy(each) for each in (TIRED, NARROW)] == translator.translate(
    [TIRED, NARROW], beam=1)

# %% [markdown]
# ## How it learned
#
# Before training, the parameters are random numbers. Training needs a number that says how bad the answers are, and a
# way to make it smaller.
#
# **The number** is called the **loss**. If the right next token gets the probability $p$, the loss is $-\ln p$. For $p
# = 1$ it's 0, for $p = 1/8$ it's 2.08, and for a guess among 1,600 tokens it's $\ln 1600 = 7.38$. We take the mean
# over all tokens of the German sentence. Here is a model of the same size, untrained, with our first sentence:

# %%
untrained = Transformer(model.config, seed=0, dtype="float64")
german = tokenizer.encode(["Das Pferd verlässt die Straße, weil es zu müde ist."])[0]
before, right = np.array([[BOS, *german]]), np.array([[*german, EOS]])   # (1, 16) each


def loss(model):
    """The mean of -ln p over the 16 tokens, each guessed from the right ones before"""
    logits, _ = model.forward(source_ids, before)                        # (1, 16, 1600)
    p = [softmax(z)[token] for z, token in zip(logits[0], right[0])]
    return -np.log(p).mean()

# %% [markdown]
# **The way** is to nudge. Pick one parameter, move it a little down and a little up, and look at the loss. We take
# the third number in the vector of the token *verl* (the beginning of *verlässt*), because it matters a lot here:

# %%
parameters = untrained.store.data                # all of them, in one array: (867328,)
verl = tokenizer.encode(["verlässt"])[0][0]      # the id of the token
chosen = 128 * verl + 2                          # its row in the table, third number
losses = {}
value = parameters[chosen]
for nudge in -0.01, 0, 0.01:
    parameters[chosen] = value + nudge
    losses[nudge] = loss(untrained)
parameters[chosen] = value                       # as it was
table(["the parameter", "loss"],
      [[f"{value + nudge:.4f}", f"{found:.4f}"] for nudge, found in losses.items()])

# %% [markdown]
# The loss is even worse than a guess, 7.38: random logits prefer some tokens, and seldom the right one. Up is
# better, at least for small moves. Here is the loss for larger ones:

# %% The loss as one parameter moves
moves = np.linspace(-1.5, 1.5, 25)
found = []
for move in moves:
    parameters[chosen] = value + move
    found.append(loss(untrained))
parameters[chosen] = value
slope = (losses[0.01] - losses[-0.01]) / 0.02
figure, axes = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
axes.plot(value + moves, found, color=DARK)
axes.plot(value, losses[0], "o", color=ACCENT)
near = np.array([-0.6, 0.6])
axes.plot(value + near, losses[0] + slope * near, "--", color=ACCENT)
axes.annotate("where we are", (value, losses[0]), (8, 12), color=ACCENT,
              textcoords="offset points")
axes.set(xlabel="one parameter", ylabel="loss")
show(figure, "00_slope",
     alt="A curve of the loss over one parameter. At the present value of the "
     "parameter, minus 0.07, a dashed line has the slope of the curve, minus 0.24: "
     "the loss falls to the right.",
     caption="The loss as one of the 867,328 parameters moves: the dashed line has "
     "the slope of the curve where we are, and shows which way is down.")

# %% [markdown]
# How much better is up? The loss changed by 7.8999 − 7.9047 = −0.0048 while the parameter moved by 0.02. The
# ratio is a slope: −0.0048 / 0.02 = **−0.24**. The slopes of all parameters together are the **gradient**. The sign of
# a slope says which way is uphill, its size how steep. We want to go downhill, so a training step is: *move every
# parameter a little against its slope*. Here that means up, because the slope is negative.
#
# But two nudges for each of 867,328 parameters mean running the model 1.7 million times, for one training step.
# **Backpropagation** finds all slopes at once, in the time of a few runs ([lesson 01](01_backprop.py) derives it). Here
# is our library's, beside the nudge:

# %%
def gradient():
    untrained.zero_grad()
    _, count = loss_backward(untrained, source_ids, before, right)
    return untrained.store.grad / count         # a slope for every parameter, (867328,)


measure("slope by nudging", slope, -0.25, -0.23)
measure("slope by backpropagation", gradient()[chosen], -0.25, -0.23)

# %% [markdown]
# They agree. Now we do it twenty times: find the gradient, and move every parameter by −0.1 times its
# slope.

# %%
progress = []
for step in range(21):
    if step in (0, 1, 5, 10, 20):
        now = loss(untrained)
        progress.append([str(step), f"{now:.2f}", f"{np.exp(-now):.4f}"])
    parameters -= 0.1 * gradient()               # every parameter, against its slope
table(["training steps", "loss", "e to the −loss: a typical p"], progress)

# %% [markdown]
# Of course, twenty steps on a single pair only teach it this pair by heart. The real model took 2,000 steps, with other
# pairs in each. On new sentences its loss is about 0.11. (If it gave every right token exactly 0.9, that would be
# $-\ln 0.9 = 0.105$.)
#
# ## So how does it know?
#
# Back to the puzzle. When the model writes *es* or *sie*, how does it know which noun is meant? All that the decoder
# gets from the English are the encoder's vectors, one for each token. So here is an experiment: we take the vectors of
# the *tired* sentence, replace some by those of the *narrow* sentence, and ask for the next token.
#
# The two sentences have 14 tokens each. Which of the vectors decides between *es* and *sie*? That of "it", because
# attention has told it which noun it stands for? Those of the nouns? Write your guess down.
#
# <details><summary>Make a guess, then unfold: vectors exchanged</summary>

# %%
tokens = tokenizer.pieces(source_ids[0])       # the 14 tokens as text
ES, SIE = (tokenizer.encode([f"weil {word}"])[0][-1] for word in ("es", "sie"))


def exchanged(positions):
    """The probabilities of es and sie if these vectors come from the other sentence"""
    memory = encode(TIRED)
    memory[0, positions] = encode(NARROW)[0, positions]
    p = softmax(next_logits(memory, beginning))
    return [f"{p[ES]:.2f}", f"{p[SIE]:.2f}"]


AT = {token.strip("▁"): i for i, token in enumerate(tokens)}
all_but_tired = [i for i in range(14) if i != AT["tired"]]
table(["vectors from the other sentence", "es", "sie"],
      [["none", *exchanged([])],
       ["it", *exchanged([AT["it"]])],
       ["horse and street", *exchanged([AT["horse"], AT["street"]])],
       ["all except tired", *exchanged(all_but_tired)],
       ["only tired", *exchanged([AT["tired"]])]])

# %% [markdown]
# Only the adjective's vector carries the difference between *es* and *sie*. (The others may still be needed: they say
# nearly the same in both sentences.) Is that an accident? We have 240 test sentences of this kind, 120 pairs. With the
# adjective's vector exchanged, the model writes the other sentence's pronoun in 237 of them, with that of "it" in 3,
# and with none, by mistake, in 2.
#
# Does the vector hold the noun? We took it from sentences about two quite *different* nouns, where it means the other
# one: the first instead of the second, or the reverse. The model then switched to the other noun of *its own* sentence,
# in 216 of 240, and took the gender along in none. So what counts is "the first" or "the second". ([Lab notes 00,
# experiment 1](lab/00_whole_game.py#experiment-1-which-vector-decides-the-pronoun).)
#
# </details>
#
# So far we know what points to the noun. But where does the gender come from? This time the English stays as it is. We
# change the decoder's other input, the German that is already written, and give it another article. (*Der Pferd* is bad
# German, a mistake like "a apple". *Der* is masculine, *die* feminine, *das* neuter.)

# %%
for article in "Das", "Der", "Die":
    changed = tokenizer.encode([BEGINNING.replace("Das", article)])[0]
    [token] = tokenizer.pieces([next_logits(encode(TIRED), changed).argmax()])
    print(f"{article} Pferd verlässt die Straße, weil ... {token.strip('▁')}")

# %% [markdown]
# It copies the gender from the article that it has written itself. (In the lab notes it does so in 239 of 240 tries.)
# And why does "tired" mean the horse? One last experiment: we exchange the two nouns.

# %%
print(translator.translate(["The street leaves the horse because it is too tired."])[0])

# %% [markdown]
# In German, that says that the *street* is tired. So the model doesn't know that streets never get tired! In its
# training text, whenever there were two nouns, "too tired" was said of the first one (112 times), and "too narrow" of
# the second (149 times). Following this rule was enough. We exchanged the nouns in all 240 sentences, and in 225 the
# model took the wrong one, which now stood where the right one had been ([lab notes 00, experiment
# 2](lab/00_whole_game.py#experiment-2-where-the-gender-comes-from)).
#
# So a correct answer doesn't tell you *how* it was found. To find out, change one thing and watch the output. Maps of
# what attention "looks at" give good ideas, but they only show that something is read, not what is done with it ([lab
# notes 00, experiment 3](lab/00_whole_game.py#experiment-3-where-it-looks)).
#
# ## How good is it, and where does it fail?
#
# Of 500 new sentences of the same grammar, it translates 94 % exactly like the reference. Of 200 longer ones (26 to 45
# words; the longest in training have 25) it gets none exactly right. Lab notes 00 have [all
# scores](lab/00_whole_game.py#experiment-5-how-good-is-it) and [more
# failures](lab/00_whole_game.py#experiment-6-where-it-fails).
#
# ## Paper and code
#
# Figure 1 shows the machine of [Attention Is All You Need](https://arxiv.org/abs/1706.03762) (2017), the paper that
# this course follows, without what lies between the steps ([lesson 12](12_residual_norm_dropout.py)). The paper's
# *base* model has six layers where we have two, vectors of 512 numbers, and about 75 times as many parameters. In the
# library: [nn/transformer.py](../scratchformer/nn/transformer.py),
# [decoding/search.py](../scratchformer/decoding/search.py).
#
# ## What to remember
#
# A Transformer turns a sentence and the beginning of its translation into probabilities of the next token. It learned
# by moving each parameter a little against its slope, thousands of times. And what does "it" mean? Our model doesn't
# know. It found something simpler that works on sentences like those of its training: the adjective's vector says "the
# first noun" or "the second", and that noun's German article gives the gender.
#
# Each lesson opens one part of this, with every gradient derived by hand:
#
# | on this page | lessons |
# |---|---|
# | text → tokens → ids | [17](17_byte_pairs.py), [18](18_batches.py) |
# | ids → vectors, and the position | [08](08_embeddings.py), [09](09_positions.py), [10](10_longer.py) |
# | why attention at all | [02](02_recurrence.py), [03](03_bahdanau.py) |
# | attention | [04](04_soft_lookup.py), [05](05_scaling.py), [07](07_many_heads.py) |
# | why a German token sees only earlier ones | [06](06_masks.py) |
# | feed-forward, and what lies between the steps | [11](11_feed_forward.py), [12](12_residual_norm_dropout.py) |
# | all boxes together | [13](13_whole_model.py) |
# | loss and gradient | [01](01_backprop.py), [14](14_label_smoothing.py) |
# | the training steps | [15](15_adam_and_warmup.py), [16](16_first_training.py), [19](19_train_a_translator.py) |
# | the loop, and the score of a translation | [20](20_beam_search.py), [21](21_bleu_and_averaging.py) |
#
# **Exercises.** `00_greedy`, from above. `00_next_word` asks you to predict: for each German word of a sentence, at
# which English word should the decoder look?
#
# **Next:** [lesson 01](01_backprop.py) finds all slopes at once. (Short of time? Lessons 01, 04 to 09, 11 to 15 and 20
# hold the paper's model, its loss, its optimiser and its search.)
