"""Published tokenizers: GPT-2's two files, `tokenizer.json` of the Hugging Face Hub, `tokenizer.bin` of llama2.c.

The library `tokenizers` does the work. A run keeps its JSON with the ids of the two special pieces that we need.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError, in_one_line, printable, require_list
from scratchformer.files import user_error
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer, _text_ids

END_OF_TEXT = "<|endoftext|>"
"""GPT-2's only special piece. It stands between documents, so it is our EOS as well as our BOS."""


class HubTokenizer(Tokenizer):
    """A published tokenizer under our ids: PAD, EOS, BOS and UNK are 0 to 3, the other pieces follow in their order.

    No text is encoded as a special piece: "<|endoftext|>" in a text is only text.

    theirs           our id -> their id; PAD and UNK, which published tokenizers lack, get that of EOS
    begins_with_bos  True if the model was trained on texts that begin with BOS
    """

    _processor: Any

    def __init__(self, serialized: bytes, origin: str = "the tokenizer") -> None:
        tokenizers = library()
        try:
            content = json.loads(serialized)
            processor = self._processor = tokenizers.Tokenizer.from_str(json.dumps(content["tokenizer"]))
            eos, bos, size = (int(content[name]) for name in ("eos", "bos", "size"))
        except Exception as error:  # `tokenizers` raises plain ones
            problem = f"{in_one_line(error):.80}"
            raise UserError(f"{origin}: not a published tokenizer, or a damaged one ({problem})") from None
        self.serialized = serialized
        processor.encode_special_tokens = True
        processor.no_truncation()
        processor.no_padding()
        n_pieces = processor.get_vocab_size()
        if not (0 <= eos < size and 0 <= bos < size and n_pieces <= size):
            raise UserError(f"{origin}: {n_pieces} pieces, EOS {eos} and BOS {bos}, but the model has {size} rows")
        others = [i for i in range(size) if i not in (eos, bos)]
        self.theirs = [eos, eos, bos, eos, *others]
        self._ours = {i: ours for ours, i in enumerate(others, N_SPECIALS)}
        self._of_bytes = (content["tokenizer"].get("decoder") or {}).get("type") == "ByteLevel"
        self.begins_with_bos = processor.encode("").ids == [bos]

    @classmethod
    def make(cls, tokenizer: str, size: int, eos: int, bos: int, origin: str) -> HubTokenizer:
        """Make the tokenizer from the text of a tokenizer.json. size: rows of the model's embedding"""
        try:
            content = {"eos": eos, "bos": bos, "size": size, "tokenizer": json.loads(tokenizer)}
        except ValueError as error:
            raise UserError(f"{origin}: not JSON, or damaged ({in_one_line(error):.80})") from None
        return cls(json.dumps(content).encode(), origin)

    @property
    def vocab_size(self) -> int:
        return len(self.theirs)

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Return the ids of each text, without BOS and EOS."""
        require_list(sentences)
        encoded = self._processor.encode_batch(sentences, add_special_tokens=False)
        return [[self._ours[i] for i in each.ids] for each in encoded]

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of ids up to its first EOS, without PAD and BOS.

        Bytes that are not UTF-8, such as half a character, become "\ufffd".
        """
        return [self._text(_text_ids(ids)) for ids in sentences]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, to label figures: "▁" is a space, "</s>" is EOS.

        A piece of bytes that is not UTF-8 by itself has a letter for each byte, as in GPT-2's files.
        """
        return [self._label(int(i)) for i in ids]

    def _label(self, i: int) -> str:
        if 0 <= i < N_SPECIALS:
            return ["<pad>", "</s>", "<s>", "<unk>"][i]
        text = self._text([i])
        piece = self._processor.id_to_token(self.theirs[i]) or f"<{i}>"
        return piece if not self._of_bytes or "\ufffd" in text else printable(text.replace(" ", "▁"))

    def _text(self, ids: Sequence[int]) -> str:
        if any(i < 0 for i in ids):
            raise IndexError(f"id {min(ids)} is not in the vocabulary")
        return self._processor.decode([self.theirs[i] for i in ids], skip_special_tokens=False)


# From published files -------------------------------------------------------------------------------------------------


def of_gpt2(vocab: Path, merges: Path) -> HubTokenizer:
    """Read the two files that were published with GPT-2: vocab.json (piece -> id) and merges.txt (pairs to join)."""
    tokenizers, text = library(), read(vocab)
    try:
        ids = json.loads(text)
    except ValueError as error:
        raise UserError(f"{vocab}: not JSON, or damaged ({in_one_line(error):.80})") from None
    if not isinstance(ids, dict) or sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{vocab}: not a vocabulary, which is a JSON object with an id for each piece")
    last = max(ids, key=lambda piece: ids[piece], default="")
    if last != END_OF_TEXT:
        raise UserError(f"{vocab}: its last piece is {last!r:.40}; GPT-2's is {END_OF_TEXT!r}")
    pairs = [tuple(line.split(" ")) for line in read(merges).splitlines() if line and not line.startswith("#version")]
    try:
        processor = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
    except Exception as error:  # `tokenizers` raises plain ones, for merges that do not fit the pieces
        raise UserError(f"{vocab} with {merges}: not GPT-2's, or damaged ({in_one_line(error):.80})") from None
    processor.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    processor.decoder = tokenizers.decoders.ByteLevel()
    return HubTokenizer.make(processor.to_str(), len(ids), ids[last], ids[last], f"{vocab} with {merges}")


def of_llama2c(path: Path, size: int) -> HubTokenizer:
    """Read tokenizer.bin of llama2.c, for a model of `size` pieces: score, length and bytes of each.

    The pieces are those of sentencepiece. Of all neighbours that make a piece, those with the highest score are joined.
    """
    tokenizers = library()
    with user_error(path, "cannot read"):
        data = path.read_bytes()
    pieces, scores, place = [], [], 4
    try:
        for _ in range(size):
            score, length = struct.unpack_from("<fi", data, place)
            place += 8 + length
            if length < 0 or place > len(data):
                raise ValueError
            pieces.append(data[place - length : place].decode("utf-8", "replace").replace(" ", "▁"))
            scores.append(score)
    except (struct.error, ValueError):
        found = f"ends after {len(pieces)} of {size} pieces"
        raise UserError(f"{path}: {found}; it is not this model's, or damaged") from None
    pieces[:3] = ["<unk>", "<s>", "</s>"]  # <s> and </s> stand between line breaks there
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for i, piece in sorted(enumerate(pieces), key=lambda item: -scores[item[0]])
        if i >= 3 + 256
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    model = tokenizers.models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    processor = tokenizers.Tokenizer(model)
    normal, back = tokenizers.normalizers, tokenizers.decoders
    processor.normalizer = normal.Sequence([normal.Prepend("▁"), normal.Replace(" ", "▁")])
    parts = [back.Replace("▁", " "), back.ByteFallback(), back.Fuse(), back.Strip(content=" ", left=1)]
    processor.decoder = back.Sequence(parts)
    processor.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return HubTokenizer.make(processor.to_str(), size, eos=2, bos=1, origin=str(path))


def library() -> Any:
    """Import the module `tokenizers`."""
    try:
        import tokenizers
    except ImportError:
        raise UserError("published tokenizers need a library: pip install 'scratchformer[gpt2]' brings it") from None
    return tokenizers


def read(path: Path) -> str:
    """Read a file of UTF-8 text."""
    with user_error(path, "cannot read"):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}: not valid UTF-8") from None
