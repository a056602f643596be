"""Greedy and beam search in PyTorch on a CPU, as fast as we could make them: what scratchformer's are compared with.

The algorithm is that of `scratchformer.decoding.search`, so the translations are the same; of each sentence only the
best is returned. Nothing loops over sentences or hypotheses.

- Every sentence's keys and values have their place in arrays made once. Those of the source are computed once, for all
  layers in one product.
- Hypotheses are never copied. The keys and values that the W hypotheses of a sentence have written lie side by side,
  and all W attend to all of them, under a mask that hides from each what its ancestors did not write. A step reorders
  the mask only.
- A sentence that is over leaves at once: the last of the batch takes its place, and the others stay where they are.
- The 2 W likeliest continuations are found in two rounds: first groups of words by their largest logit, then words.
  What depends on the hypothesis alone, like the normalisation of its probabilities, is added to the few.
- Logits go to an array made once, and queries come scaled by 1/sqrt(d_k) from their weights.
- With several threads, each may take batches of its own (`search_over_batches`).

Measured in whole batches, each of these was slower: hypotheses copied by index_select (0 to 6 %),
F.scaled_dot_product_attention in the decoder (3 to 25 %), log_softmax (0 to 7 %), topk over the whole vocabulary (3 to
18 %), torch.softmax in `attend` (0 to 5 %), and torch.compile(dynamic=True) of `step` (3 to 8 times).
F.scaled_dot_product_attention was no faster in the encoder, nor was nn.TransformerEncoder with its fast path. Weights
packed for oneDNN or MKL, or a ReLU fused into the product, gained next to nothing.

In bfloat16 the weights, and all that is computed from them up to the logits, have that dtype. Under autocast in
inference mode, PyTorch rounds every weight again in each step.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Callable

import numpy as np
import torch
import torch.nn.functional as F
from rival import assert_papers
from torch import Tensor

from scratchformer.decoding.search import Hypothesis, hypothesis_of, length_penalty
from scratchformer.nn.layers import sinusoids
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD

# Weights --------------------------------------------------------------------------------------------------------------


class Weights:
    """A copy of a model's weights, laid out for decoding. Searchers share it.

    dtype  of the weights, and so of all that is computed but the choice of words: `model.bfloat16()` in PyTorch's words
    """

    def __init__(self, model: Transformer, dtype: torch.dtype = torch.float32) -> None:
        config = self.config = model.config
        assert_papers(config)
        views, D = model.store.named_views(model.store.data), config.d_model
        tensors = {name: torch.from_numpy(array.copy()) for name, array in views.items()}
        for name, tensor in tensors.items():  # the columns that make queries, times 1/sqrt(d_k)
            if ".qkv." in name or ".q." in name:
                tensor[..., :D] /= math.sqrt(config.d_k)
        tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}

        def affine(name: str) -> Callable[[Tensor], Tensor]:
            """x W + b. W (in, out), which `addmm` takes a little faster than PyTorch's own (out, in)."""
            W, b = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
            return lambda x: torch.addmm(b, x, W)

        def norm(name: str) -> Callable[[Tensor, Tensor], Tensor]:
            gamma, beta = tensors[f"{name}.norm.gamma"], tensors[f"{name}.norm.beta"]
            return lambda x, update: F.layer_norm(update.add_(x), gamma.shape, gamma, beta, config.ln_eps)

        def layer(name: str) -> SimpleNamespace:
            inner, outer = affine(f"{name}.feed_forward.inner"), affine(f"{name}.feed_forward.outer")
            feed_forward_norm = norm(f"{name}.feed_forward")
            found = SimpleNamespace(feed_forward=lambda x: feed_forward_norm(x, outer(inner(x).relu_())))
            found.qkv, found.output = (affine(f"{name}.self_attention.{part}") for part in ("qkv", "output"))
            found.norm = norm(f"{name}.self_attention")
            if name.startswith("decoder"):
                found.cross_q, found.cross_output = (
                    affine(f"{name}.cross_attention.{part}") for part in ("q", "output")
                )
                found.cross_norm = norm(f"{name}.cross_attention")
            return found

        E = torch.from_numpy(views["source_embedding.weight"].copy())
        self.dtype = dtype
        self.embedding, self.unembedding = (E * math.sqrt(D)).to(dtype), E.T.to(dtype).contiguous()  # (V, D), (D, V)
        self.encoder, self.decoder = (
            [layer(f"{stack}.layers.{i}") for i in range(config.N)] for stack in ("encoder", "decoder")
        )
        W, b = (
            torch.cat([tensors[f"decoder.layers.{i}.cross_attention.kv.{kind}"] for i in range(config.N)], dim=-1)
            for kind in ("weight", "bias")
        )
        self.memory_kv = lambda x: torch.addmm(b, x, W)


# Search ---------------------------------------------------------------------------------------------------------------


class Searcher:
    """Searches batch after batch, with arrays that are made once; so each thread needs a searcher of its own.

    Shapes: n sentences that are not over, W beam, t positions written, h heads of width K, S source length, N layers.
    What belongs to a sentence stands in row i < n of its arrays; `sentence[i]` is its number in the batch.
    """

    def __init__(
        self, weights: Weights, beam: int, alpha: float, extra_length: int, sentences: int, longest_source: int
    ) -> None:
        """For batches of up to `sentences` sources of up to `longest_source` tokens."""
        config, dtype, longest = weights.config, weights.dtype, longest_source + extra_length
        self.weights, self.W, self.alpha, self.extra_length = weights, beam, alpha, extra_length
        self.h, self.K = config.h, config.d_k
        self.positions = torch.from_numpy(sinusoids(0, longest, config.d_model)).to(dtype)
        self.penalty = torch.from_numpy(length_penalty(np.arange(longest + 1.0), alpha))
        self.logits = torch.empty(sentences * beam, config.vocab_size, dtype=dtype)
        self.scratch = torch.empty(self.logits.shape)
        self.keys_values = torch.empty(config.N, 2, sentences, config.h, longest * beam, config.d_k, dtype=dtype)
        self.own = torch.full((beam, longest, beam), -math.inf, dtype=dtype)  # at each position, one's own column
        self.own.diagonal(dim1=0, dim2=2).zero_()

    @torch.inference_mode()
    def search(self, source_ids: np.ndarray) -> list[Hypothesis]:
        """The best translation of each source. source_ids (B, S), EOS included, padded with 0."""
        self.start(source_ids)
        return self.greedy() if self.W == 1 else self.beam()

    @torch.inference_mode()
    def start(self, source_ids: np.ndarray) -> None:
        """Read the sources; fill all arrays of the state."""
        weights, h, K = self.weights, self.h, self.K
        ids = torch.from_numpy(source_ids.astype(np.int64))
        (B, S), D, N = ids.shape, h * K, len(weights.decoder)
        real = ids != PAD
        mask = torch.zeros(B, 1, 1, S, dtype=weights.dtype).masked_fill_(~real[:, None, None], -math.inf)
        mask = mask.repeat(1, h, 1, 1)

        x = (F.embedding(ids, weights.embedding) + self.positions[:S]).view(B * S, D)
        for layer in weights.encoder:
            q, k, v = layer.qkv(x).view(B, S, 3, h, K).permute(2, 0, 3, 1, 4).reshape(3, B * h, S, K)
            heads = attend(q, k.transpose(1, 2), v, mask.flatten(0, 1)).view(B, h, S, K)
            x = layer.norm(x, layer.output(heads.transpose(1, 2).reshape(B * S, D)))
            x = layer.feed_forward(x)
        kv = weights.memory_kv(x).view(B, S, N, 2, h, K)

        self.memory_mask = mask  # (n, h, 1, S)
        self.memory_keys = kv[:, :, :, 0].permute(2, 0, 3, 4, 1).contiguous().transpose(0, 1)  # (n, N, h, K, S)
        self.memory_values = kv[:, :, :, 1].permute(2, 0, 3, 1, 4).contiguous().transpose(0, 1)  # (n, N, h, S, K)
        self.past = self.keys_values[:, :, :B].transpose(0, 2)  # (n, 2, N, h, longest W, K)
        self.ancestors = self.own.flatten(1).repeat(B, 1, 1)  # (n, W, longest W): 0, or -inf
        self.t = 0
        self.sentence = torch.arange(B)
        self.longest = real.sum(dim=1) + self.extra_length  # (n,) tokens, EOS included
        self.ids = torch.empty(B, self.W, len(self.positions), dtype=torch.int64)  # (n, W, longest)
        self.last = torch.full((B, self.W), BOS)  # tokens (n, W)
        self.alive = torch.full((B, self.W), -math.inf, dtype=torch.float64)  # log probabilities (n, W)
        self.alive[:, 0] = 0
        self.best_ids = torch.empty(B, len(self.positions), dtype=torch.int64)  # what is found, by sentence number
        self.best_length = torch.zeros(B, dtype=torch.int64)  # EOS included
        self.best_total = torch.full((B,), -math.inf, dtype=torch.float64)
        self.best_score = torch.full((B,), -math.inf, dtype=torch.float64)

    def step(self) -> Tensor:
        """The logits (n W, V) after `last`."""
        weights, W, h, K = self.weights, self.W, self.h, self.K
        n, D, begin, end = len(self.last), h * K, self.t * W, (self.t + 1) * W
        mask = None
        if W > 1:
            mask = self.ancestors[:, None, :, :end].expand(n, h, W, end).reshape(n * h, W, end)
        x = F.embedding(self.last.reshape(n * W), weights.embedding).add_(self.positions[self.t])
        for index, layer in enumerate(weights.decoder):
            qkv = layer.qkv(x).view(n, W, 3, h, K).permute(0, 2, 3, 1, 4)  # (n, 3, h, W, K)
            past = self.past[:, :, index]  # (n, 2, h, longest W, K)
            past[..., begin:end, :] = qkv[:, 1:]
            keys, values = (past[:, part, :, :end].view(n * h, end, K) for part in (0, 1))
            heads = attend(qkv[:, 0].reshape(n * h, W, K), keys.transpose(1, 2), values, mask).view(n, h, W, K)
            x = layer.norm(x, layer.output(heads.transpose(1, 2).reshape(n * W, D)))

            q = layer.cross_q(x).view(n, W, h, K).transpose(1, 2).reshape(n * h, W, K)
            keys, values = (part[:, index].flatten(0, 1) for part in (self.memory_keys, self.memory_values))
            heads = attend(q, keys, values, self.memory_mask.flatten(0, 1)).view(n, h, W, K)
            x = layer.cross_norm(x, layer.cross_output(heads.transpose(1, 2).reshape(n * W, D)))
            x = layer.feed_forward(x)
        self.t += 1
        return torch.mm(x, weights.unembedding, out=self.logits[: n * W])

    def likeliest(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `count` likeliest continuations of each sentence, best first.

        logits (n W, V), which are overwritten -> log probabilities (float64), places in W, tokens: (n, count) each

        The vocabulary is laid out in rows. The `count` largest lie in the `count` columns with the largest maxima.
        """
        n, W = self.last.shape
        logits = logits.float()
        offset = self.alive - self.log_sum_exp(logits).view(n, W)
        logits[:, PAD] = logits[:, BOS] = -math.inf  # never written
        V = logits.shape[1]
        R = ROWS if V % ROWS == 0 and W * V >= count * ROWS else 1
        C = V // R  # token = row C + column
        table = logits.view(n * W, R, C)
        highest = table.amax(dim=1).view(n, W, C) + offset.float()[:, :, None]
        best = highest.view(n, W * C).topk(count, sorted=False).indices  # (n, count)
        parents, columns = best // C, best % C
        hypotheses = torch.arange(0, n * W, W)[:, None] + parents
        totals = table[hypotheses, :, columns] + offset.gather(1, parents)[:, :, None]  # (n, count, R)
        totals, places = totals.view(n, count * R).topk(count)
        chosen = places // R
        return totals, parents.gather(1, chosen), places % R * C + columns.gather(1, chosen)

    def log_sum_exp(self, logits: Tensor) -> Tensor:
        """(n W, V) -> (n W,). The largest is subtracted first only where exp could overflow or vanish."""
        result = torch.exp(logits, out=self.scratch[: len(logits)]).sum(dim=1).log_()
        return result if result.abs().max() < 80 else torch.logsumexp(logits, dim=1)

    def greedy(self) -> list[Hypothesis]:
        while len(self.sentence):
            found = self.likeliest(self.step(), 1)
            over = (found[2][:, 0] == EOS) | (self.t >= self.longest)
            rows = over.nonzero().squeeze(1)
            self.record(rows, torch.zeros_like(rows), *found)
            self.write(*found)
            self.drop(over)
        return self.best()

    def beam(self) -> list[Hypothesis]:
        W = self.W
        while len(self.sentence):
            found = self.likeliest(self.step(), 2 * W)
            totals, _, tokens = found
            ends = tokens == EOS
            if ends.any():
                scores, columns = (totals / self.penalty[self.t]).masked_fill_(~ends, -math.inf).max(dim=1)
                rows = (scores > self.best_score[self.sentence]).nonzero().squeeze(1)
                self.record(rows, columns[rows], *found)
                living_first = ends.byte().argsort(dim=1, stable=True)
                found = tuple(part.gather(1, living_first) for part in found)
            found = tuple(part[:, :W] for part in found)

            best_score = self.best_score[self.sentence]
            at_end = self.t >= self.longest
            rows = (at_end & (best_score == -math.inf)).nonzero().squeeze(1)  # cut off by the greatest length
            self.record(rows, torch.zeros_like(rows), *found)
            self.write(*found)
            self.drop(at_end | (best_score >= self.alive[:, 0] / self.penalty[self.longest]))
        return self.best()

    def record(self, rows: Tensor, columns: Tensor, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """These continuations are the best found for their sentences."""
        if not len(rows):
            return
        sentence, before = self.sentence[rows], self.t - 1
        self.best_ids[sentence, :before] = self.ids[rows, parents[rows, columns], :before]
        self.best_ids[sentence, before] = tokens[rows, columns]
        self.best_length[sentence] = self.t
        self.best_total[sentence] = totals[rows, columns]
        self.best_score[sentence] = totals[rows, columns] / self.penalty[self.t]

    def write(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """These continuations (n, W) live on."""
        if self.W > 1:
            for array, written in ((self.ids, self.t - 1), (self.ancestors, self.t * self.W)):
                past = array[:, :, :written]
                past.copy_(past.gather(1, parents[:, :, None].expand_as(past)))
        self.ids[:, :, self.t - 1] = tokens
        self.alive, self.last = totals, tokens

    def drop(self, over: Tensor) -> None:
        """Remove sentences: rows from the end take the places of those that are over (n,)."""
        n = int(over.logical_not().sum())
        if n == len(over):
            return
        holes, tails = over[:n].nonzero().squeeze(1), over[n:].logical_not().nonzero().squeeze(1) + n
        for name in (*OF_SENTENCES, "ancestors", "past"):
            rows = getattr(self, name)
            written = rows.narrow(ENDS_WITH_T[name], 0, self.t * self.W) if name in ENDS_WITH_T else rows
            if len(holes):
                written[holes] = written[tails]
            setattr(self, name, rows[:n])

    def best(self) -> list[Hypothesis]:
        found = zip(self.best_ids.tolist(), self.best_length.tolist(), self.best_total.tolist())
        return [hypothesis_of(ids[:length], total, self.alpha) for ids, length, total in found]


OF_SENTENCES = "sentence", "longest", "last", "alive", "ids", "memory_mask", "memory_keys", "memory_values"
ENDS_WITH_T = {"ancestors": -1, "past": -2}
"""Arrays with a row for each sentence; those with an axis of positions, of which the first t W are written."""

ROWS = 20
"""Of the vocabulary in `likeliest`, if they come out even."""


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q keys + mask) values, for G = n h heads. The few sums are divided by, not the many weights.

    q (G, T, K), keys (G, K, S), values (G, S, K), mask (G, T or 1, S): 0 or -inf -> (G, T, K)
    """
    scores = torch.bmm(q, keys) if mask is None else torch.baddbmm(mask, q, keys)  # (G, T, S)
    weights = scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
    return torch.bmm(weights, values).div_(weights.sum(dim=-1, keepdim=True))


# Threads --------------------------------------------------------------------------------------------------------------


def search_in_operations(searcher: Searcher, batches: list[np.ndarray], threads: int) -> list[Hypothesis]:
    """One batch after another; the threads share each operation."""
    torch.set_num_threads(threads)
    return [hypothesis for batch in batches for hypothesis in searcher.search(batch)]


def search_over_batches(searchers: list[Searcher], batches: list[np.ndarray]) -> list[Hypothesis]:
    """As many threads as searchers, each with a batch of its own. The last batches go first: if they are the longest,
    none is late."""
    torch.set_num_threads(1)
    free: SimpleQueue[Searcher] = SimpleQueue()
    for searcher in searchers:
        free.put(searcher)

    def search(batch: np.ndarray) -> list[Hypothesis]:
        searcher = free.get()
        try:
            return searcher.search(batch)
        finally:
            free.put(searcher)

    with ThreadPoolExecutor(len(searchers)) as pool:
        found = list(pool.map(search, batches[::-1]))[::-1]
    return [hypothesis for hypotheses in found for hypothesis in hypotheses]
