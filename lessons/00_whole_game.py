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

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run
from support import translator_pictures
from support.lesson import ROOT, measure, show, table
from support.translator_pictures import Candidate, Side

# %% [markdown]
# Here is a Transformer that translates from English into German. This course is about how it works.

# %%
translator = load_run(ROOT / "data/tiny_model")
TIRED = "The horse leaves the street because it is too tired."
NARROW = "The horse leaves the street because it is too narrow."
for sentence in TIRED, NARROW:
    print(sentence, translator.translate([sentence])[0], sep="\n    ")

# %% Names for the code below; neither sentence is in the training text
model, tokenizer = translator.model, translator.tokenizer
BEGINNING = "Das Pferd verlässt die Straße, weil"
beginning = tokenizer.encode([BEGINNING])[0]                   # German: 10 ids
source_ids = np.array([[*tokenizer.encode([TIRED])[0], EOS]])  # English: (1, 14)

trained_on = set(read_text("train").source)
assert not {TIRED, NARROW} & trained_on and len(trained_on) > 19_000

# %% [markdown]
# We changed only the last English word. In the German, the word for "it" changed too, from *es* to *sie*. And that's
# right! *Das Pferd* (the horse) is neuter, so a tired horse is *es*. *Die Straße* (the street) is feminine, so a narrow
# street is *sie*. (A masculine noun would be *er*.) It looks as if the model knew which noun is meant, in
# sentences that it had never seen.
#
# Nobody wrote a translation rule into the model. It only calculates: it adds, multiplies and divides, with a few simple
# functions such as $e^x$ in between.
#
# ## The picture
#
# Figure 1 follows the first sentence through the model. The German is written up to *weil* ("because"). What comes
# next?

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
    translator_pictures.zoom(
        reads, memory, source_ids.size, writes, states[0, -1], best
    ),
    "00_machine",
    alt="Left, the encoder: the English sentence, the ids of its tokens, a vector for "
    "each, two layers of attention and feed-forward, and new vectors. Right, the "
    "decoder: the German so far, ids, vectors, and two layers which also take in all "
    "14 vectors of the encoder. Its last vector gives 1,600 logits, and softmax turns "
    "them into probabilities: es 0.895, er 0.005, sie 0.004. Circled numbers, 1 to 5, "
    "mark the steps of the list below.",
    caption="Attention mixes the vectors; in all the other steps, each vector is on "
    "its own.",
)

# %% [markdown]
# 1. **Sentence → ids.** The text is cut into **tokens**: words, punctuation marks, and parts of words (*leaves* gives
#    three). The model knows 1,600 tokens. Each has a number, its **id**. The token `</s>` marks the end.
# 2. **Ids → vectors.** The id picks a row from a table: a **vector** of 128 numbers. Training gave similar rows to
#    words that are used alike ([lesson 08](08_embeddings.py#what-have-the-rows-learned)). The row is multiplied by
#    √128, and a pattern for the token's position is added. Figure 1 shows the first three numbers of the result.
# 3. **Encoder.** The row of *tired* is the same in every sentence. If its vector is to say who is tired, that must come
#   from the other words. So two **layers** change the vectors. First, **attention** mixes them. Simplified: to the
#   vector of *tired* it might add 0.7 times itself and 0.3 times that of *horse*. The model computes the 0.7 and the
#   0.3 anew for each sentence, from the vectors ([lesson 04](04_soft_lookup.py)). Then a **feed-forward** step changes
#   each vector by itself.
# 4. **Decoder.** The German so far becomes vectors too, with `<s>` for "start" in front. A decoder layer has one more
#    step: attention to all the encoder's vectors. Only there does the English get into the German.
# 5. **Vector → probabilities.** Multiply the decoder's last vector, number by number, by a token's row in the table of
#    step 2, which both languages share. Add up the 128 products. The sum is the token's score, its **logit**.
#    **Softmax** turns the 1,600 logits into probabilities.
#
# All numbers in the table and the layers are **parameters**, 867,328 of them. The model learned them from 20,000
# sentence pairs, which a program made from a small grammar.
#
# ## By hand
#
# Softmax needs only a pencil. Take three tokens, with the logits 0, 0.69 and 1.61.
#
# 1. Take $e$ to the power of each logit: 1, 2 and 5.
# 2. Add them up: 8.
# 3. Divide each by the sum: 1/8, 2/8 and 5/8.

# %% Softmax as code
def softmax(logits):
    """Any numbers (V,) -> positive numbers that add up to 1"""
    e = np.exp(logits - logits.max())          # the maximum cancels; it avoids overflow
    return e / e.sum()


assert np.allclose(softmax(np.log([1, 2, 5])), [1 / 8, 2 / 8, 5 / 8])

# %% [markdown]
# Now the real logits. (Later lessons write the parts of the folded code.)

# %% Figure 1 as code: encode, next_logits
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

# %% The table of the likeliest three
logits = next_logits(encode(TIRED), beginning)
e, p = np.exp(logits), softmax(logits)
three = p.argsort()[::-1][:3]
rows = [[token.strip("▁"), f"{logits[i]:.4f}", f"{e[i]:,.0f}", f"{p[i]:.4f}"]
        for i, token in zip(three, tokenizer.pieces(three))]
others = e.sum() - e[three].sum()
rows += [["the 1,597 others", "", f"{others:,.0f}", f"{others / e.sum():.4f}"],
         ["all", "", f"{e.sum():,.0f}", "1"]]
table(["next token", "logit", "e to the logit", "probability"], rows)

# %% [markdown]
# Check the first line with a calculator, up to rounding. Why only 0.895? Training aimed at about 0.9 for the right
# token, not at 1 ([lesson 14](14_label_smoothing.py)). So all probabilities in figure 2 lie near 0.9.
#
# To write a sentence, take the likeliest token, write it down, and ask again, until the answer is `</s>`. This is
# **greedy search**. A model that reads its own output in this way is **autoregressive**.

# %% The tokens of the second drawing
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
    caption="For each of its 16 answers the decoder reads *all* tokens so far "
    "(bracket). Blue: where the rows differ.",
)

# %% [markdown]
# ## In general
#
# Multiply the 16 probabilities in the upper row of figure 2. The product, about 0.27, is the probability of the whole
# translation. In general, for an English sentence $x$ and German tokens $y_1, y_2, \dots$, each factor is the
# probability of one token $y_t$, given the tokens before it and $x$. The sign $\prod_t$ multiplies all factors:
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# **Your turn.** Write greedy search for any function that gives the scores of the next token, on paper or in a cell of
# your own, before you unfold ours.

# %% Our solution
def greedy(sentence, longest=80):
    memory, written = encode(sentence), []
    while len(written) < longest:
        token = int(next_logits(memory, written).argmax())     # it puts <s> in front
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
# **The number** is the **loss**. If the right next token gets the probability $p$, its loss is $-\ln p$: 0 for $p = 1$,
# 2.08 for $p = 1/8$, and 7.38 for $p = 1/1600$. The loss of our pair of sentences is the mean over
# 16 guesses. Before each, the model reads the *right* German so far, not what it would have written.

# %% The loss of an untrained model
untrained = Transformer(model.config, seed=0, dtype="float64")
german = tokenizer.encode(["Das Pferd verlässt die Straße, weil es zu müde ist."])[0]
before, right = np.array([[BOS, *german]]), np.array([[*german, EOS]])   # (1, 16) each


def loss(model):
    """The mean of -ln p over 16 tokens, each guessed from the right ones before it"""
    logits, _ = model.forward(source_ids, before)                        # (1, 16, 1600)
    p = [softmax(z)[token] for z, token in zip(logits[0], right[0])]
    return -np.log(p).mean()

# %% [markdown]
# **The way** is to nudge. We take an untrained model, move one parameter a little down and a little up, and look at the
# loss. We chose the parameter to which this loss is most sensitive (lesson 01 can find it): the third number in the row
# of *verl*, the token with which *verlässt* begins.

# %%
parameters = untrained.store.data                # all of them, in one array: (867328,)
verl = tokenizer.encode(["verlässt"])[0][0]      # the id of the token
chosen = 128 * verl + 2                          # its row in the table, third number
losses = {}
for nudge in -0.01, 0, 0.01:
    parameters[chosen] += nudge
    losses[nudge] = loss(untrained)
    parameters[chosen] -= nudge                  # as it was
slope = (losses[0.01] - losses[-0.01]) / 0.02

# %% The table of the losses
value = parameters[chosen]
table(["the parameter", "loss"],
      [[f"{value + nudge:.4f}", f"{found:.4f}"] for nudge, found in losses.items()])

# %% [markdown]
# The middle row is where we are: worse than equal chances for all 1,600 tokens. From the first row to the last, the
# parameter changes by 0.02. The loss changes by 7.8999 − 7.9047 = −0.0048. The ratio is the **slope** of the loss:
# −0.0048 / 0.02 = **−0.24**.
#
# The slope is negative, so the loss falls if this parameter grows. In a training step we *move every parameter a little
# against its slope*. Only a little, because the slope changes on the way, as figure 3 shows.

# %% The drawing of the curve
moves = np.linspace(-1.5, 1.5, 13)
curve = []
for move in moves:
    parameters[chosen] = value + move
    curve.append(loss(untrained))
parameters[chosen] = value                       # as it was

figure, axes = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
axes.plot(value + moves, curve, color=DARK)
axes.plot(value, losses[0], "o", color=ACCENT)
near = np.array([-1, 1])
axes.plot(value + near, losses[0] + slope * near, "--", color=ACCENT)
axes.annotate("we are here", (value, losses[0]), (8, 8), color=ACCENT,
              textcoords="offset points")
axes.set(xlabel="the parameter", ylabel="loss")
show(
    figure,
    "00_slope",
    alt="A curve of the loss over one parameter. At its random value, minus 0.07, a "
    "dashed line has the slope of the curve, minus 0.24: the loss falls to the right. "
    "The curve is lowest near 1.2, where the line would go on falling.",
    caption="Near the random value, the line of slope −0.24 and the curve agree. "
    "After a move of 1.2 the loss no longer falls.",
)
assert 1 <= moves[np.argmin(curve)] <= 1.5 and -0.25 < slope < -0.23

# %% [markdown]
# All slopes together are the **gradient**. Two nudges for each of 867,328 parameters mean running the model 1.7 million
# times, for one training step. **Backpropagation** finds all slopes at once, in the time of a few runs ([lesson
# 01](01_backprop.py)):

# %% Gradient: all slopes by backpropagation
def gradient():
    untrained.zero_grad()
    _, count = batch_loss_backward(untrained, (source_ids, before), right)
    return untrained.store.grad / count         # a slope for every parameter, (867328,)


measure("slope by backpropagation", gradient()[chosen], -0.25, -0.23)

# %% [markdown]
# Both ways agree. Now for twenty training steps:

# %%
progress = [loss(untrained)]
for step in range(20):
    parameters -= 0.1 * gradient()               # every parameter, against its slope
    progress.append(loss(untrained))

# %% The table of the progress
rows = [[str(step), f"{progress[step]:.2f}", f"{np.exp(-progress[step]):.4f}"]
        for step in (0, 1, 5, 10, 20)]
table(["training steps", "loss", "e to the −loss: a typical p"], rows)

# %% [markdown]
# After twenty steps the model knows this pair and little else. The real model took 2,000 steps, each with
# other pairs, and a better rule for the step ([lesson 15](15_adam_and_warmup.py)).
#
# ## So how does it know?
#
# After *weil*, the model writes *es* for one sentence and *sie* for the other, though the German so
# far is the same. So the difference must come from the encoder's vectors. From which one?
#
# Figure 4 shows an experiment. The decoder gets the vectors of the *tired* sentence, but one or more of them are
# replaced by those of the *narrow* sentence. Does it now write *sie*?

# %% The drawing of the exchange
texts = []
for ids in tokenizer.encode([TIRED, NARROW]):
    texts.append([token.strip("▁") for token in tokenizer.pieces([*ids, EOS])])
show(
    translator_pictures.exchange(
        *texts, texts[0].index("it"), "Das Pferd verlässt\ndie Straße, weil"
    ),
    "00_exchange",
    alt="Three rows of 14 tokens. Above, the vectors of the tired sentence; below, "
    "those of the narrow sentence, in blue. The middle row has 13 vectors from above "
    "and, at the word it, a blue one from below. The middle row goes to the decoder, "
    "together with Das Pferd verlässt die Straße, weil; it answers es or sie.",
    caption="The experiment, here for the vector of *it*: the decoder gets the middle "
    "row.",
)

# %% [markdown]
# Which vector turns *es* into *sie*: that of *it*, those of the nouns, or that of the adjective?
#
# <details><summary>Make a guess, then unfold: vectors exchanged</summary>

# %% Exchanging vectors
ES, SIE = (tokenizer.encode([f"weil {word}"])[0][-1] for word in ("es", "sie"))


def exchanged(positions, vectors):
    """P(es) and P(sie), with these vectors at `positions`"""
    memory = encode(TIRED)
    memory[0, positions] = vectors
    p = softmax(next_logits(memory, beginning))
    return [f"{p[ES]:.2f}", f"{p[SIE]:.2f}"]


# The  horse  le  av  es  the  street  because  it  is  too  tired  .   </s>
#  0     1    2   3   4    5     6        7     8   9   10    11    12   13
narrow = encode(NARROW)[0]                       # (14, 128)
others = [*range(11), 12, 13]
alone = encode("It is too narrow.")[0, 4]        # the vector of narrow
table(["vectors exchanged", "P(es)", "P(sie)"],
      [["none", *exchanged([], narrow[[]])],
       ["it", *exchanged([8], narrow[8])],
       ["both nouns", *exchanged([1, 6], narrow[[1, 6]])],
       ["the adjective", *exchanged([11], narrow[11])],
       ["all except the adjective", *exchanged(others, narrow[others])],
       ["the adjective, from “It is too narrow.”", *exchanged([11], alone)]])

# %% [markdown]
# Only the adjective's vector turns *es* into *sie*. (The other 13 vectors are nearly the same in both sentences, so
# exchanging them can't show whether they are needed.) We have 120 such pairs of test sentences. With the adjective's
# vector from the other sentence of the pair, 237 of the 240 sentences get the pronoun of that other sentence.
#
# Did attention write into this vector which noun is meant? In the last row, the vector of *narrow* comes from a
# sentence without nouns, and still the pronoun changes. With such vectors, it changes in 213 of the 240 sentences; with
# the adjective's vector left out, in 121, which is half. So mostly the word alone decides: to this model, *narrow* says
# "the second noun" ([lab notes 00](lab/00_whole_game.py#experiment-1-which-vector-decides-the-pronoun)). The adjective
# chooses the noun.
#
# </details>
#
# But where does the gender come from? Leave the English alone, and give the horse another article in the German so far.
# *Das* is neuter, *der* masculine, *die* feminine. (*Der Pferd* is a mistake, like "a apple".)

# %% Changing the article
for article in "Das", "Der", "Die":
    changed = tokenizer.encode([BEGINNING.replace("Das", article)])[0]
    [token] = tokenizer.pieces([next_logits(encode(TIRED), changed).argmax()])
    print(f"{article} Pferd verlässt die Straße, weil ... {token.strip('▁')}")

# %% [markdown]
# The model copies the gender from the article, even from a wrong one (in 239 of 240 trials with our test sentences).
# Why does "tired" mean the horse? Let's exchange the two nouns.

# %%
print(translator.translate(["The street leaves the horse because it is too tired."])[0])

# %% [markdown]
# In German, this says that the *street* is tired! In the model's training sentences with two nouns, "too tired" was
# always said of the first one (112 times), and "too narrow" of the second (149 times). So for these words the order was
# enough, and the model learned to go by it. We exchanged the nouns in all 240 test sentences, and in 225 the model
# still went by the order. Which order, the English or the German? If we exchange the nouns only in the English and keep
# the German, the pronoun still goes by the German order, in 235 of 240 ([lab notes
# 00](lab/00_whole_game.py#experiment-2-where-the-gender-comes-from)).
#
# A correct answer doesn't tell you *how* it was found. To find out, change one thing and watch the output. Our model
# translates 94 % of 500 new sentences exactly like the reference, but none of 200 longer ones ([lab notes
# 00](lab/00_whole_game.py#experiment-5-how-good-is-it)).
#
# ## Paper and code
#
# This is the machine of [Attention Is All You Need](https://arxiv.org/abs/1706.03762) (2017). Figure 1 leaves out that
# the result of each step is added to its input and then rescaled ([lesson 12](12_residual_norm_dropout.py)). The
# paper's *base* model has six layers instead of two, and about 75 times as many parameters. In the library:
# [nn/transformer.py](../scratchformer/nn/transformer.py), [decoding/search.py](../scratchformer/decoding/search.py).
#
# ## What to remember
#
# A Transformer turns a sentence and the beginning of its translation into probabilities of the next token. It learned
# in 2,000 small steps, guided by the slopes. Our model doesn't know what "it" means. Mostly it goes by a simpler rule:
# *tired* means the first noun of the German so far, *narrow* the second, and that noun's German article gives the
# gender.
#
# **Yours:** a Transformer of 22 functions. `scratchformer learn start` writes them into
# `my_transformer/transformer.py`, empty, and `scratchformer learn train` trains this file at once: what you have not
# written yet is ours. From lesson 01 on you write one function after the other.
#
# **Next:** [lesson 01](01_backprop.py) finds all slopes at once. (Short of time? Read 01,
# 04 to 09, 11 to 15 and 20.)
