# %% [markdown]
# # 01 · Backprop by hand, and how to know it is right
#
# **A network with a wrong gradient still learns. How do you find the right one?**
#
# *Needs nothing but NumPy, matrix products and the derivative of a function of one variable · you will compute every
# gradient of a small network with pencil and paper.*

# %% Imports
import math

import numpy as np

from library.constructions import as_counts, labelled, train
from library.drawing import Drawing
from library.lesson import measure, show, table

# %% [markdown]
# Here are two training runs of the same small network. It reads an English sentence and says what kind of sentence it
# is: a question, a passive, a date, and so on, 22 kinds in all. It has a single layer: it counts the words and gives
# each of them a weight for each kind. Both runs start from the same weights and see the same 500 sentences. But in one
# of them, one line of the gradient is wrong.

# %% Two runs
sentences = as_counts(labelled("val"), labelled("test"))


def sum_of_rows(dy):
    return dy.sum(axis=0)


run_a = train(sentences, lambda p, q: p - q, sum_of_rows)
run_b = train(sentences, lambda p, q: (p - q) * q, sum_of_rows)
table(["", "loss at the start", "after 100 steps", "after 300 steps",
       "right on 500 new sentences"],
      [[name, *(f"{run.losses[step]:.2f}" for step in (0, 100, 300)),
        f"{run.right.mean():.0%}"]
       for name, run in (("run A", run_a), ("run B", run_b))])

# %% [markdown]
# Run B has the bug. Nothing crashed, and its loss fell smoothly to less than a tenth. Without run A to compare with,
# you would probably blame the data for the missing 18 points. So there are two things to learn: how to find the right
# gradient, and how to be sure that it is the right one.
#
# ## The picture
#
# Let's make the network so small that we can draw all of it. It knows only two words, *was* and *the*, counts them in
# a sentence, and chooses between three kinds of sentences. Our sentence is "The letter was written by the teacher": one
# *was*, two *the*. It is a passive.

# %% The drawing
# of an input: its count, where it is; of a class: logit, bias, e^logit, q, where it is
INPUTS = {"was": (1, 165), "the": (2, 335)}
CLASSES = {"question": ("0", "0", 1, 0, 95),
           "passive": ("ln 2", "−0.307", 2, 1, 250),
           "date": ("ln 5", "0.609", 5, 0, 405)}
WEIGHTS = {"was": (2, 1, -1), "the": (-1, 0, 1)}


def network(backward=""):
    """The network, and the gradients of its "logits" or of "everything"."""
    drawing = Drawing(860, 500)

    def gradient(x, y, n, size=15, is_logit=False):
        """n eighths; the triangle points where the number should go."""
        if backward == "everything" or backward and is_logit:
            words = f"{n:+d}/8".replace("-", "−")
            drawing.gradient(x, y, -n / 8, words, size, largest=1.5)

    def wire(start, end, dashed=False):
        start, end = (end, start) if backward else (start, end)
        role = "gradient" if backward else "forward"
        drawing.arrow(start, end, role, width=1.3, dashed=dashed)

    drawing.rectangle(656, 255, 196, 476, "line", filled=0.1, radius=12)
    drawing.text(656, 478, "softmax and cross-entropy", "soft", 13)
    for x, words in ((62, "input x"), (282, "weights W"), (425, "logits y"),
                     (600, "e^y"), (662, "p"), (725, "q"), (812, "loss L")):
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
        wire((box.right[0] + 4, row), (572, row))
        gradient(506, row - 16, e - 8 * q, is_logit=True)
        if backward:
            drawing.text(516, row + 16, f"{e}/8 − {q}", "gradient", 13, italic=True)
        drawing.text(600, row, e)
        drawing.arrow((612, row), (640, row))
        drawing.text(625, row - 12, "÷ 8", "soft", 12)
        drawing.bar(662, row, e / 8, 36, 76, below=f"{e}/8", role="forward")
        drawing.vector(725, row, [q], cell=30, height=30)
    drawing.vector(812, 250, ["1.386"], "forward", cell=64, above="−ln 2/8")
    wire((684, 282), (776, 263))
    return drawing


show(network(), "01_forward",
     alt="Two inputs, was with count 1 and the with count 2, joined by six wires with "
     "the weights 2, 1, −1 and −1, 0, 1 to three boxes, the logits 0, ln 2 and ln 5 "
     "of question, passive and date. Each logit gives an exponential, 1, 2 and 5, and "
     "a bar, 1/8, 2/8 and 5/8. The right class is passive; the loss is 1.386.",
     caption="Forward, from left to right: each wire multiplies by its blue number, "
     "and each box adds up what arrives and its bias b.")

# %% [markdown]
# A wire multiplies what it carries by its **weight**. A box adds up what arrives and its own **bias** b. The three sums
# are the **logits**, one score for each class. Softmax turns them into probabilities p, and the **loss** L says how bad
# these are (q marks the right class). It is one number, at the end of the chain.
#
# **Backpropagation** runs through the same picture from right to left. For every number in it, it answers one question:
# *if this number grew a little, and everything to the right of it were computed again, how much would the loss change,
# per unit of growth?* That is the derivative of the loss with respect to this number. We call it the number's
# **gradient**, and for an array y we write all its gradients as dy, short for ∂L/∂y. It has the shape of y.
#
# To find a gradient, nudge the number by a tiny δ and follow the nudge to the loss. A wire with weight 2 turns δ into
# 2δ. Where a number feeds several wires, each of them passes the nudge on, and at the loss the effects add up. That
# is the chain rule, and we need nothing else.
#
# ## By hand, forward
#
# First the logits, with a pencil:
#
# | class | *was* | *the* | bias | logit y |
# |---|---|---|---|---|
# | question | 1 · 2 | + 2 · (−1) | + 0 | = 0 |
# | passive | 1 · 1 | + 2 · 0 | − 0.307 | = 0.693 = ln 2 |
# | date | 1 · (−1) | + 2 · 1 | + 0.609 | = 1.609 = ln 5 |
#
# The two odd biases are ln 2 − 1 and ln 5 − 1. We chose them so that the rest needs no calculator. **Softmax** takes
# the exponential of each logit and divides it by the sum of all three. The results are positive and add up to one. Our
# exponentials are 1, 2 and 5, their sum is 8, and so p = (1/8, 2/8, 5/8).
#
# The network thinks that our passive is a date. Let q mark the right class: q = (0, 1, 0). The loss looks only at the
# probability of the right class and takes its negative logarithm: −ln(2/8) = ln 4 = 1.386. This is **cross-entropy**.
# It is 0 if the right class gets probability 1, and grows without limit as that probability goes to 0. If you guess,
# with 1/3 for each class, your loss is ln 3 = 1.099. So far the network is worse than that.
#
# ## In general
#
# Put B sentences, a **batch**, into the rows of a matrix x, with I counts in each row. All rows use the same weights W
# and the same biases b and get J logits each. Row n has the right class $t_n$:
#
# $$y = x W + b \qquad p_{nj} = \frac{e^{y_{nj}}}{\sum_k e^{y_{nk}}} \qquad L = -\sum_n \ln p_{n,t_n}$$
#
# (In training, we divide this sum by B. Then the loss is that of one sentence, as in the table of the two runs, and
# every gradient is divided by B, too.)

# %%
def linear(x, W, b):
    """x (B, I), W (I, J), b (J,) -> y (B, J)"""
    return x @ W + b


def softmax_cross_entropy(y, t):
    """y (B, J) logits, t (B,) numbers of the right classes -> L, p (B, J)"""
    y = y - y.max(axis=1, keepdims=True)        # keeps p, and exp can't overflow
    e = np.exp(y)
    s = e.sum(axis=1, keepdims=True)            # (B, 1)
    log_p = y - np.log(s)                       # ln p = y - ln(sum of e^y)
    return -log_p[np.arange(len(t)), t].sum(), e / s


x = np.array([[1.0, 2]])                        # (1, 2): one sentence
W = np.array([[2.0, 1, -1],                     # (2, 3): a row for each word,
              [-1.0, 0, 1]])                    # a column for each class
b = np.array([0, np.log(2) - 1, np.log(5) - 1])
t = np.array([1])                               # class number 1 is "passive"

L, p = softmax_cross_entropy(linear(x, W, b), t)
print("8 p =", 8 * p.round(12), "  L =", L.round(3))

# %% [markdown]
# ## By hand, backward
#
# We go from right to left and begin with softmax and cross-entropy together, which is easier than one by one. Which of
# the three logits should go up to make the loss smaller, and which should go down? Which one matters most?
#
# <details><summary>Make a guess, then unfold: the same network, backward</summary>

# %% The drawing, backward to the logits
show(network(backward="logits"), "01_logits",
     alt="The same drawing with arrows from right to left and the gradients of the "
     "three logits: +1/8, −6/8 and +5/8.",
     caption="Backward to the logits: p − q, in magenta. A triangle points where the "
     "number should go to make the loss smaller.")

# %% [markdown]
# </details>
#
# **The logits.** Write the loss of our sentence with the logarithm worked in:
#
# $$L = -\ln \frac{e^{y_{passive}}}{\sum_k e^{y_k}} = \ln \sum_k e^{y_k} - y_{passive}$$
#
# Let the logit of *date* grow by a tiny δ. Its exponential, 5, grows by 5δ. So the sum, 8, grows by 5δ, and the
# logarithm of the sum by 5δ/8, since the derivative of ln s is 1/s. The gradient is 5/8, which is the probability of
# *date*. In the same way *question* gets 1/8 and *passive* 2/8. But the logit of *passive* also stands at the end of
# the formula, with a minus sign. That makes 2/8 − 1. All three together:
#
# **dy = p − q** = (1/8 − 0, 2/8 − 1, 5/8 − 0) = (+1/8, −6/8, +5/8)
#
# If the logit of *passive* grows, the loss falls: its gradient is negative. So it should go up, and the other two
# should go down, *date* much more than *question*. That is why the triangles point **against** the sign.
# And notice that the three numbers add up to 0. They must, because adding the same number to all logits doesn't change
# p.
#
# **The biases.** A nudge of a bias moves its logit by just as much. So db = dy.
#
# **The weights.** Take the wire from *the* to *passive*. The count 2 comes in, so a nudge of the weight by δ moves the
# logit by 2δ, and the loss by 2δ · (−6/8). Its gradient is 2 · (−6/8) = −12/8. In words: *what went in, times what
# comes back.* Work out the other five weights before you look at figure 3. And look at this wire once more: its weight
# is 0, so it carries nothing at the moment. Still it has the largest gradient of all six.
#
# **The inputs.** The count of *was* feeds three wires, so its nudge takes three routes, and the effects add up:
# 2 · 1/8 + 1 · (−6/8) + (−1) · 5/8 = −9/8. For *the* you get −1/8 + 0 + 5/8 = 4/8. We can't change the counts, of
# course. But in a deep network, the input of one layer is the output of the layer before, and dx is what that layer
# receives as its own dy. Suppose that the 2 were not a count, but the output of another layer: a weight 0.5 times an
# input 4. Then this weight would get what went in, 4, times what comes back, 4/8, which is 2. That is how the gradient
# travels back through a hundred layers.

# %% The drawing, all the way back
show(network(backward="everything"), "01_backward",
     alt="The same drawing with a gradient at each number. Logits and biases: +1/8, "
     "−6/8, +5/8. Weights of was: +1/8, −6/8, +5/8; weights of the: +2/8, −12/8, "
     "+10/8. Inputs: −9/8 for was, +4/8 for the.",
     caption="All the way back: the gradient of every number.")

# %% [markdown]
# **Your turn.** You now have every idea. What is left is to write it for many rows, which share W and b. Run
# `scratchformer learn start`, open `exercises/01_linear_backward.py`, write dx, dW and db, and run `scratchformer learn
# check 01`, which tells you what is wrong and why. (There, x may have more than two axes; make it a matrix of rows
# first.) Then do `exercises/01_cross_entropy_backward.py`, where a target of 0 is padding and has no part in the loss.
# Stuck? `scratchformer learn hint 01_linear_backward`. After that, read on.
#
# ## Backward, in general
#
# Look for the number of the miniature in each line:
#
# | rule | why |
# |---|---|
# | dx = dy Wᵀ | $x_{ni}$ reaches the logit $y_{nj}$ over the wire $W_{ij}$; add up over all wires j that leave it |
# | dW = xᵀ dy | what went in times what comes back, $x_{ni} \, dy_{nj}$; each row n uses the weight, so add up over n |
# | db = Σ dy over the rows | a bias is a weight whose input is always 1 |
# | dy = p − q | in each row, as in the miniature |
#
# The sum over the rows is easily forgotten, because forward, `+ b` copies b into every row without being told. **Where
# forward copies, backward adds.** You needn't remember the transposes: x is (B, I) and dy is (B, J), and there is only
# one way to multiply them into the (I, J) of W.
#
# None of this depends on which factor is called a weight. For *any* product of matrices c = a b, the same nudges give
# da = dc bᵀ and db = aᵀ dc. (Here b is a matrix, not a bias.)

# %% Our solution
def linear_backward(dy, x, W):
    """dy (B, J) -> dx (B, I), dW (I, J), db (J,)"""
    return dy @ W.T, x.T @ dy, dy.sum(axis=0)


def softmax_cross_entropy_backward(p, t):
    """p (B, J), t (B,) -> dy (B, J)"""
    dy = p.copy()
    dy[np.arange(len(t)), t] -= 1
    return dy


# %% The miniature
dy = softmax_cross_entropy_backward(p, t)
dx, dW, db = linear_backward(dy, x, W)
for name, gradient in ("dy", dy), ("dW", dW), ("db", db), ("dx", dx):
    print("8", name, "=", (8 * gradient).round(12).tolist())

after, p_after = softmax_cross_entropy(linear(x, W - 0.1 * dW, b - 0.1 * db), t)
print(f"one step against the gradient: L {L:.3f} -> {after:.3f}, "
      f"p of passive {p[0, 1]:.0%} -> {p_after[0, 1]:.0%}")

# %% [markdown]
# The eighths are those of figure 3, and one step *against* the gradient, with a **learning rate** of 0.1, makes the
# loss smaller.
#
# ## How do we know that it is right?
#
# The numbers agree with our pencil, but the same wrong idea could be in both. So here is a test that knows nothing of
# our derivation. Take the weight from *the* to *passive*, which is 0. Make it a little larger and run forward; make it
# a little smaller and run forward. The difference of the two losses, divided by the distance 2h between the two
# weights, is the slope of the loss. It should be −12/8 = −1.5.

# %% Three steps and a tiny one
rows = []
for h in 1, 0.1, 0.01, 0.00001:
    up, down = (softmax_cross_entropy(linear(x, W + [[0, 0, 0], [0, move, 0]], b), t)[0]
                for move in (h, -h))
    rows.append([f"{h:g}" if h > 1e-4 else "0.00001", f"{up:.7f}", f"{down:.7f}",
                 f"{(up - down) / (2 * h):.8f}"])
    assert math.isclose((up - down) / (2 * h), -1.5, rel_tol=0.1 * h**2 + 1e-10)
table(["h", "loss at weight +h", "loss at weight −h", "difference / 2h"], rows)

# %% [markdown]
# With h ten times smaller, the error is a hundred times smaller, until all digits shown are right. This is called a
# **central difference**. We go equally far up and down, so the curvature of the loss cancels out. (Why not smaller
# still? [Lab notes 01, experiment 2](lab/01_backprop.py#experiment-2-which-step).)
#
# Why does this convince? It uses forward only. A mistake in our derivation would have to give, to ten digits, the same
# number as a program that knows no derivation. Why don't we train with it, then? Because it needs two forward passes
# for *every* weight: with a million weights, two million passes for what one backward pass does. So we use the slow way
# once, to check the fast one.
#
# **Your turn.** `exercises/01_gradient_check.py`: central differences for every element of an array of any shape. Then
# compare with ours.

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
# Now the check itself, with a batch of 5 random rows, 4 inputs and 3 classes. The three sizes differ on purpose: if two
# were equal, a forgotten transpose could still have the right shape. The **relative error** is the largest difference
# between the two gradients, divided by the largest element.

# %% Five random rows
def relative_error(ours, numeric):
    return np.abs(ours - numeric).max() / max(np.abs(ours).max(), np.abs(numeric).max())


random = np.random.default_rng(1)
x, W, b = random.normal(size=(5, 4)), random.normal(size=(4, 3)), random.normal(size=3)
t, q = np.array([0, 2, 1, 1, 2]), np.eye(3)[[0, 2, 1, 1, 2]]


def loss(x, W, b):
    return softmax_cross_entropy(linear(x, W, b), t)[0]


# %%
numeric_dx = numeric_gradient(lambda x: loss(x, W, b), x)
numeric_dW = numeric_gradient(lambda W: loss(x, W, b), W)
numeric_db = numeric_gradient(lambda b: loss(x, W, b), b)

p = softmax_cross_entropy(linear(x, W, b), t)[1]
dx, dW, db = linear_backward(p - q, x, W)       # q: 1 at the right class of each row
measure("dx: relative error", relative_error(dx, numeric_dx), 0, 1e-9)
measure("dW: relative error", relative_error(dW, numeric_dW), 0, 1e-9)
measure("db: relative error", relative_error(db, numeric_db), 0, 1e-9)
wrong_dW = x.T @ ((p - q) * q)
measure("dW of run B: relative error", relative_error(wrong_dW, numeric_dW), 0.1, 1)
wrong_db = ((p - q) * q).sum(axis=0)
measure("db of run B: relative error", relative_error(wrong_db, numeric_db), 0.1, 1)

# %% [markdown]
# The check passed: ours agree to ten digits. The gradient of run B is wrong in the *first* digit.
#
# But a check has limits. It compares backward with *our* forward. If forward does something else than we meant, say, if
# a layer sees words that it must not see, its gradient can still be right. And the check knows only the inputs that you
# try: with a single sentence, a sum over the rows is the same as a mean. (Lab notes 01: [what the inputs
# hide](lab/01_backprop.py#experiment-4-what-the-inputs-hide), and [what gradient checks can't
# see](lab/01_backprop.py#experiment-5-what-gradient-checks-cannot-see) in public code.)
#
# ## Does it matter?
#
# What was wrong in run B? Its author differentiated softmax element by element, as if each probability depended on its
# own logit alone. For our passive, the loss −ln p has the derivative −1/p = −4 with respect to p, and p has the
# derivative p (1 − p) = 3/16 with respect to its own logit. That makes −6/8, which is right. But the other two logits
# get nothing: dy = (0, −6/8, 0) in place of (1/8, −6/8, 5/8). The right class is pulled up, and no wrong class is ever
# pushed down. (The numbers don't add up to 0, so one could have noticed.)
#
# Let's plant three more bugs in the same training: the gradient of the bias is *averaged* over the rows where it should
# be summed; all gradients are divided by the number of sentences once too often; all signs are flipped. Which of the
# four bugs would the loss after 300 steps have told you about? Which would the check have found?

# %% The four bugs
gradients = {"right (run A)": (lambda p, q: p - q, sum_of_rows),
             "right class only (run B)": (lambda p, q: (p - q) * q, sum_of_rows),
             "bias averaged": (lambda p, q: p - q, lambda dy: dy.mean(axis=0)),
             "divided once too often": (lambda p, q: (p - q) / len(p), sum_of_rows),
             "sign flipped": (lambda p, q: q - p, sum_of_rows)}
runs = {"right (run A)": run_a, "right class only (run B)": run_b}
rows, accuracies, errors = [], [], []
for name, (dy_of, db_of) in gradients.items():
    run = runs[name] if name in runs else train(sentences, dy_of, db_of)
    wrong_dy = dy_of(p, q)
    error = max(relative_error(x.T @ wrong_dy, numeric_dW),
                relative_error(db_of(wrong_dy), numeric_db))
    accuracies.append(run.right.mean())
    errors.append(error)
    shown = f"{error:.1f}" if error > 0.01 else "below 10⁻⁹"
    rows.append([name, f"{run.losses[-1]:,.2f}", f"{run.right.mean():.0%}", shown])
assert errors[0] < 1e-9 and min(errors[1:]) > 0.2
assert accuracies[0] - accuracies[1] > 0.12
assert 0 <= accuracies[0] - accuracies[2] < 0.05
longer = train(sentences, *gradients["right class only (run B)"], steps=600)
assert longer.losses[-1] < run_a.losses[-1] and 0.57 < longer.right.mean() < 0.61

# %% [markdown]
# <details><summary>Make a guess, then unfold: what the loss says, and what the check says</summary>

# %% The table
table(["gradient", "loss after 300 steps", "right on new sentences",
       "error in the check (larger of dW and db)"], rows)

# %% [markdown]
# The flipped sign is obvious, and what is divided once too often looks like a learning rate that is too small. The
# other two look like healthy training. The averaged bias costs 11 of the 500 new sentences here, and −1 to 7 with four
# other sets of training sentences: you would hardly notice. The check finds all four, without any training. (The two
# errors of 0.8 are 1 − 1/5, because the check has 5 rows. With a single row it would find neither of these bugs.)
#
# </details>
#
# So a falling loss doesn't tell you that the gradient is right. Nor does longer training repair it: after 600 steps run
# B's loss is 0.11, *lower* than that of run A above, and still it gets only 59 % of the new sentences right. (With the
# other training sets it loses 14 to 19 points, too: [lab notes 01, experiment
# 1](lab/01_backprop.py#experiment-1-five-gradients-on-five-training-sets).)
#
# ## Paper and code
#
# "Attention Is All You Need" derives no gradient. Its linear maps stand in equation 2 and §3.2.2; the loss is nowhere
# written down. In the library, `linear_backward` and `cross_entropy` in [nn/ops.py](../scratchformer/nn/ops.py) do what
# this page does, with two differences: they *add* to dW and db, because a weight may be used in several places, and the
# loss leaves out padding. `scratchformer gradcheck` runs the check on 106 cases of 20 layers, along random directions
# instead of element by element ([lab notes 01, experiment 3](lab/01_backprop.py#experiment-3-random-directions)).
#
# ## What to remember
#
# Backward runs along the wires of forward, from right to left. A wire multiplies by the same weight in both directions,
# and where routes meet, their gradients add. The gradient of a weight is what went in times what comes back, and the
# gradient of the logits is p − q. A gradient is right when central differences agree with it to many digits; a falling
# loss is no proof.
#
# **Exercises.** `01_linear_backward` · `01_cross_entropy_backward` · `01_gradient_check` · and a puzzle:
#
# A linear layer is used twice in one network, for two different inputs. What is the gradient of its weight?
#
# <details><summary>Make a guess, then unfold: a weight used twice</summary>
#
# The sum of the two. A nudge of the weight reaches the loss by two routes, and effects add up. That is why the library
# writes `+=` and never `=` into a gradient.
#
# </details>
#
# **Next.** You have a tool to trust. [Lesson 02](02_recurrence.py) uses it on the networks that read a sentence word by
# word, which the paper set out to replace. If you want attention at once, go on to [lesson 04](04_soft_lookup.py).
