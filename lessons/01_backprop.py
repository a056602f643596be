# %% [markdown]
# # 01 · Backprop by hand, and how to know it is right
#
# **A network with a wrong gradient can still learn. How do you find the right one?**
#
# *Needs nothing but NumPy, matrix products and the derivative of a function of one variable · you will compute every
# gradient of a small network with pencil and paper.*

# %% Imports
import math

import numpy as np

from support.constructions import as_counts, labelled, train
from support.drawing import Drawing
from support.lesson import measure, show, table

# %% [markdown]
# Here are two training runs of the same small network. It counts how often each of 762 words occurs in an English
# sentence. Then it says what kind of sentence it is: a question, a passive, a date, and so on, 22 kinds in all.
#
# Training repeats three steps. Measure how bad the answers are (the **loss**). Compute how fast the loss grows with
# each weight (its **gradient**). Move each weight a little, so that the loss falls. Both runs start from the same
# weights and learn from the same 500 sentences. But in run B, one line of the code for the gradient is wrong.

# %% Two runs
sentences = as_counts(labelled("val"), labelled("test"))
assert sentences.x.shape[1] == 762 and len(sentences.classes) == 22


def sum_of_rows(dy):
    return dy.sum(axis=0)


run_a = train(sentences, lambda p, q: p - q, sum_of_rows)
run_b = train(sentences, lambda p, q: (p - q) * q, sum_of_rows)
table(["", "loss at the start", "loss after 300 steps", "right on 500 new sentences"],
      [[name, f"{run.losses[0]:.2f}", f"{run.losses[300]:.2f}",
        f"{run.right.mean():.0%}"]
       for name, run in (("run A", run_a), ("run B", run_b))])

# %% [markdown]
# In run B, nothing crashed, and the loss fell to less than a tenth. But it has 18 points less on new sentences. Would
# you notice without run A? So how do we find the right gradient, and how can we be sure?
#
# ## The picture
#
# Let's make the network so small that we can draw all of it. It counts only two words, *was* and *the*, and chooses
# between three kinds of sentences. Our sentence is "The letter was written by the teacher". It has one *was* and two
# *the*, and it is a passive.

# %% The drawing
# of an input: its count, where it is; of a class: logit, bias, e^logit, q, where it is
INPUTS = {"was": (1, 165), "the": (2, 335)}
CLASSES = {"question": ("0", "0", 1, 0, 95),
           "passive": ("ln 2", "−0.307", 2, 1, 250),
           "date": ("ln 5", "−0.391", 5, 0, 405)}
WEIGHTS = {"was": (2, 1, 0), "the": (-1, 0, 1)}


def network(backward=""):
    """The network, and the gradients of its "logits" or of "everything"."""
    drawing = Drawing(886, 500)

    def gradient(x, y, n, size=15, is_logit=False):
        """n eighths; the triangle points where the number should go."""
        if backward == "everything" or backward and is_logit:
            words = f"{n:+d}/8".replace("-", "−")
            drawing.gradient(x, y, -n / 8, words, size, largest=1.5)

    def wire(start, end, dashed=False, bend=0):
        start, end = (end, start) if backward else (start, end)
        role = "gradient" if backward else "forward"
        drawing.arrow(start, end, role, "", -bend if backward else bend, 1.3, dashed)

    drawing.rectangle(662, 255, 228, 476, "line", filled=0.1, radius=12)
    drawing.text(662, 478, "softmax and cross-entropy", "soft", 13)
    for x, words in ((62, "input x"), (282, "weights W"), (425, "logits y"),
                     (570, "e^y"), (700, "p"), (752, "q"), (842, "loss L")):
        drawing.text(x, 34, words, "soft", 13)
    for word, (count, row) in INPUTS.items():
        box = drawing.vector(62, row, [count], "forward", above=f"“{word}”")
        gradient(58, row + 34, sum(weight * (e - 8 * q) for weight, (_, _, e, q, _)
                                   in zip(WEIGHTS[word], CLASSES.values())))
        for (*_, to), weight in zip(CLASSES.values(), WEIGHTS[word]):
            wire((box.right[0] + 4, row), (388, to), dashed=weight == 0)
    for word, (count, row) in INPUTS.items():
        for (_, _, e, q, to), weight in zip(CLASSES.values(), WEIGHTS[word]):
            x, y = 283, row + 0.65 * (to - row)
            if backward == "everything":
                drawing.rectangle(x + 34, y, 92, 20, "paper", filled=1, outline=False)
            else:
                drawing.rectangle(x, y, 24, 20, "paper", filled=1, outline=False)
            drawing.text(x, y, weight, "forward")
            gradient(x + 28, y, count * (e - 8 * q))
    for name, (logit, bias, e, q, row) in CLASSES.items():
        box = drawing.vector(425, row, [logit], "forward", cell=64, above=name)
        drawing.text(404 if backward else 425, row + 31, f"b {bias}", "forward", 13)
        gradient(444, row + 31, e - 8 * q, 13)
        wire((box.right[0] + 4, row), (556, row))
        wire((577, row + (14 if row < 335 else -14)), (630 if row < 200 else 616,
                                                       317 if row < 335 else 354))
        gradient(506, row - 16, e - 8 * q, is_logit=True)
        if backward:
            drawing.text(516, row + 16, f"{e}/8 − {q}", "gradient", 13, italic=True)
        drawing.text(570, row, e)
        drawing.arrow((584, row), (678, row))
        drawing.text(650, row - 12, "÷ 8", "soft", 12)
        drawing.bar(700, row, e / 8, 36, 76, below=f"{e}/8", role="forward")
        drawing.vector(752, row, [q], cell=30, height=30)
    drawing.box(636, 336, "sum 8", "forward", width=60, height=34)
    drawing.vector(842, 250, ["1.386"], "forward", cell=64, above="ln 8 − ln 2")
    wire((668, 336), (806, 264))
    wire((460, 240), (806, 242), bend=85)
    role = "gradient" if backward else "forward"
    for x, y, part, slope in ((632, 143, "− ln 2", "× (−1)"),
                              (756, 315, "ln 8", "× 1/8")):
        drawing.text(x, y, slope if backward else part, role, 13, italic=bool(backward))
    return drawing


show(network(), "01_forward",
     alt="Two inputs, was with count 1 and the with count 2, joined by six wires with "
     "the weights 2, 1, 0 and −1, 0, 1 to three boxes, the logits 0, ln 2 and ln 5 of "
     "question, passive and date. Each logit gives an exponential, 1, 2 and 5, and a "
     "bar, 1/8, 2/8 and 5/8. Arrows lead from the exponentials to their sum, 8, and "
     "two into the loss: ln 8 from the sum, and − ln 2 from the logit of passive, "
     "which is the right class. The loss is 1.386.",
     caption="Forward, from left to right: two counts become one number, the loss. "
     "Dashed wires have the weight 0.")

# %% [markdown]
# Follow the arrows:
#
# - A wire multiplies what it carries by its **weight**, the blue number.
# - A box adds up what arrives and its own **bias** b. The three sums y are the **logits**, one score for each class.
# - **Softmax** turns the logits into probabilities p.
# - The **loss** L says how bad these probabilities are. (q marks the right class.)
#
# ## Forward, by hand
#
# The logits, with a pencil:
#
# | class | *was* | *the* | bias | logit y |
# |---|---|---|---|---|
# | question | 1 · 2 | + 2 · (−1) | + 0 | = 0 |
# | passive | 1 · 1 | + 2 · 0 | − 0.307 | = 0.693 = ln 2 |
# | date | 1 · 0 | + 2 · 1 | − 0.391 | = 1.609 = ln 5 |
#
# We chose the two strange biases, ln 2 − 1 and ln 5 − 2, so that the rest is easy. Softmax takes the exponential of
# each logit and divides it by the sum of all three. The exponentials are 1, 2 and 5. Their sum is 8, so p = (1/8, 2/8,
# 5/8). The network thinks that our passive is a date.
#
# The loss is the negative logarithm of the right class's probability. This is called **cross-entropy**. It is 0 if the
# right class has probability 1. A logarithm turns the fraction into a difference, and figure 1 shows its two parts:
#
# L = −ln(2/8) = **ln 8 − ln 2** = 1.386
#
# In code, for B sentences at once (a **batch**) with I counts and J logits each. Each row of q has a 1 at the right
# class.

# %%
def linear(x, W, b):                            # x (B, I), W (I, J), b (J,)
    return x @ W + b                            # y (B, J)


def softmax_cross_entropy(y, q):                # y and q (B, J)
    e = np.exp(y)                               # may overflow: lab notes, experiment 7
    p = e / e.sum(axis=1, keepdims=True)        # each row adds up to 1
    return -(q * np.log(p)).sum(), p            # L, p (B, J)


# %% The numbers of figure 1
x = np.array([[1.0, 2]])                        # (1, 2): one sentence
W = np.array([[2.0, 1, 0],                      # (2, 3): a row for each word,
              [-1.0, 0, 1]])                    # a column for each class
b = np.array([0, np.log(2) - 1, np.log(5) - 2])
q = np.array([[0, 1, 0]])                       # it is a passive

L, p = softmax_cross_entropy(linear(x, W, b), q)
print("8 p =", 8 * p.round(12), "  L =", L.round(3))

# %% [markdown]
# ## What is a gradient?
#
# Let one number in figure 1 grow a little, and compute everything to its right again. How fast does the loss grow? That
# is the number's **gradient**, the derivative of the loss with respect to it. For an array y we write dy, short for
# ∂L/∂y. It has the shape of y.
#
# To find a gradient, give the number a tiny nudge δ and follow the nudge to the loss. The **chain rule** has two parts:
#
# - Each step on the way multiplies the nudge by the step's slope. A wire with weight 2 turns δ into 2δ.
# - If a number feeds several wires, each wire passes the nudge on. At the loss, the effects add up.
#
# ## Backward, by hand
#
# **Backpropagation** starts at the loss and goes left. Each step reuses the gradients to its right, so one pass finds
# all of them. We begin with the three logits. To make the loss smaller, which should go up, and which down? Which one
# matters most?
#
# <details><summary>Make a guess, then unfold: the same network, backward</summary>

# %% The drawing, backward to the logits
show(network(backward="logits"), "01_logits",
     alt="The same drawing with arrows from right to left and the gradients of the "
     "three logits: +1/8, −6/8 and +5/8. Back to the sum goes × 1/8, and straight "
     "back to the logit of passive × (−1).",
     caption="Backward to the logits. Training moves a number where its triangle "
     "points: down if the gradient is positive. The larger the gradient, the larger "
     "the triangle.")

# %% [markdown]
# </details>
#
# **The logits.** In L = ln 8 − ln 2, the 8 is the sum of the exponentials, and ln 2 is the logit of *passive*. Let the
# logit of *date* grow by δ. Its exponential, 5, grows by 5δ, because e^y is its own derivative. So the sum, 8, grows by
# 5δ as well. The derivative of ln s is 1/s, so ln 8 grows by 5δ/8. The gradient is 5/8, the probability of *date*.
#
# In the same way, *question* gets its probability, 1/8. The logit of *passive* has two arrows. If it grows by δ, the
# sum makes the loss grow by 2δ/8, and the other arrow takes away δ. The gradient is 2/8 − 1. All three together:
#
# **dy = p − q** = (1/8 − 0, 2/8 − 1, 5/8 − 0) = (+1/8, −6/8, +5/8)
#
# The gradient of *passive* is negative: if its logit grows, the loss falls. So this logit should go *up*.
#
# **The biases.** A nudge of a bias moves its logit by just as much. So db = dy.
#
# **The weights.** Take the wire from *the* to *passive*. The count 2 goes in. So if the weight grows by δ, the logit
# grows by 2δ. The gradient is 2 · (−6/8) = −12/8. In words: *what went in, times what comes back.* Find the other five
# before you look at figure 3.
#
# **The inputs.** The count of *was* feeds three wires. Its nudge takes three routes, and the effects add up:
# 2 · 1/8 + 1 · (−6/8) + 0 · 5/8 = −4/8. For *the* you get −1/8 + 0 + 5/8 = 4/8.

# %% The drawing, all the way back
show(network(backward="everything"), "01_backward",
     alt="The same drawing with a gradient at each number. Logits and biases: +1/8, "
     "−6/8, +5/8. Weights of was: +1/8, −6/8, +5/8; weights of the: +2/8, −12/8, "
     "+10/8. Inputs: −4/8 for was, +4/8 for the.",
     caption="All the way back: the gradient of every logit, bias, weight and input. "
     "The largest in size, −12/8, belongs to a weight that is 0.")

# %% [markdown]
# ## Two sentences
#
# All sentences of a batch share W and b. The second one is "Where is the teacher?": no *was*, one *the*. Its logits are
# (−1, ln 2 − 1, ln 5 − 1). Each is 1 less than before. This divides the exponentials and their sum by e, so p is (1/8,
# 2/8, 5/8) once more. But the right class is *question*, so p − q = (−7/8, 2/8, 5/8).
#
# Each weight and each bias is used twice, once for each sentence. So its gradient is the sum of both:
#
# - The bias of *passive* gets −6/8 + 2/8 = −4/8.
# - The weight from *the* to *passive* gets 2 · (−6/8) + 1 · 2/8 = −10/8.
#
# ## One layer further back
#
# Why do we want dx, if the counts can't change? Because in a deep network, the input of one layer is the output of the
# layer before. Let's put two units in place of our two counts. Each multiplies the input 2 by a weight. Then **ReLU**
# turns a negative number into 0 and keeps the others.

# %% The drawing of one layer more
def one_layer_more():
    """2, times −1 and 0.5, ReLU, the network of figure 1: forward and backward."""
    drawing = Drawing(860, 262)
    look = {"role": "forward", "cell": 58, "height": 44}
    start = drawing.vector(50, 134, [2], above="input", **look)
    rest = drawing.box(648, 134, "the network\nof figure 1", width=124, height=190)
    loss = drawing.vector(800, 134, ["1.386"], above="loss L", **look | {"cell": 64})

    def both(left, right, carries=True):
        """An arrow to the right, and below it one back."""
        (x, y), (to_x, to_y) = left, right
        drawing.arrow((x + 5, y - 9), (to_x - 5, to_y - 9), "forward")
        drawing.arrow((to_x - 5, to_y + 9), (x + 5, y + 9), "gradient",
                      dashed=not carries)

    for y, weight, z, h, dh, dz, dw, name in (
            (66, "× (−1)", -2, 0, -4, 0, "0", "was"),
            (202, "× 0.5", 1, 1, 4, 4, "+1", "the")):
        unit = drawing.vector(280, y, [z], above="z", **look)
        out = drawing.vector(470, y, [h], above=f"h, in place of “{name}”", **look)
        both((start.right[0], 134 + (y - 134) * 0.2), unit.left, carries=dz)
        both(unit.right, out.left, carries=dz)
        both(out.right, (rest.left[0], y))
        at = 54 if y < 134 else 214
        drawing.text(138, at, weight, "forward")
        drawing.gradient(188, at, -int(dw), dw, largest=1.5)
        drawing.text(375, y - 25, "ReLU", "forward")
        drawing.text(375, y + 25, f"× {int(z > 0)}", "gradient", 13, italic=True)
        for box, eighths in ((unit, dz), (out, dh)):
            words = f"{eighths:+d}/8".replace("-", "−") if eighths else "0"
            drawing.gradient(box.x - 6, y + 37, -eighths / 8, words, largest=1.5)
    both(rest.right, loss.left)
    drawing.gradient(44, 171, -2 / 8, "+2/8", largest=1.5)
    return drawing


show(one_layer_more(), "01_deeper",
     alt="The input 2 goes to two units. Times −1 it is z = −2, and ReLU makes h = 0 "
     "of it; times 0.5 it is z = 1, and h = 1. The network of figure 1 makes the loss "
     "1.386 of both. Backward: −4/8 and +4/8 come to the two h, 0 and +4/8 to the two "
     "z, 0 and +1 to the two weights, and +2/8 to the input.",
     caption="One more layer, forward in blue and backward in magenta. Nothing goes "
     "back along the dashed arrows.")

# %% [markdown]
# So h = (0, 1), the counts of the second sentence, and p is the same again. Let the right class be *passive*. Then −4/8
# and 4/8 come back to h, as in figure 3. At −2, the slope of ReLU is 0. So the first z gets 0: this route is cut. At 1,
# the slope is 1. So the second z gets 4/8.
#
# Each weight gets what went in times what comes back: 2 · 0 = 0 and 2 · 4/8 = 1. The input feeds both units, so its two
# routes add up: (−1) · 0 + 0.5 · 4/8 = 2/8. The next layer back would begin with this 2/8.
#
# ## Backward, in general
#
# **Your turn.** Write dx, dW and db for any number of rows, on paper. Then write `linear` in
# `my_transformer/transformer.py` (`scratchformer learn start` makes it), and run `scratchformer learn check linear`.
# There the letters, as in "btd,df->btf", say which axes are summed over, `W` is `W.data` with its gradient `W.grad`,
# and there is no bias.
#
# With B rows, the gradient of a weight is a sum of B products. A matrix product makes just such sums. **Look which
# shapes fit.** dW has the shape of W, (I, J). We have x (B, I) and dy (B, J). Only xᵀ dy fits: (I, B) times (B, J) is
# (I, J). In the same way, only dy Wᵀ has the shape of x. (Shapes can't tell a sum from a mean. The check below can.)
#
# | rule | shapes | in figure 3 |
# |---|---|---|
# | dy = p − q | (B, J) | (1/8, −6/8, 5/8) |
# | dW = xᵀ dy | (I, B) (B, J) → (I, J) | what went in times what comes back: 2 · (−6/8) |
# | dx = dy Wᵀ | (B, J) (J, I) → (B, I) | three routes add up: 2 · 1/8 + 1 · (−6/8) + 0 · 5/8 |
# | db = sum of the rows of dy | (B, J) → (J,) | one row, so db = dy |
#
# The two products hold for *any* matrices, weights or not. If y = a c, then da = dy cᵀ and dc = aᵀ dy.

# %% Our solution
def linear_backward(dy, x, W):                  # dy (B, J), x (B, I), W (I, J)
    return dy @ W.T, x.T @ dy, dy.sum(axis=0)   # dx (B, I), dW (I, J), db (J,)


def softmax_cross_entropy_backward(p, q):       # p and q (B, J)
    return p - q                                # dy (B, J)


# %% The miniature, and one step
dy = softmax_cross_entropy_backward(p, q)
dx, dW, db = linear_backward(dy, x, W)
assert np.allclose(8 * dy, [[1, -6, 5]]) and np.allclose(8 * db, [1, -6, 5])
assert np.allclose(8 * dW, [[1, -6, 5], [2, -12, 10]])
assert np.allclose(8 * dx, [[-4, 4]])

two_x, two_q = np.vstack([x, [0, 1]]), np.array([[0, 1, 0], [1, 0, 0]])
two_dy = softmax_cross_entropy(linear(two_x, W, b), two_q)[1] - two_q
_, two_dW, two_db = linear_backward(two_dy, two_x, W)
assert np.allclose(8 * two_dy, [[1, -6, 5], [-7, 2, 5]])
assert np.allclose([8 * two_dW[1, 1], 8 * two_db[1]], [-10, -4])

after, p_after = softmax_cross_entropy(linear(x, W - 0.1 * dW, b - 0.1 * db), q)
print(f"L {L:.3f} -> {after:.3f}, p of passive {p[0, 1]:.0%} -> {p_after[0, 1]:.0%}")

# %% [markdown]
# The code gives the numbers of figure 3. The line above is one step of training: it took away 0.1 times the gradient
# from each weight and bias. This 0.1 is the **learning rate**.
#
# ## How do we know that it is right?
#
# Code and pencil agree, but the same wrong idea could be in both. So here is a test that knows nothing of our
# derivation. Take the weight from *the* to *passive*, which is 0. Run forward with h instead, then with −h. Divide the
# difference of the two losses by 2h, the distance of the two weights. That is the slope of the loss. It should be −12/8
# = −1.5.

# %% Two steps and a tiny one
rows = []
for h in 0.1, 0.01, 0.00001:
    up, down = (softmax_cross_entropy(linear(x, W + [[0, 0, 0], [0, move, 0]], b), q)[0]
                for move in (h, -h))
    rows.append([f"{h:g}" if h > 1e-4 else "0.00001", f"{up:.7f}", f"{down:.7f}",
                 f"{(up - down) / (2 * h):.8f}"])
    assert math.isclose((up - down) / (2 * h), -1.5, rel_tol=0.1 * h**2 + 1e-10)
table(["h", "loss at weight +h", "loss at weight −h", "difference / 2h"], rows)

# %% [markdown]
# This is a **central difference**. In the second row, h is ten times smaller than in the first, and the error is a
# hundred times smaller. In the last row, all digits are right. (Why not smaller still? [Lab notes 01, experiment
# 2](lab/01_backprop.py#experiment-2-which-step).)
#
# Training with it would need two forward passes for *every* weight. So we use it once, to check the fast way.
#
# **Your turn.** Write central differences for every element of an array. In `transformer.py` this is `check`, which
# does it for all weights of the whole model, dropout included. The parts of the model that you have not written yet are
# ours.

# %% Our solution
def numeric_gradient(f, array, h=1e-5):
    """Central differences of the number f(array) in each element. -> array.shape"""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        moved = array.copy()
        moved[index] = array[index] + h
        above = f(moved)
        moved[index] = array[index] - h
        gradient[index] = (above - f(moved)) / (2 * h)
    return gradient


# %% [markdown]
# Now the whole check, with 5 random rows, 4 inputs and 3 classes. (With one row a mean would equal the sum, so we take
# several, and three different sizes.) The **relative error** is the largest difference
# between the two gradients, divided by the largest element.

# %% The check
def relative_error(ours, numeric):
    return np.abs(ours - numeric).max() / max(np.abs(ours).max(), np.abs(numeric).max())


random = np.random.default_rng(1)
x, W, b = random.normal(size=(5, 4)), random.normal(size=(4, 3)), random.normal(size=3)
q = np.eye(3)[[0, 2, 1, 1, 2]]


def loss(x, W, b):
    return softmax_cross_entropy(linear(x, W, b), q)[0]


numeric_dx = numeric_gradient(lambda x: loss(x, W, b), x)
numeric_dW = numeric_gradient(lambda W: loss(x, W, b), W)
numeric_db = numeric_gradient(lambda b: loss(x, W, b), b)

p = softmax_cross_entropy(linear(x, W, b), q)[1]
dx, dW, db = linear_backward(p - q, x, W)
errors = map(relative_error, (dx, dW, db), (numeric_dx, numeric_dW, numeric_db))
measure("largest relative error of dx, dW and db", max(errors), 0, 1e-9)

# %% [markdown]
# The check has passed. But it compares backward with *our* forward. Suppose
# that we had counted each *was* twice. Backward is right for these wrong counts, and the check passes. ([Lab notes 01,
# experiment 5](lab/01_backprop.py#experiment-5-what-gradient-checks-cannot-see) counts such bugs in public code.)
#
# ## Does it matter?
#
# Let's repeat the training from the top of the page with three wrong gradients. Everything else stays the same.
#
# - **right class only** (run B): p − q for the right class, 0 for the others. In figure 2, that would be (0, −6/8, 0).
#   You get this if you forget that the wrong classes are in the sum 8, too.
# - **bias averaged**: db is the *mean* of the rows of dy, not the sum. Training takes the mean loss, so it divides all
#   gradients by 500. This db was divided by 500 before, so the biases learn 500 times too slowly.
# - **sign flipped**: dy = q − p.
#
# Which of these bugs would you notice in the loss? Which ones does the check find?

# %% The four gradients
gradients = {"right (run A)": (lambda p, q: p - q, sum_of_rows),
             "right class only (run B)": (lambda p, q: (p - q) * q, sum_of_rows),
             "bias averaged": (lambda p, q: p - q, lambda dy: dy.mean(axis=0)),
             "sign flipped": (lambda p, q: q - p, sum_of_rows)}
runs = {"right (run A)": run_a, "right class only (run B)": run_b}
rows, right, errors = [], [], []
for name, (dy_of, db_of) in gradients.items():
    run = runs[name] if name in runs else train(sentences, dy_of, db_of)
    dy = dy_of(p, q)
    right.append(run.right.sum())
    errors.append(max(relative_error(x.T @ dy, numeric_dW),
                      relative_error(db_of(dy), numeric_db)))
    rows.append([name, f"{run.losses[-1]:,.2f}", f"{run.right.mean():.0%}",
                 f"{errors[-1]:.1f}" if errors[-1] > 0.01 else "below 10⁻⁹"])
assert errors[0] < 1e-9 and min(errors[1:]) > 0.2
assert right[0] - right[1] > 60 and 0 <= right[0] - right[2] < 25

# %% [markdown]
# <details><summary>Make a guess, then unfold: what the loss says, and what the check says</summary>

# %% The table
table(["gradient", "loss after 300 steps", "right on new sentences",
       "relative error in the check"], rows)

# %% [markdown]
# The flipped sign is obvious. The other two losses look like healthy training. The averaged bias costs only 2 points.
# That bias hardly moves, and with no bias at all this network gets 74 %, too. The check finds all three bugs without
# any training.
#
# </details>
#
# So a falling loss doesn't tell you that the gradient is right. More time hardly helps run B: it has 60 % right after
# 1,200 steps ([lab notes 01, experiment 1](lab/01_backprop.py#experiment-1-five-gradients-on-five-training-sets)).
#
# ## Paper and code
#
# "Attention Is All You Need" derives no gradient. Its linear maps stand in equation 2 and §3.2.2. In the library, see
# `linear_backward` and `cross_entropy` in [nn/ops.py](../scratchformer/nn/ops.py).
#
# ## What to remember
#
# Backward runs along the wires of forward. Each step multiplies by its slope, and where routes meet, their gradients
# add. The logits get p − q. A weight gets what went in times what comes back. To know that a gradient is right, compare
# it with central differences.
#
# **Yours:** `linear`, `check` · `scratchformer learn check linear check`
#
# **Next.** [Lesson 02](02_recurrence.py) uses all this on networks that read a sentence word by word. If you want
# attention at once, go on to [lesson 04](04_soft_lookup.py).
