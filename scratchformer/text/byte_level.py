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
from scratchformer.text.tokenizer import N_SPECIALS, PieceList, _text_ids

END_OF_TEXT = "<|endoftext|>"
"""GPT-2's only special piece. It stands between documents, so it is our EOS as well as our BOS."""

FORMAT = "scratchformer byte-level 1"


class ByteLevelTokenizer(PieceList):
    """Turns text into ids of pieces of bytes, and back without any loss: decode(encode(text)) == text.

    PAD, EOS, BOS and UNK are 0 to 3, and GPT-2's piece i is i + 4. No text is encoded as one of those four: in a text,
    "<|endoftext|>" is only text.
    """

    _processor: Any

    def __init__(self, serialized: bytes, origin: str = "the tokenizer"):
        tokenizers = library()
        try:
            content = json.loads(serialized)
            pieces, merges = content["pieces"], [tuple(pair.split(" ")) for pair in content["merges"]]
            ids = {piece: i for i, piece in enumerate(pieces, N_SPECIALS)}
            self._processor = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
        except Exception as error:  # `tokenizers` raises plain ones, for merges that do not fit the pieces
            raise UserError(
                f"{origin}: not a byte-level tokenizer, or a damaged one ({in_one_line(error):.80})"
            ) from None
        if lacking := set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) - ids.keys():
            raise UserError(f"{origin}: not a byte-level vocabulary: {len(lacking)} of the 256 bytes have no piece")
        super().__init__(serialized, pieces)
        self._processor.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._decoder = tokenizers.decoders.ByteLevel()

    @classmethod
    def of_files(cls, vocab: Path, merges: Path) -> ByteLevelTokenizer:
        """Read the two files that were published with GPT-2."""
        text = read(vocab)
        try:
            ids = json.loads(text)
            *pieces, last = sorted(ids, key=ids.__getitem__)
            is_gpt2s = last == END_OF_TEXT and sorted(ids.values()) == list(range(len(ids)))
        except (ValueError, TypeError, AttributeError):
            is_gpt2s = False
        if not is_gpt2s:
            raise UserError(f"{vocab}: not a vocabulary of GPT-2, or a damaged one: it ends with {END_OF_TEXT!r}")
        joined = [line for line in read(merges).splitlines() if line and not line.startswith("#version")]
        content = {"format": FORMAT, "pieces": pieces, "merges": joined}
        return cls(json.dumps(content).encode(), f"{vocab} with {merges}")

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Return the ids of each text, without BOS and EOS."""
        require_list(sentences)
        return [self._processor.encode(sentence).ids for sentence in sentences]

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of ids up to its first EOS, without PAD and BOS.

        Bytes that are not UTF-8, such as half a character, become "\ufffd".
        """
        return [self._decoder.decode(super(ByteLevelTokenizer, self).pieces(_text_ids(ids))) for ids in sentences]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, to label figures: "▁" is a space, "</s>" is EOS.

        A piece that is not UTF-8 by itself is written as in GPT-2's files, with a letter for each byte.
        """
        pieces = super().pieces(ids)
        texts = [self._decoder.decode([piece]) for piece in pieces]
        return [piece if "\ufffd" in text else printable(text.replace(" ", "▁")) for piece, text in zip(pieces, texts)]


def library() -> Any:
    """Import the module `tokenizers`."""
    try:
        import tokenizers
    except ImportError:
        raise UserError("GPT-2's tokenizer needs tokenizers: pip install 'scratchformer[gpt2]' brings it") from None
    return tokenizers


def read(path: Path) -> str:
    """Read a file of UTF-8 text."""
    with user_error(path, "cannot read"):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}: not valid UTF-8") from None
