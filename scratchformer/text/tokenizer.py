"""Turn text into ids and ids into text, by byte-pair encoding (Sennrich et al. 2016; paper §5.1).

Start from single characters and merge the most frequent pair of neighbours into a new piece, until the vocabulary is
full. One vocabulary serves both languages, so that the three embedding matrices can be one (paper §3.4). sentencepiece
does the work; this file chooses its options.
"""

import io
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

import numpy as np
import sentencepiece

from scratchformer.errors import UserError, in_one_line, require_list
from scratchformer.files import user_error, whole_file

PAD, EOS, BOS, UNK = 0, 1, 2, 3  # `nn.ops` defines PAD as well, since neither package imports the other
N_SPECIALS = 4
MASK = 4  # only in the vocabulary of a masked language model
MASK_PIECE = "[MASK]"

# sentencepiece reserves the names of special pieces: with the plain name "</s>", a text that contains "</s>" could not
# be encoded. Names with spaces cannot occur in text, because sentencepiece writes every space there as "▁".
PAD_PIECE, EOS_PIECE, BOS_PIECE, UNK_PIECE = " <pad> ", " </s> ", " <s> ", " <unk> "

BYTE = re.compile("<0x[0-9A-F]{2}>")
"""The piece of a byte, in a model that was trained with `byte_fallback`."""

UNLEARNABLE = "\N{LOWER FIVE EIGHTHS BLOCK}"
"""sentencepiece skips every sentence with this character, which it writes for unknown ones, and says nothing."""

SIZE_COMPLAINTS = {
    r"Vocabulary size too high .* value <= (\d+)": "too large for this text: at most {} pieces can be made",
    r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)": "too small for this text: its characters and the "
    "special pieces alone need {}",
}
"""Complaints of sentencepiece about the size of a vocabulary, with a possible size, and ours."""


class Tokenizer:
    """A trained sentencepiece model, which turns sentences into lists of ids and back.

    Text is taken as it is (no Unicode normalization), except that a run of spaces becomes one space. A character that
    was not in the training text becomes UNK or, if the model was trained with `byte_fallback`, its UTF-8 bytes.

    begins_with_bos  True if a text to be continued must begin with BOS
    """

    begins_with_bos = False

    def __init__(self, serialized: bytes, origin: str = "the tokenizer"):
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.load_from_serialized_proto(serialized)
        except (RuntimeError, UnicodeDecodeError) as error:  # the latter if sentencepiece quotes a damaged piece
            raise UserError(f"{origin} is not a sentencepiece model, or a damaged one") from error
        self.serialized = serialized
        self._processor = processor

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocab_size: int,
        byte_fallback: bool = False,
        masks: bool = False,
        fewer: bool = False,
    ) -> "Tokenizer":
        """Learn `vocab_size` pieces (special pieces, bytes and single characters included) from both languages.

        The same sentences give the same model, byte for byte. Every character of the text becomes a piece, so the
        training text itself contains no UNK, but for two characters that sentencepiece cannot learn: NUL and "▅".

        masks: whether the piece MASK_PIECE, with the id MASK, is one of them: a masked language model needs it
        fewer: if the text is too short for so many pieces, learn as many as it can give
        """
        symbols = [MASK_PIECE] * masks
        return cls._train(sentences, vocab_size, fewer, byte_fallback=byte_fallback, user_defined_symbols=symbols)

    @classmethod
    def train_on_text(cls, lines: Iterable[str], vocab_size: int, fewer: bool = False) -> "Tokenizer":
        """Learn pieces that can spell any text: spaces and line ends survive, other characters than those of the lines
        become bytes. (Only "▁", which stands for a space in pieces, is decoded as one.) `fewer` as for `train`.
        """
        keep_spaces = {"remove_extra_whitespaces": False, "add_dummy_prefix": False}
        return cls._train(lines, vocab_size, fewer, byte_fallback=True, user_defined_symbols=["\n"], **keep_spaces)

    @classmethod
    def _train(cls, sentences: Iterable[str], vocab_size: int, fewer: bool, **options: Any) -> "Tokenizer":
        require_list(sentences)
        # A list, because sentencepiece turns an exception of a generator into its own RuntimeError.
        texts = [sentence for sentence in sentences if sentence.strip()]
        if not texts:
            raise UserError("no text to train a tokenizer on")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                # NUL is a character that it cannot learn either, but it reads the others of the sentence.
                sentence_iterator=(text.replace(UNLEARNABLE, "\0") for text in texts),
                model_writer=model,
                vocab_size=max(vocab_size, N_SPECIALS),  # for less, sentencepiece does not say how much it needs
                character_coverage=1.0,
                normalization_rule_name="identity",
                pad_id=PAD,
                eos_id=EOS,
                bos_id=BOS,
                unk_id=UNK,
                pad_piece=PAD_PIECE,
                eos_piece=EOS_PIECE,
                bos_piece=BOS_PIECE,
                unk_piece=UNK_PIECE,
                max_sentence_length=2**30,  # bytes; the largest value. Longer sentences are skipped silently
                num_threads=1,  # the model stores this number, and merging uses one thread anyway
                minloglevel=2,  # errors only
                model_type="bpe",
                **options,
            )
        except RuntimeError as error:
            if "KeyboardInterrupt" in str(error):
                raise KeyboardInterrupt from None
            for pattern, complaint in SIZE_COMPLAINTS.items():
                if found := re.search(pattern, str(error)):
                    if fewer and int(found[1]) < vocab_size:
                        return cls._train(texts, int(found[1]), False, **options)
                    raise UserError(f"vocab_size {vocab_size} is {complaint.format(found[1])}") from None
            raise UserError(f"sentencepiece cannot learn a vocabulary from this text: {in_one_line(error)}") from error
        return cls(model.getvalue())

    @staticmethod
    def load(path: Path) -> "Tokenizer":
        """Read a tokenizer of any kind."""
        with user_error(path, "cannot read the tokenizer"):
            return read_tokenizer(path.read_bytes(), str(path))

    def save(self, path: Path) -> None:
        """Write the model atomically."""
        with whole_file(path, "cannot write the tokenizer") as file:
            file.write(self.serialized)

    @property
    def checksum(self) -> int:
        """CRC-32 of the serialized model."""
        return zlib.crc32(self.serialized)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, PAD, EOS, BOS and UNK included."""
        return self._processor.get_piece_size()

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Return the ids of each sentence, without BOS and EOS. No text is ever encoded as PAD, EOS or BOS."""
        require_list(sentences)
        return self._processor.encode(sentences)

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of ids up to its first EOS, without PAD and BOS; UNK becomes " ⁇ "."""
        return [self._processor.decode(_text_ids(ids)) for ids in sentences]

    def same_pieces(self, other: "Tokenizer") -> bool:
        """Say if each id stands for the same piece in both models."""
        return self.pieces(range(self.vocab_size)) == other.pieces(range(other.vocab_size))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, to label figures: "▁" marks the start of a word, "</s>" is EOS."""
        return [self._processor.id_to_piece(int(i)).strip(" ") for i in ids]


def read_tokenizer(serialized: bytes, origin: str = "the tokenizer") -> Tokenizer:
    """Make the tokenizer, of any kind, from its file; messages name it by `origin`."""
    if serialized.startswith(b"scratchformer tokenizer pair"):
        from scratchformer.text.words import read_pair  # here, because its tokenizers are Tokenizers

        return read_pair(serialized)
    if serialized.startswith(b"{"):  # JSON, and no sentencepiece model
        from scratchformer.text.hub import HubTokenizer

        return HubTokenizer(serialized, origin)
    return Tokenizer(serialized, origin)


def _text_ids(ids: Sequence[int]) -> list[int]:
    """The ids before the first EOS, without PAD and BOS, as Python integers."""
    return [int(i) for i in takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]


# Unknown tokens -------------------------------------------------------------------------------------------------------


class UnknownTokens:
    """Counts the tokens of an input that are UNK, and the sentences that Unicode's NFC would make more familiar."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.n_sentences = self.n_tokens = self.n_unknown = self.n_decomposed = 0

    def count(self, sentences: Sequence[str], ids: np.ndarray) -> None:
        """Add sentences, whose ids stand one after another in a flat array."""
        self.n_sentences += len(sentences)
        self.n_tokens += int(np.count_nonzero(ids != EOS))
        self.n_unknown += int(np.count_nonzero(ids == UNK))
        for sentence in sentences:
            if not is_normalized("NFC", sentence):
                found, composed = self.tokenizer.encode([sentence, normalize("NFC", sentence)])
                self.n_decomposed += self._n_unfamiliar(composed) < self._n_unfamiliar(found)

    def _n_unfamiliar(self, ids: Sequence[int]) -> int:
        """The number of tokens that are UNK, or a byte of a character without a piece."""
        return sum(piece == UNK_PIECE.strip() or bool(BYTE.fullmatch(piece)) for piece in self.tokenizer.pieces(ids))

    def remark(self) -> str:
        """Say in a line how many tokens are unknown; "" if the model knows them all."""
        found = []
        if self.n_unknown:
            found.append(f"{self.n_unknown:,} of {self.n_tokens:,} tokens of the input are unknown to the model")
        if self.n_decomposed:
            found.append(
                f"{self.n_decomposed:,} of {self.n_sentences:,} sentences have letters that the model knows in "
                "Unicode's NFC only: normalize the text, as with `uconv -x any-nfc`"
            )
        return "; ".join(found)
