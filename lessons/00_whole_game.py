# %% [markdown]
# # 00 · The whole game
#
# **How can a machine that only calculates know what "it" means?**
#
# *Needs Python and NumPy arrays (no calculus yet) · you will follow a sentence through a trained Transformer, and find
# out how it chooses one word.*

# %% Imports
import numpy as np

from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run
from support import translator_pictures
from support.lesson import ROOT, show, table
from support.translator_pictures import Candidate, Side

# %% [markdown]
# Here is a Transformer that translates English into German. This course is about how it works.

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
# We changed only the last English word. In the German, the word for "it" changed too, from *es* to *sie*. *Das Pferd*
# (the horse) is neuter, so a tired horse is *es*. *Die Straße* (the street) is feminine, so a narrow street is *sie*.
# Neither sentence was in the training text.
#
# Try your own in the explorer, a page that runs this model in your browser: `scratchformer explore data/tiny_model`
# writes it.
#
# <!-- see: transplant?s=The+horse+leaves+the+street+because+it+is+too+tired.
# &t=The+horse+leaves+the+street+because+it+is+too+narrow. | these two sentences; change them -->
#
# It looks as if the model knew which noun is meant. But nobody wrote a rule into it. It can only calculate. How?
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
# 1. **Sentence → ids.** The text is cut into **tokens**, or **pieces**: words, punctuation marks, and parts of words.
#    The model knows 1,600 tokens. Each has a number, its **id**. `</s>` marks the end.
# 2. **Ids → vectors.** The id picks a row of a table: a **vector** of 128 numbers. It is multiplied by a fixed number,
#    and a vector that depends only on the position is added ([lessons 08](08_embeddings.py) and [09](09_positions.py)).
#    Figure 1 shows the first three numbers of the result.
# 3. **Encoder.** So far, the vector of *tired* knows nothing of its sentence. Two **layers** change that. In each,
#    **attention** adds to every vector something of the others. Then a **feed-forward** step changes each vector by
#    itself.
# 4. **Decoder.** The German so far becomes vectors too, with `<s>` for "start" in front. A decoder layer has three
#    steps. The second, attention to the encoder's vectors, brings in the English.
# 5. **Vector → probabilities.** Each row of the table of step 2 is compared with the decoder's last vector: multiply
#    the first numbers of both, the second numbers, and so on, and add up. This **dot product** is the **logit** of the
#    row's token, its score. **Softmax** turns the 1,600 logits into probabilities.
#
# All numbers in tables and layers are **parameters**, 867,328 of them. The model learned them from 20,000 sentence
# pairs, which a program made from a grammar.
#
# ## By hand: the two tools
#
# **Attention** finds weights, and averages with them. Say *weil* looks at two English tokens, *tired* and *street*. It
# asks with a vector, its **query**, here (1, 2). Each of the two has a **key**, which is compared with the query, and a
# **value**, which is averaged. (The query is the vector of *weil* times a learned table: a dot product with each
# column. Key and value are the token's encoder vector times two other tables. The numbers here are made up.)
#
# | token | key | score: query · key | weight | value |
# |---|---|---|---|---|
# | *tired* | (1.1, 0) | 1 · 1.1 + 2 · 0 = 1.1 | 3/4 | (4, 0) |
# | *street* | (2, −1) | 1 · 2 + 2 · (−1) = 0 | 1/4 | (0, 8) |
#
# The score is a dot product again. (The model also divides it by a fixed number: [lesson 05](05_scaling.py).)
# **Softmax** turns scores into weights: take $e$ to the power of each, 3.00 and 1, and divide by their sum, 4. Then
# average the values:
#
# 3/4 · (4, 0) + 1/4 · (0, 8) = (3, 2)
#
# This average, times one more table, is added to the vector of *weil* ([lesson 04](04_soft_lookup.py)).
#
# **Now you.** Let the key of *street* be (0.69, 0). What are the weights and the average?
#
# <details><summary>Calculate, then unfold</summary>
#
# The scores are 1.1 and 0.69, the exponentials 3 and 2, the weights 3/5 and 2/5. The average is (2.4, 3.2).
#
# </details>

# %% Softmax as code
def softmax(logits):
    """Any numbers (V,) -> positive numbers that add up to 1"""
    e = np.exp(logits - logits.max())          # the maximum cancels; it avoids overflow
    return e / e.sum()


assert np.allclose(softmax(np.log([1, 2, 5])), [1 / 8, 2 / 8, 5 / 8])
query, values = np.array([1, 2]), np.array([[4, 0], [0, 8]])
for street, weights, average in ((2, -1), [3 / 4, 1 / 4], [3, 2]), (
        (0.69, 0), [3 / 5, 2 / 5], [2.4, 3.2]):
    found = softmax(np.array([(1.1, 0), street]) @ query)
    assert np.allclose(found, weights, atol=0.002)
    assert np.allclose(found @ values, average, atol=0.02)

# %% [markdown]
# Step 5 uses softmax. With the real logits of figure 1:

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
# Check the first line with a calculator. (Why only 0.895? This model was trained to give about 0.9 to the right token,
# not 1: [lesson 14](14_label_smoothing.py).)
#
# Where does *weil* really look?

# %% The weights of the second drawing
def names(ids):
    return [token.strip("▁") for token in tokenizer.pieces(ids)]


def looks(sentence):
    """Last layer, last token: the weights of the English and of the German tokens"""
    source = np.array([[*tokenizer.encode([sentence])[0], EOS]])
    _, cache = model.forward(source, written_ids)
    *_, german, english = attention_weights(cache)       # (1, heads 4, T 11, T or S 14)
    weights = [found[0, :, -1].mean(axis=0) for found in (english, german)]
    tokens = names(source[0]), names(written_ids[0])
    return [list(zip(*both)) for both in zip(tokens, weights)]


english, german = looks(TIRED)
of_english, of_german = dict(english), dict(german)
assert of_english["too"] + of_english["tired"] > 0.5 and of_english["it"] < 0.03
assert of_english["horse"] + of_english["street"] < 0.03
assert of_german["Das"] > 0.5 > 2 * of_german["die"] > 0.4
also, articles = (dict(weights) for weights in looks(NARROW))
assert 0.535 < also["too"] < 0.545 and 0.005 < also["narrow"] < 0.015
assert max(articles, key=articles.get) == "die" and articles["die"] > 0.445

# %% The drawing of the weights
show(
    translator_pictures.looks([
        ("attention to the English", english),
        ("attention to the German so far", german)]),
    "00_looks",
    alt="Two rows of bars, one for each token. English: too 0.33, tired 0.29, the full "
    "stop 0.11, the others below 0.1; horse 0.00, street 0.01, it 0.02. German so far: "
    "Das 0.53, die 0.25, the others at most 0.05.",
    caption="Attention weights of *weil* in the last decoder layer: the mean of its "
    "four *heads*, which are attentions side by side.",
)

# %% [markdown]
# So *weil* looks mostly at *too* and *tired*, and hardly at *it* or a noun. In the *narrow* sentence, it looks mostly
# at *too* (0.54), and hardly at *narrow* (0.01). Of the German, it looks at the articles: most at *Das* in the first
# sentence (0.53), most at *die* in the second (0.45).
#
# To write a whole sentence, take the likeliest token, write it down, and ask again, until the answer is `</s>`:
# **greedy search**.

# %% The tokens of the drawing
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
# How probable is a whole translation? Multiply the probabilities of its tokens. For the upper row of figure 3, you get
# 0.27. In symbols, where $x$ is the English, $y_t$ a German token, and $\prod_t$ a product:
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# **Your turn.** Write greedy search on paper, for at most 80 tokens. You may call `encode(sentence)`, which gives
# `memory`; `next_logits(memory, written)`, which gives 1,600 logits for the German ids so far, without `<s>`; and
# `tokenizer.decode([ids])[0]` for the text. When does your loop end?

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
# ## So how does it know?
#
# The German so far is the same for both sentences. So the difference between *es* and *sie* comes from the encoder's
# vectors. From which one? The decoder gets the vectors of the *tired* sentence, but one is replaced by that of the
# *narrow* sentence. Will the vector of *it* turn *es*, the horse, into *sie*, the street? If not, which one will?
#
# <!-- explorer: transplant?s=The+horse+leaves+the+street+because+it+is+too+tired.
# &t=The+horse+leaves+the+street+because+it+is+too+narrow.
# | The explorer: move a vector from one of the two sentences into the other -->

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
# <details><summary>Make a guess, then unfold: vectors exchanged</summary>

# %% Exchanging vectors
ES, SIE = (tokenizer.encode([f"weil {word}"])[0][-1] for word in ("es", "sie"))
# The  horse  le  av  es  the  street  because  it  is  too  tired  .   </s>
#  0     1    2   3   4    5     6        7     8   9   10    11    12   13
tired, narrow = encode(TIRED)[0], encode(NARROW)[0]     # (14, 128) each
alone = encode("It is too narrow.")[0, 4]               # the vector of narrow


def after_surgery(positions, vectors):
    """P(es) and P(sie), with these vectors at `positions` of the tired sentence"""
    memory = tired.copy()
    memory[positions] = vectors
    return pronouns(memory)


def pronouns(memory):
    p = softmax(next_logits(memory[None], beginning))
    return [f"{p[ES]:.2f}", f"{p[SIE]:.2f}"]


table(["the decoder gets", "P(es)", "P(sie)"],
      [["the tired sentence", *pronouns(tired)],
       ["… but “it” of the narrow one", *after_surgery([8], narrow[8])],
       ["… but the narrow one's adjective", *after_surgery([11], narrow[11])],
       ["… but the adjective of “It is too narrow.”", *after_surgery([11], alone)],
       ["… without its adjective", *pronouns(np.delete(tired, 11, axis=0))],
       ["the narrow one without its adjective",
        *pronouns(np.delete(narrow, 11, axis=0))]])

# %% [markdown]
# - **The vector of *it* does nothing.** So if the encoder wrote an answer into it, the decoder doesn't read it.
# - **The word *narrow* is enough.** Even its vector from "It is too narrow." switches the model to *sie*.
# - **Without an adjective, the model writes *es* in both sentences.** Does it take the first noun by default, or just
#   prefer *es*?
#
# Is this one lucky pair? We have 120 such pairs, with nouns of all genders. How many of the 240 sentences get their
# partner's pronoun? 2 without exchange, 3 with the partner's *it*, 237 with the partner's adjective, and 213 with this
# adjective from "It is too …". Without an adjective, 193 get the first noun's pronoun (half would be 120). This noun is
# always the subject, too ([lab notes 00](lab/00_whole_game.py#experiment-1-which-vector-decides-the-pronoun)).
#
# </details>
#
# But where does the gender come from? Figure 2 says: look at the articles. So leave the English alone, and give the
# horse another article. *Das* belongs to *es*, *der* to *er*, *die* to *sie*. (*Der Pferd* is wrong, like "a apple".)

# %% Changing the article
for article in "Das", "Der", "Die":
    changed = tokenizer.encode([BEGINNING.replace("Das", article)])[0]
    [token] = tokenizer.pieces([next_logits(encode(TIRED), changed).argmax()])
    print(f"{article} Pferd verlässt die Straße, weil ... {token.strip('▁')}")

# %% [markdown]
# The model copies the gender from the article, even from a wrong one: in 239 of 240 trials. And if "it" is the second
# noun, the model copies from the second article, in 226 of 228.
#
# Does it know that streets don't tire? Exchange the nouns:

# %%
print(translator.translate(["The street leaves the horse because it is too tired."])[0])

# %% [markdown]
# In German, this says that the *street* is tired! We exchanged the nouns in all 240 test sentences. In 225, the pronoun
# still means the noun in the same position, first or second; in only 13, the noun that makes sense ([lab notes
# 00](lab/00_whole_game.py#experiment-2-where-the-gender-comes-from)).
#
# In the training sentences with two nouns, "too tired" was always said of the first one (112 times), and "too narrow"
# always of the second (149 times). For such words a simple rule is always right: **the first noun by default; *narrow*
# switches to the second; the noun's article gives the gender.**
#
# Four adjectives, such as *big*, can mean either noun: the verb decides. The model is right in 43 of 45 such test
# sentences; the best rule that sees only the adjective, in 26.
#
# ## How it learned
#
# At first nearly all parameters are random. **Training** repeats three steps:
#
# 1. Let the model guess each German token from the right ones before it.
# 2. Measure how bad the guesses are: in its simplest form, the **loss** is the mean of $-\ln p$, where $p$ is the
#    probability of the right token. It is 0 for $p = 1$, and 2.08 for $p = 1/8$. (Lesson 14 changes it.)
# 3. For *every* parameter, find out: would the loss rise or fall if the parameter grew a little? Then make it a little
#    smaller, or larger, so that the loss falls.
#
# For our sentence:

# %% The sentence pair
german = tokenizer.encode(["Das Pferd verlässt die Straße, weil es zu müde ist."])[0]
before, right = np.array([[BOS, *german]]), np.array([[*german, EOS]])   # (1, 16) each

# %%
untrained = Transformer(model.config, seed=0, dtype="float64")
parameters, losses = untrained.store.data, []    # all in one array: (867328,)
for step in range(21):
    untrained.zero_grad()
    loss, tokens = batch_loss_backward(untrained, (source_ids, before), right)
    gradient = untrained.store.grad / tokens     # of the loss, for every parameter
    parameters -= 0.1 * gradient                 # a little, downhill
    losses.append(loss / tokens)

# %% The table of the losses
table(["after training steps", "loss", "p with this loss: e to the −loss"],
      [[step, f"{losses[step]:.2f}", f"{np.exp(-losses[step]):.4f}"]
       for step in (0, 1, 5, 20)])

# %% [markdown]
# Equal logits would give 1/1600 ≈ 0.0006.
#
# How `batch_loss_backward` does step 3 for 867,328 parameters at once is the subject of [lesson 01](01_backprop.py). On
# 32 other pairs, the loss only fell from 7.82 to 7.12. The real training took 2,000 steps, each with other sentences (a
# loop as in [lesson 19](19_train_a_translator.py)). That model translates 94 % of 500 new sentences exactly like the
# reference, but none of 200 longer ones ([lab notes 00](lab/00_whole_game.py#experiment-4-how-good-is-it)).
#
# ## Paper and code
#
# This is the machine of [Attention Is All You Need](https://arxiv.org/abs/1706.03762) (2017). We left out the biases,
# and that the vectors are rescaled after each step ([lesson 12](12_residual_norm_dropout.py)). The paper's *base* model
# has six layers instead of two, and about 75 times as many parameters. In the library:
# [nn/transformer.py](../scratchformer/nn/transformer.py), [decoding/search.py](../scratchformer/decoding/search.py).
#
# ## What to remember
#
# A Transformer turns a sentence and the beginning of its translation into probabilities of the next token. Attention
# mixes vectors with weights that are new for each sentence: the softmax of query · key. Ours doesn't know what "it"
# means: it goes by the adjective (sometimes, by the verb), and copies the gender from the noun's article.
#
# **Test yourself.**
#
# 1. Four tokens have the logits 0, 0, 0 and ln 3. What probability has the last?
# 2. A translation has three tokens, with the probabilities 1/2, 1/2 and 3/4. What is its probability?
# 3. The decoder gets the vectors of the *narrow* sentence, but the adjective's is that of *tired*. *es* or *sie*?
#
# <details><summary>Answers</summary>
#
# 1: 3/6 = 1/2. 2: 3/16. 3: *es*: the adjective decides.

# %% The third answer
swapped = narrow.copy()
swapped[11] = tired[11]
assert float(pronouns(swapped)[0]) > 0.8

# %% [markdown]
# </details>
#
# **Yours.** `scratchformer learn start` writes 22 empty functions into `my_transformer/transformer.py`, and 14 for
# lessons 17 to 23 into `more.py` beside it. `scratchformer learn train` trains `transformer.py` at once: what you
# haven't written is ours.
#
# **Next:** [lesson 01](01_backprop.py), on step 3 of training.
