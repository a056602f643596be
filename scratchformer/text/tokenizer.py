"""How does text become ids, and ids text again?

Byte-pair encoding (Sennrich et al. 2016; paper §5.1): start from single characters and merge the most frequent pair
of neighbours into a new piece, until the vocabulary is full. One vocabulary serves both languages, so that the three
embedding matrices can be one (paper §3.4). The work is done by sentencepiece; this file fixes its options.
"""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from scratchformer.errors import UserError
from scratchformer.files import whole_file

PAD, EOS, BOS, UNK = 0, 1, 2, 3
N_SPECIALS = 4

# sentencepiece never lets text form a special piece, so plain names would cost a text that speaks of "</s>" its
# characters. With the spaces the names cannot occur in text, where sentencepiece writes every space as "▁".
PAD_PIECE, EOS_PIECE, BOS_PIECE, UNK_PIECE = " <pad> ", " </s> ", " <s> ", " <unk> "

TOO_LARGE = re.compile(r"Vocabulary size too high .* value <= (\d+)")
TOO_SMALL = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")


class Tokenizer:
    """A trained sentencepiece model: sentences to lists of ids and back.

    Text is taken as it is (no Unicode normalization), except that runs of spaces become one. A character that was not
    in the training text becomes UNK or, if the model was trained with `byte_fallback`, the pieces of its UTF-8 bytes.

    Raises: UserError if `serialized` is no sentencepiece model, or one with other special ids than ours; `origin`
        names it in the message.
    """

    def __init__(self, serialized: bytes, origin: str = "the tokenizer"):
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.load_from_serialized_proto(serialized)
        except RuntimeError as error:
            raise UserError(f"{origin} is not a sentencepiece model, or a damaged one") from error
        specials = (processor.pad_id(), processor.eos_id(), processor.bos_id(), processor.unk_id())
        if specials != (PAD, EOS, BOS, UNK):
            raise UserError(
                f"{origin} has other special ids than pad, eos, bos, unk = {PAD}, {EOS}, {BOS}, {UNK}: "
                + ", ".join(map(str, specials))
            )
        self.serialized = serialized
        self._processor = processor

    @classmethod
    def train(
        cls, sentences: Iterable[str], vocab_size: int, byte_fallback: bool = False, model_path: Path | None = None
    ) -> "Tokenizer":
        """Learn `vocab_size` pieces (specials, bytes and single characters included) from sentences of both languages.

        The same sentences give the same model, byte for byte. Every character of the text becomes a piece, so the
        training text itself holds no UNK. With `model_path` the model is saved as well.

        Raises: UserError if there is no text, or if `vocab_size` is not possible for it; the message says what is.
        """
        # A list, because sentencepiece would turn an exception of a generator into a RuntimeError of its own.
        texts = [sentence for sentence in sentences if sentence.strip()]
        if not texts:
            raise UserError("no text to train a tokenizer on")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=max(vocab_size, N_SPECIALS),  # below that, sentencepiece does not tell the size it needs
                byte_fallback=byte_fallback,
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
                max_sentence_length=2**30,  # bytes; the largest allowed. Longer sentences would be skipped silently
                num_threads=1,  # the number is stored in the model, and merging runs on one thread anyway
                minloglevel=2,  # errors only
            )
        except RuntimeError as error:
            _raise_if_impossible(vocab_size, str(error))
            raise
        tokenizer = cls(model.getvalue())
        if model_path is not None:
            tokenizer.save(model_path)
        return tokenizer

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        """How it is sent to another process."""
        return Tokenizer, (self.serialized,)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Raises: UserError if the file cannot be read or does not hold a model of ours."""
        try:
            serialized = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read the tokenizer {path}: {error.strerror}") from error
        return cls(serialized, origin=str(path))

    def save(self, path: Path) -> None:
        """Write the model; `path` holds the old file or the whole new one, never a part, even if the process dies.

        Raises: UserError if it cannot be written.
        """
        with whole_file(path, "cannot write the tokenizer") as file:
            file.write(self.serialized)

    @property
    def vocab_size(self) -> int:
        return self._processor.get_piece_size()

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """The ids of each sentence, without BOS and EOS. Text never becomes PAD, EOS or BOS, whatever it says."""
        return self._processor.encode(sentences)

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids up to its first EOS; PAD and BOS leave no trace, UNK reads " ⁇ ".

        Raises: IndexError if an id is not in the vocabulary.
        """
        return [self._processor.decode(_text_ids(ids)) for ids in sentences]

    def same_pieces(self, other: "Tokenizer") -> bool:
        """Whether each id stands for the same piece in both."""
        sizes = (self.vocab_size, other.vocab_size)
        return sizes[0] == sizes[1] and self.pieces(range(sizes[0])) == other.pieces(range(sizes[1]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, to label figures: "▁" marks the start of a word, "</s>" is EOS.

        Raises: IndexError if an id is not in the vocabulary.
        """
        return [self._processor.id_to_piece(int(i)).strip(" ") for i in ids]


def _text_ids(ids: Sequence[int]) -> list[int]:
    """The ids before the first EOS that stand for text, as Python integers."""
    kept = []
    for i in ids:
        if i == EOS:
            break
        if i not in (PAD, BOS):
            kept.append(int(i))
    return kept


def _raise_if_impossible(vocab_size: int, message: str) -> None:
    """Turn what sentencepiece says about an impossible vocabulary size into a UserError with a possible one."""
    if found := TOO_LARGE.search(message):
        raise UserError(f"vocab_size {vocab_size} is too large for this text: at most {found[1]} pieces can be made")
    if found := TOO_SMALL.search(message):
        raise UserError(
            f"vocab_size {vocab_size} is too small for this text: its characters and the special pieces "
            f"alone need {found[1]}"
        )
