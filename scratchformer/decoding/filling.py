"""Fill in the hidden pieces of a text with a masked language model (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scratchformer.backends.device import Device
from scratchformer.errors import UserError
from scratchformer.nn.ops import ops_of, using
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.text.tokenizer import BOS, EOS, MASK, MASK_PIECE, Tokenizer, UnknownTokens


class Candidate(NamedTuple):
    """A piece for the place of a [MASK]: a word, or "##s" for a piece that continues one."""

    text: str
    probability: float


class Filling(NamedTuple):
    """candidates  the likeliest pieces for each [MASK], computed while all are hidden
    text        with all of them filled in
    """

    candidates: list[list[Candidate]]
    text: str


class Filler:
    """A masked language model that fills in texts. Each [MASK] stands for one piece of the vocabulary.

    max_length  the most tokens of a text, with start and end
    device      where the model's weights are
    unknown     counts the unknown tokens of all texts so far
    """

    def __init__(self, model: TextEncoder, tokenizer: Tokenizer, max_length: int, device: Device = Device()) -> None:
        self.model, self.tokenizer, self.max_length, self.device = model, tokenizer, max_length, device
        self.unknown = UnknownTokens(tokenizer)

    def fill(self, text: str, top: int = 5, place: str = "the text") -> Filling:
        """The `top` most likely pieces of each [MASK], and the text with the best.

        Where there are several [MASK], the piece that the model is surest of is filled in first, and then the model
        reads again: pieces that are likely one by one need not go together.
        Raises UserError, with `place`, for a text without [MASK] or with more than `max_length` tokens.
        """
        ids = self._encode(text, place)
        probabilities = self.probabilities(ids)
        candidates = [self._candidates(of_mask, top) for of_mask in probabilities]
        while True:
            surest = int(probabilities.max(axis=-1).argmax())
            ids[np.flatnonzero(ids == MASK)[surest]] = probabilities[surest].argmax()
            if MASK not in ids:
                break
            probabilities = self.probabilities(ids)  # (masks left, V)
        return Filling(candidates, self.tokenizer.decode([ids.tolist()])[0])

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Of each piece in the place of each [MASK]: ids (T,) int -> (masks, V) float64. Special tokens have 0."""
        with using(*self.device.ops):
            logits, _ = self.model.forward(ids[None], np.zeros_like(ids)[None])  # (1, T, V)
            at_masks = ops_of(logits).on_host(logits)[0, ids == MASK].astype(np.float64)
        at_masks[:, : MASK + 1] = -np.inf
        weights = np.exp(at_masks - at_masks.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def _encode(self, text: str, place: str) -> np.ndarray:
        """Ids (T,) from BOS to EOS."""
        [ids] = self.tokenizer.encode([text])
        self.unknown.count([text], np.array(ids))
        # The space before a [MASK] belongs to the word that is hidden.
        pieces = self.tokenizer.pieces(ids)
        belongs = [piece == "▁" and after == MASK_PIECE for piece, after in zip(pieces, [*pieces[1:], ""])]
        found = np.array([BOS, *(each for each, hidden in zip(ids, belongs) if not hidden), EOS], np.int32)
        if MASK not in found:
            raise UserError(f"{place}: no {MASK_PIECE} to fill in")
        if len(found) > self.max_length:
            raise UserError(f"{place}: {len(found)} tokens, and the model was trained on at most {self.max_length}")
        return found

    def _candidates(self, probabilities: np.ndarray, top: int) -> list[Candidate]:
        best = np.argsort(-probabilities, kind="stable")[:top].tolist()
        return [
            Candidate(shown(piece), float(probabilities[index]))
            for piece, index in zip(self.tokenizer.pieces(best), best)
            if probabilities[index]
        ]


def shown(piece: str) -> str:
    """A piece for the reader's eyes."""
    return piece.removeprefix("▁") if piece.startswith("▁") or not piece[0].isalnum() else f"##{piece}"
