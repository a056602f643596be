"""GPT-2's tokenizer: byte-pair encoding of bytes instead of characters (Radford et al. 2019, section 2.2).

Each of the 256 bytes is a piece, so every text can be encoded and comes back unchanged. The pieces are read from two
files that were published with GPT-2: `vocab.json` (piece -> id) and `merges.txt` (the pairs of pieces to join, the most
frequent one first). The library `tokenizers` does the work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError, in_one_line, printable, require_list
from scratchformer.files import user_error
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer, _text_ids

END_OF_TEXT = "<|endoftext|>"
"""GPT-2's only special piece. It stands between documents, so it is our EOS as well as our BOS."""

FORMAT = "scratchformer byte-level 1"

MAX_FILE_BYTES = 2**26
"""Larger files are refused: GPT-2's have one megabyte."""


class ByteLevelTokenizer(Tokenizer):
    """Turns text into ids of pieces of bytes, and back without any loss: decode(encode(text)) == text.

    PAD, EOS, BOS and UNK are 0 to 3, and GPT-2's piece i is i + 4. No text is encoded as one of those four: in a text,
    "<|endoftext|>" is only text.

    Raises UserError if `serialized`, JSON that `of_files` makes, is damaged, or if `tokenizers` is not installed. The
    message names the source by `origin`.
    """

    _processor: Any

    def __init__(self, serialized: bytes, origin: str = "the tokenizer"):
        content = parsed(serialized, origin)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise UserError(f"{origin}: not a byte-level tokenizer, or a damaged one")
        pieces, merges = content.get("pieces", 0), content.get("merges", 0)
        tokenizers = library()
        require_sound(pieces, merges, tokenizers.pre_tokenizers.ByteLevel.alphabet(), origin)
        ids = {piece: i for i, piece in enumerate(pieces, N_SPECIALS)}
        self.serialized = serialized
        self._pieces = ["<pad>", "</s>", "<s>", "<unk>", *pieces]
        self._processor = tokenizers.Tokenizer(tokenizers.models.BPE(ids, [tuple(pair.split(" ")) for pair in merges]))
        self._processor.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._decoder = tokenizers.decoders.ByteLevel()

    @classmethod
    def of_files(cls, vocab: Path, merges: Path) -> ByteLevelTokenizer:
        """Read the two files that were published with GPT-2.

        Raises UserError if a file cannot be read, is damaged, or does not belong to the other.
        """
        ids = parsed(read(vocab), str(vocab))
        if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
            raise UserError(f"{vocab}: not a vocabulary, which is a JSON object with an id for each piece")
        if sorted(ids.values()) != list(range(len(ids))):
            raise UserError(f"{vocab}: the ids are not 0 to {len(ids) - 1}, each once")
        *pieces, last = sorted(ids, key=lambda piece: ids[piece]) or [""]
        if last != END_OF_TEXT:
            raise UserError(f"{vocab}: its last piece is {last!r:.40}; GPT-2's is {END_OF_TEXT!r}")
        try:
            lines = read(merges).decode("utf-8").splitlines()
        except UnicodeDecodeError:
            raise UserError(f"{merges}: not valid UTF-8") from None
        joined = [line for line in lines if line and not line.startswith("#version")]
        content = {"format": FORMAT, "pieces": pieces, "merges": joined}
        return cls(json.dumps(content).encode(), f"{vocab} with {merges}")

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Return the ids of each text, without BOS and EOS."""
        require_list(sentences)
        return [self._processor.encode(sentence).ids for sentence in sentences]

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of ids up to its first EOS, without PAD and BOS.

        Bytes that are not UTF-8, such as half a character, become "\ufffd". Raises IndexError if an id is not in the
        vocabulary.
        """
        return [self._decoder.decode([self._piece(i) for i in _text_ids(ids)]) for ids in sentences]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, to label figures: "▁" is a space, "</s>" is EOS.

        A piece that is not UTF-8 by itself is written as in GPT-2's files, with a letter for each byte. Raises
        IndexError if an id is not in the vocabulary.
        """
        return [self._label(self._piece(int(i))) for i in ids]

    def _piece(self, i: int) -> str:
        if i < 0:
            raise IndexError(f"id {i} is not in the vocabulary")
        return self._pieces[i]

    def _label(self, piece: str) -> str:
        text = self._decoder.decode([piece])
        return piece if "\ufffd" in text else printable(text.replace(" ", "▁"))


def library() -> Any:
    """The module `tokenizers`. Raises UserError if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise UserError("GPT-2's tokenizer needs tokenizers: pip install 'scratchformer[gpt2]' brings it") from None
    return tokenizers


def read(path: Path) -> bytes:
    """The contents of a file. Raises UserError if it cannot be read, or is too large for one of GPT-2's."""
    with user_error(path, "cannot read"):
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: cannot read: not a plain file")  # a pipe would be waited for
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UserError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes, too large for a file of GPT-2's tokenizer")
    return content


def parsed(content: bytes, origin: str) -> Any:
    """The value of a JSON text. Raises UserError if it is damaged."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{origin}: not JSON, or damaged ({in_one_line(error):.80})") from None


def require_sound(pieces: Any, merges: Any, alphabet: list[str], origin: str) -> None:
    """Raises UserError unless the pieces are made of bytes, are enough for every text, and fit the merges."""
    if not all(type(part) is list and all(type(each) is str for each in part) for part in (pieces, merges)):
        raise UserError(f"{origin}: pieces and merges must be lists of strings")
    known, letters = set(pieces), set(alphabet)
    if len(known) < len(pieces):
        raise UserError(f"{origin}: a piece occurs twice")
    if lacking := letters - known:
        raise UserError(f"{origin}: not a byte-level vocabulary: {len(lacking)} of the 256 bytes have no piece")
    for piece in pieces:
        if not piece or not letters.issuperset(piece):
            raise UserError(f"{origin}: not a byte-level vocabulary: the piece {piece!r:.40} is not made of bytes")
    for number, merge in enumerate(merges, 1):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= known:
            raise UserError(f"{origin}: merge {number}, {merge!r:.40}, is not one of two pieces into a third")
