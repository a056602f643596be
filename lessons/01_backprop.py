# %% [markdown]
# # 01 · Backprop by hand, and how to know it is right
#
# **A network with a wrong gradient can still learn. How do you find the right one?**
#
# *Needs NumPy, matrix products and the derivative of a function of one variable · you will compute every gradient of a
# small network with pencil and paper.*

# %% Imports
from types import SimpleNamespace

import numpy as np
from transformer import BOS, EOS, PAD, linear, loss_of, new_model

from support.constructions import as_counts, labelled, train
from support.drawing import Drawing
from support.lesson import quote, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# Here are three training runs of the same small network. It counts how often each of 762 words occurs in an English
# sentence, and says which of 22 kinds it is: question, passive, date and so on. All runs learn from the same 500
# sentences. Training needs the **gradient**: how fast the loss grows if a weight grows. In run B, one line of its code
# is wrong, and in run C another.

# %% Three runs
sentences = as_counts(labelled("val"), labelled("test"))
assert sentences.x.shape[1] == 762 and len(sentences.classes) == 22


def sum_of_rows(dy):
    return dy.sum(axis=0)


GRADIENTS = {"run A": (lambda p, q: p - q, sum_of_rows),
             "run B": (lambda p, q: (p - q) * q, sum_of_rows),
             "run C": (lambda p, q: p - q, lambda dy: dy.mean(axis=0))}
runs = {name: train(sentences, *both) for name, both in GRADIENTS.items()}
table(["", "mean loss of a sentence, at the start", "after 300 steps",
       "right on 500 new sentences"],
      [[name, f"{run.losses[0]:.2f}", f"{run.losses[300]:.2f}",
        f"{run.right.mean():.0%}"] for name, run in runs.items()])
right = [run.right.mean() for run in runs.values()]
assert 0.17 < right[0] - right[1] < 0.18 and 0.02 < right[0] - right[2] < 0.025

# %% [markdown]
# Nothing crashed, and each loss fell to less than a tenth. But run B is 18 points worse on new sentences.
#
# ## The picture
#
# Let's draw a smaller network. It counts two words, *was* and *the*, and chooses between three kinds of sentences. Our
# sentence, "The letter was written by the teacher", has one *was* and two *the*, and is a passive.

# %% The drawing
# of an input: its count, where it is; of a class: logit, bias, e^logit, q, where it is
INPUTS = {"was": (1, 165), "the": (2, 335)}
CLASSES = {"question": ("0", "0", 1, 0, 95),
           "passive": ("ln 2", "−0.307", 2, 1, 250),
           "date": ("ln 5", "−0.391", 5, 0, 405)}
WEIGHTS = {"was": (2, 1, 0), "the": (-1, 0, 1)}


def network(backward=False):
    """The network, with `backward` also the gradients."""
    drawing = Drawing(946, 500)

    def gradient(x, y, n, size=15):
        """n eighths; the triangle points where the number should go."""
        if backward:
            words = f"{n:+d}/8".replace("-", "−")
            drawing.gradient(x, y, -n / 8, words, size, largest=1.5)

    def wire(start, end, dashed=False, bend=0):
        start, end = (end, start) if backward else (start, end)
        role = "gradient" if backward else "forward"
        drawing.arrow(start, end, role, "", -bend if backward else bend, 1.3, dashed)

    drawing.rectangle(722, 255, 228, 476, "line", filled=0.1, radius=12)
    drawing.text(722, 478, "softmax and cross-entropy", "soft", 13)
    for x, words in ((62, "input x"), (282, "weights W"), (425, "logits y"),
                     (630, "e^y"), (760, "p"), (812, "q"), (902, "loss L")):
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
            if backward:
                drawing.rectangle(x + 34, y, 92, 20, "paper", filled=1, outline=False)
            else:
                drawing.rectangle(x, y, 24, 20, "paper", filled=1, outline=False)
            drawing.text(x, y, weight, "forward")
            gradient(x + 28, y, count * (e - 8 * q))
    for name, (logit, bias, e, q, row) in CLASSES.items():
        box = drawing.vector(425, row, [logit], "forward", cell=64, above=name)
        drawing.text(404 if backward else 425, row + 31, f"b {bias}", "forward", 13)
        gradient(444, row + 31, e - 8 * q, 13)
        wire((box.right[0] + 4, row), (616, row))
        wire((637, row + (14 if row < 335 else -14)), (690 if row < 200 else 676,
                                                       317 if row < 335 else 354))
        gradient(494, row - 16, e - 8 * q)
        if backward:
            drawing.text(508, row + 16, f"{e}/8 − {q}", "gradient", 13, italic=True)
            drawing.text(586, row + 14, f"× {e}", "gradient", 13, italic=True)
        gradient(626, row + (24 if row > 335 else -24), 1)
        drawing.text(630, row, e)
        drawing.arrow((644, row), (738, row))
        drawing.text(710, row - 12, "÷ 8", "soft", 12)
        drawing.bar(760, row, e / 8, 36, 76, below=f"{e}/8", role="forward")
        drawing.vector(812, row, [q], cell=30, height=30)
    drawing.box(696, 336, "sum 8", "forward", width=60, height=34)
    drawing.vector(902, 250, ["1.386"], "forward", cell=64, above="ln 8 − ln 2")
    wire((728, 336), (866, 264))
    wire((460, 240), (866, 242), bend=85)
    role = "gradient" if backward else "forward"
    for x, y, part, slope in ((700, 143, "− ln 2", "× (−1)"),
                              (816, 315, "ln 8", "× 1/8")):
        drawing.text(x, y, slope if backward else part, role, 13, italic=backward)
    return drawing


show(network(), "01_forward",
     alt="Two inputs, was with count 1 and the with count 2, joined by six wires with "
     "the weights 2, 1, 0 and −1, 0, 1 to three boxes, the logits 0, ln 2 and ln 5 of "
     "question, passive and date. Each logit gives an exponential, 1, 2 and 5, and a "
     "bar, 1/8, 2/8 and 5/8. Arrows lead from the exponentials to their sum, 8, and "
     "two into the loss: ln 8 from the sum, and − ln 2 from the logit of passive, "
     "which is the right class. The loss is 1.386.",
     caption="Forward, from left to right. Dashed wires have the weight 0.")

# %% [markdown]
# A wire multiplies what it carries by its **weight**, the blue number. A box adds up what arrives and its own **bias**
# b. The three sums y are the **logits**, one score for each class. Softmax turns them into probabilities p ([lesson
# 00](00_whole_game.py)), and q marks the right class.
#
# ## Forward, by hand
#
# The logit of *passive* is 1 · 1 + 2 · 0 − 0.307 = 0.693 = ln 2. Find the other two. (The bias of *date* is ln 5 − 2.)
#
# The exponentials are 1, 2 and 5, and their sum is 8. So p = (1/8, 2/8, 5/8).
#
# The loss, **cross-entropy**, is the negative logarithm of the right class's probability. Since ln(2/8) = ln 2 − ln 8,
# it has two parts, with an arrow for each:
#
# L = −ln(2/8) = **ln 8 − ln 2** = 1.386
#
# Here is the code for a **batch** of B sentences and J classes. Its loss is the sum over the sentences.

# %%
def loss_of_logits(y, q):                       # y, q (B, J); q: 1 at the right class
    e = np.exp(y)                               # y must be small: lesson 14
    p = e / e.sum(axis=1, keepdims=True)        # each row adds up to 1
    return -(q * np.log(p)).sum(), p            # L, p (B, J)


x = np.array([[1.0, 2]])                        # (1, 2): one sentence
W = np.array([[2.0, 1, 0],                      # (2, 3): a row for each word,
              [-1.0, 0, 1]])                    # a column for each class
b = np.array([0, np.log(2) - 1, np.log(5) - 2])
q = np.array([[0, 1, 0]])                       # it is a passive

L, p = loss_of_logits(x @ W + b, q)
print("8 p =", 8 * p.round(12), "  L =", L.round(3))

# %% [markdown]
# ## Backward, by hand
#
# Give one number in figure 1 a tiny nudge δ, and compute everything to its right again. How fast does the loss grow?
# That is the number's **gradient**, the derivative of the loss with respect to it. For an array y, the array dy = ∂L/∂y
# has all its gradients, in the shape of y.
#
# The **chain rule** follows the nudge to the loss:
#
# - Each step on the way multiplies the nudge by the step's slope. A wire with weight 2 turns δ into 2δ.
# - If a number feeds several wires, each wire passes the nudge on. At the loss, the effects add up.
#
# **Backpropagation** starts at the loss and goes left. Each step reuses the gradients to its right, so one pass finds
# all.
#
# **The logits.** In L = ln 8 − ln 2, the 8 is the sum. Let the logit of *date* grow by δ. Its exponential, 5, grows by
# 5δ, because e^y is its own derivative. So the sum, 8, grows by 5δ as well. The derivative of ln s is 1/s, so ln 8
# grows by 5δ/8. The gradient is 5/8, the probability of *date*.
#
# In the same way, *question* gets 1/8. From *passive*, two routes lead to the loss. The route through the sum gives
# 2/8. On the other route, the logit itself, ln 2, is subtracted: if it grows by δ, the loss falls by δ. That is −1.
# Together: 2/8 − 1.
#
# This holds for any logits. In $L=\ln s-y_{\text{right}}$, where $s=\sum_j e^{y_j}$, the first part gives
# $e^{y_j}/s=p_j$ for each class, and the second −1 for the right one. So:
#
# **dy = p − q** = (1/8 − 0, 2/8 − 1, 5/8 − 0) = (+1/8, −6/8, +5/8)
#
# **The biases.** A nudge of a bias moves its logit by just as much. So db = dy.
#
# **The weights.** Take the wire from *the* to *passive*. It carries the count 2. So if the weight grows by δ, the logit
# grows by 2δ. The gradient is 2 · (−6/8) = −12/8. So: *what went in, times what comes back.* Find the other five before
# you look at figure 2.
#
# **The inputs.** The count of *was* feeds three wires, and the effects add up: 2 · 1/8 + 1 · (−6/8) + 0 · 5/8 = −4/8.
# For *the*: −1/8 + 0 + 5/8 = 4/8.

# %% The drawing, all the way back
show(network(backward=True), "01_backward",
     alt="The same drawing with a gradient at each number. Exponentials: +1/8 each. "
     "Logits and biases: +1/8, −6/8, +5/8. Weights of was: +1/8, −6/8, +5/8; weights "
     "of the: +2/8, −12/8, +10/8. Inputs: −4/8 for was, +4/8 for the.",
     caption="The same network, backward. A triangle shows where a number should go to "
     "make the loss smaller: down if its gradient is positive.")

# %% [markdown]
# ## In general
#
# Sentences of a batch share W and b. Take a second one, "Where is the teacher?": no *was*, one *the*. Each logit is 1
# less. Check that p is (1/8, 2/8, 5/8) again. The right class is *question*, so dy = (−7/8, 2/8, 5/8). Both sentences
# use the weight from *the* to *passive*, and the effects add up: 2 · (−6/8) + 1 · 2/8 = −10/8.
#
# For all weights and sentences at once, write forward with letters: $y_{nj} = \sum_i x_{ni} W_{ij}$ means "for sentence
# n and class j, multiply $x_{ni}$ by $W_{ij}$, and add up over i". NumPy takes the letters as they are:
# `np.einsum("ni,ij->nj", x, W)` is x @ W.
#
# Now go back. In sentence n, $x_{ni}$ goes into the weight $W_{ij}$, and $dy_{nj}$ comes back. Their product, added up
# over all sentences, is $dW_{ij}$. And $dx_{ni}$ adds up the routes through all classes j.
#
# **Your turn.** Write `linear` in `my_transformer/transformer.py` (`scratchformer learn start` makes it). Its first
# argument holds the letters of forward, such as "ni,ij->nj". Make the letters for dW and for dx from them. `W.data` is
# the weight, and dW is added to `W.grad`. `dy = yield y` hands out y; the rest runs when dy is known, and returns dx.
# Run `scratchformer learn check linear`.

# %%
quote("linear")

# %% [markdown]
# <details><summary>The same as matrix products</summary>
#
# - dW = xᵀ dy
# - dx = dy Wᵀ
# - db = the sum of the rows of dy
#
# The first two hold for *any* matrices: if y = a c, then da = dy cᵀ and dc = aᵀ dy.
#
# </details>
#
# With `linear`, one step of training:

# %%
def weight(array):
    return SimpleNamespace(data=array, grad=np.zeros_like(array))


W = weight(W)
y, backward = linear("ni,ij->nj", x, W)
L, p = loss_of_logits(y + b, q)
dy = p - q
dx = backward(dy)                               # this adds to W.grad, too

# take away 0.1, the learning rate, times the gradient
after, p_after = loss_of_logits(x @ (W.data - 0.1 * W.grad) + b - 0.1 * dy[0], q)
print(f"L {L:.3f} -> {after:.3f}, p of passive {p[0, 1]:.0%} -> {p_after[0, 1]:.0%}")

# %% The numbers of both sentences
assert np.allclose(8 * dy, [[1, -6, 5]]) and np.allclose(8 * dx, [[-4, 4]])
assert np.allclose(8 * W.grad, [[1, -6, 5], [2, -12, 10]])
two, two_q = weight(W.data), np.array([[0, 1, 0], [1, 0, 0]])
two_y, two_backward = linear("ni,ij->nj", np.vstack([x, [0, 1]]), two)
two_dy = loss_of_logits(two_y + b, two_q)[1] - two_q
two_backward(two_dy)
assert np.allclose(8 * two_dy, [[1, -6, 5], [-7, 2, 5]])
assert np.allclose([8 * two.grad[1, 1], 8 * two_dy.sum(axis=0)[1]], [-10, -4])

# %% [markdown]
# ## Two layers
#
# The counts can't change, so why dx? In a deep network, the input of one layer is the output of the layer before. Let's
# put two **hidden units** h in place of our counts. Each multiplies the input 2 by a weight, which gives u. Then
# **ReLU** turns a negative number into 0 and keeps the others.

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
        start, end = (to_x - 5, to_y + 9), (x + 5, y + 9)
        drawing.arrow(start, end, "gradient" if carries else "soft")
        if not carries:
            middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            drawing.text(*middle, "✕", "gradient", 15)

    for y, weight, u, h, dh, du, dw, name in (
            (66, "× (−1)", -2, 0, -4, 0, "0", "was"),
            (202, "× 0.5", 1, 1, 4, 4, "+1", "the")):
        unit = drawing.vector(280, y, [u], above="u", **look)
        out = drawing.vector(470, y, [h], above=f"h, in place of “{name}”", **look)
        both((start.right[0], 134 + (y - 134) * 0.2), unit.left, carries=du)
        both(unit.right, out.left, carries=du)
        both(out.right, (rest.left[0], y))
        at = 54 if y < 134 else 214
        drawing.text(138, at, weight, "forward")
        drawing.gradient(188, at, -int(dw), dw, largest=1.5)
        drawing.text(375, y - 25, "ReLU", "forward")
        drawing.text(375, y + 25, f"× {int(u > 0)}", "gradient", 13, italic=True)
        for box, eighths in ((unit, du), (out, dh)):
            words = f"{eighths:+d}/8".replace("-", "−") if eighths else "0"
            drawing.gradient(box.x - 6, y + 37, -eighths / 8, words, largest=1.5)
    both(rest.right, loss.left)
    drawing.gradient(44, 171, -2 / 8, "+2/8", largest=1.5)
    return drawing


show(one_layer_more(), "01_deeper",
     alt="The input 2 goes to two units. Times −1 it is u = −2, and ReLU makes h = 0 "
     "of it; times 0.5 it is u = 1, and h = 1. The network of figure 1 makes the loss "
     "1.386 of both. Backward: −4/8 and +4/8 come to the two h, 0 and +4/8 to the two "
     "u, 0 and +1 to the two weights, and +2/8 to the input.",
     caption="One more layer. Nothing goes back along the crossed arrows.")

# %% [markdown]
# So h = (0, 1), and p = (1/8, 2/8, 5/8) as for the second sentence. Let the right class be *passive*. Then −4/8 and 4/8
# come back to h, as in figure 2. At u = −2 the slope of ReLU is 0: this route is cut. At u = 1 the slope is 1, so this
# u gets 4/8. For the weights before, du takes the place of dy: 2 · 0 = 0 and 2 · 4/8 = 1. The input gets 0 · (−1) + 4/8
# · 0.5 = 2/8.

# %% The two layers
W_1, W_2 = weight(np.array([[-1, 0.5]])), weight(W.data)
u, u_backward = linear("ni,ij->nj", np.array([[2.0]]), W_1)
y, y_backward = linear("ni,ij->nj", np.maximum(0, u), W_2)
deep_L, deep_p = loss_of_logits(y + b, q)
dh = y_backward(deep_p - q)
du = dh * (u > 0)
assert np.allclose(deep_L, np.log(4)) and np.allclose(u_backward(du), 2 / 8)
assert np.allclose(8 * dh, [[-4, 4]]) and np.allclose(8 * du, [[0, 4]])
assert np.allclose(W_1.grad, [[0, 1]])

# %% [markdown]
# <!-- see: inside?way=backward&step=logits | a gradient on its way back through a Transformer -->
#
# ## How do we know that it is right?
#
# Code and pencil agree, but the same wrong idea could be in both. Here is a test that needs forward only. Take the
# weight from *the* to *passive*, which is 0. Run forward with the weight δ, then with −δ. Divide the difference of the
# two losses by 2δ. This slope should be −12/8 = −1.5.

# %% Two nudges and a tiny one
rows = []
for nudge in 0.1, 0.00001:
    up, down = (loss_of_logits(x @ (W.data + [[0, 0, 0], [0, move, 0]]) + b, q)[0]
                for move in (nudge, -nudge))
    rows.append([f"{nudge:.5f}".rstrip("0"), f"{up:.7f}", f"{down:.7f}",
                 f"{(up - down) / (2 * nudge):.8f}"])
    assert abs((up - down) / (2 * nudge) + 1.5) < 0.15 * nudge**2 + 1e-9
table(["δ", "loss at weight δ", "loss at weight −δ", "difference / 2δ"], rows)

# %% [markdown]
# This is a **central difference**. With the small δ, all digits are right. (Others: [lab notes 01, experiment
# 2](lab/01_backprop.py#experiment-2-which-step).) But it takes two forward passes for *every* weight: too slow for
# training.
#
# **Your turn.** Write `check` in `transformer.py`: this test for all weights of a tiny Transformer. Its parts come in
# later lessons; until you write them, they are ours. These lines show what you need:

# %%
# float32, the default, has too few digits for small differences
model = new_model(V=9, d_model=4, d_ff=8, h=2, N=2, dtype="float64")
rng = np.random.default_rng(0)
for w in model.weights.values():                # some start at exactly 1 or 0,
    w.data += rng.normal(size=w.data.shape)     # where mistakes can hide

# PAD, 0, is padding; EOS, 1, is </s>; BOS, 2, is <s>
source = np.array([[3, 4, 5, EOS], [6, EOS, PAD, PAD]])     # ids of words; padded,
target = np.array([[BOS, 7, 4, EOS], [BOS, 8, EOS, PAD]])   # since mistakes hide there
loss, backward = loss_of(source, target, model)
backward(1.0)                                   # fills w.grad of every weight w

# %% [markdown]
# Move each number of each array w up and down by `step` (our δ), and put it back. The **relative error** of w is the
# largest |w.grad − central difference|, divided by the largest |central difference|. Assert that each is below 10⁻⁶.
# (Ours also tests dropout, lesson 14.) Run `scratchformer learn check check`.

# %%
quote("check")

# %% [markdown]
# ## Does it matter?
#
# What was wrong in runs B and C?
#
# - **Run B** forgets that the wrong classes are in the sum 8, too. Its dy is p − q for the right class and 0 for the
#   others: (0, −6/8, 0) in figure 2.
# - **Run C** takes the *mean* of the rows of dy for db, not the sum. Training divides all gradients by the number of
#   sentences, 500, so its biases learn 500 times too slowly.
#
# Which of the two bugs do central differences of the loss find, with 5 random sentences?

# %% The three gradients in the check
random = np.random.default_rng(1)
x, q = random.normal(size=(5, 4)), np.eye(3)[[0, 2, 1, 1, 2]]
W, b = random.normal(size=(4, 3)), random.normal(size=3)
p = loss_of_logits(x @ W + b, q)[1]
numeric_dW = numeric_gradient(lambda W: loss_of_logits(x @ W + b, q)[0], W)
numeric_db = numeric_gradient(lambda b: loss_of_logits(x @ W + b, q)[0], b)


def relative_error(ours, numeric):
    return np.abs(ours - numeric).max() / np.abs(numeric).max()


errors = {}
for name, (dy_of, db_of) in GRADIENTS.items():
    dy = dy_of(p, q)
    errors[name] = max(relative_error(x.T @ dy, numeric_dW),
                       relative_error(db_of(dy), numeric_db))
assert errors["run A"] < 1e-9
one = loss_of_logits(x[:1] @ W + b, q[:1])[1] - q[:1]
assert np.allclose(GRADIENTS["run C"][1](one), sum_of_rows(one))
assert [round(errors[name], 1) for name in ("run B", "run C")] == [1.1, 0.8]

# %% [markdown]
# <details><summary>Make a guess, then unfold: what the check says</summary>
#
# Both: their relative errors are 1.1 and 0.8. (That of A is below 10⁻⁹.)
#
# The results hardly show the bug of C: its biases hardly move, and a network without biases is right just as often. So
# biases bring 2 points here. On four other training sets, run A beats run C by 1.4 points at most, and loses once
# ([experiment 1](lab/01_backprop.py#experiment-1-three-gradients-on-five-training-sets)).
#
# </details>
#
# So a falling loss doesn't tell you that the gradient is right. The check does, for the cases that you give it. With
# only the sentence of figure 2, it would pass run C, because the mean of one row is its sum. And it compares backward
# with *our* forward: if we had counted each *was* twice, it would pass as well.
#
# Of 33 bugs of six public programs, planted in our code, gradient checks notice 10: 7 wrong derivatives, and 3 that
# make forward fail. Many others lie in code without gradients, such as the tokenizer ([experiment
# 3](lab/01_backprop.py#experiment-3-what-gradient-checks-cannot-see)).
#
# ## Paper and code
#
# In PyTorch, `F.cross_entropy(x @ W + b, t, reduction="sum").backward()` fills `W.grad` by **automatic
# differentiation**: it runs the backwards of all recorded steps in reverse order. Its check is
# `torch.autograd.gradcheck`. In the library: `linear_backward` and `cross_entropy` in
# [nn/ops.py](../scratchformer/nn/ops.py).
#
# ## What to remember
#
# Backward runs along the wires of forward. Each step multiplies by its slope, and where routes meet, their gradients
# add. The logits get p − q. A weight gets what went in times what comes back. Central differences tell whether a
# gradient is right, but not whether forward is.
#
# **Test yourself.**
#
# 1. Three classes have p = (0.2, 0.3, 0.5), and the first is right. What is dy?
# 2. A weight of 7 carries the input 3, and −0.2 comes back to its output. What is its gradient, and what does its input
#    get?
#
# <details><summary>Answers</summary>
#
# 1: (−0.8, 0.3, 0.5). 2: 3 · (−0.2) = −0.6, and 7 · (−0.2) = −1.4.
#
# </details>
#
# **Yours:** `linear`, `check` · `scratchformer learn check 01`
#
# **Next:** [lesson 04](04_soft_lookup.py), attention. (Side trip before it: [lesson 02](02_recurrence.py).)
