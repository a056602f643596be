import itertools

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from scratchformer.decoding import translator as module
from scratchformer.decoding.search import search
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import UNK
from scratchformer.training.run import load_run

SENTENCES = [
    "the old dog sees a cat",
    "",
    "a bird",
    "the big cat and the old dog hears a bird",
    " \t",
    "dog",
    "\u3000",
    "a cat sees the bird",
    "ελληνικά 東京 🙂",
]


@pytest.fixture(scope="module")
def translator(trained):
    """A model that has learnt nothing but is sure of itself, so that translations differ and are long."""
    translator = load_run(trained.path)
    translator.model = Transformer(translator.model.config, seed=1)
    translator.model.store.data *= 2
    return translator


def test_translations_come_in_the_order_of_the_sentences(translator):
    one_by_one = [translator.translate([sentence])[0] for sentence in SENTENCES]
    assert translator.translate(SENTENCES) == one_by_one
    assert translator.translate(SENTENCES[::-1]) == one_by_one[::-1]
    assert len(set(one_by_one)) > 1 and translator.translate([]) == []
    assert all(sentence.strip() or translation == "" for sentence, translation in zip(SENTENCES, one_by_one))


@pytest.mark.parametrize("beam", [1, 3])
def test_chunks_change_nothing(translator, beam, monkeypatch):
    whole = list(translator.stream(SENTENCES, beam, nbest=beam))
    monkeypatch.setattr(module, "LINES_AT_ONCE", 4)
    monkeypatch.setattr(translator, "group", 2)
    for part, best in zip(translator.stream(SENTENCES, beam, nbest=beam), whole, strict=True):
        assert [translation.text for translation in part] == [translation.text for translation in best]
        assert [translation.score for translation in part] == pytest.approx([t.score for t in best], rel=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_threads_change_not_a_bit(translator, beam, monkeypatch):
    monkeypatch.setattr(translator, "group", 2)
    together = Translator(translator.model, translator.tokenizer, translator.extra_length, threads=5, group=2)
    alone = list(translator.stream(SENTENCES, beam, nbest=beam))
    assert list(together.stream(SENTENCES, beam, nbest=beam)) == alone and together.translate([]) == []


@pytest.mark.parametrize("threads, groups, of_blas", [(1, 2, 1), (2, 1, 2), (2, 2, 1)])
def test_groups_and_the_blas_share_the_cores(translator, monkeypatch, blas_threads, threads, groups, of_blas):
    def checked_search(*arguments):
        assert blas_threads() == {of_blas}
        return search(*arguments)

    monkeypatch.setattr(module, "search", checked_search)
    with threadpool_limits(2, "blas"):
        other = Translator(translator.model, translator.tokenizer, threads=threads, group=1)
        other.translate(["a dog", "a cat"][:groups])
        assert blas_threads() == {2}


def test_unknown_tokens_are_counted_over_all_chunks(translator, monkeypatch):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 4)
    for threads in (1, 2):
        fresh = Translator(translator.model, translator.tokenizer, threads=threads, group=2)
        fresh.translate(SENTENCES + ["ho\u0308rt"])
        ids = [each for ids in translator.tokenizer.encode(SENTENCES + ["ho\u0308rt"]) for each in ids]
        assert (fresh.unknown.n_unknown, fresh.unknown.n_tokens) == (ids.count(UNK), len(ids)) and UNK in ids
        assert (fresh.unknown.n_decomposed, fresh.unknown.n_sentences) == (1, len(SENTENCES) + 1)


def test_nbest_of_each_sentence(translator):
    found = list(translator.stream(SENTENCES, beam=4, nbest=3))
    assert [len(best) for best in found] == [3 if sentence.strip() else 1 for sentence in SENTENCES]
    assert [best[0].text for best in found] == translator.translate(SENTENCES, beam=4)


def test_a_stream_answers_at_a_pause_before_it_reads_on(translator):
    read = []
    lines = itertools.chain.from_iterable((read.append(line), line)[1:] for line in SENTENCES[:6])
    found = translator.stream(lines, beam=1, pauses=lambda: len(read) in (1, 4))
    assert [len(read) for _ in found] == [1, 4, 4, 4, 6, 6]


def test_a_sentence_that_is_too_long_is_named_by_its_place(begin, translator):
    trainer = begin(positions="learned", max_positions=24, max_length=24)
    learned = Translator(trainer.model, trainer.tokenizer)
    with pytest.raises(UserError, match="^sentence 2: a sentence of .* tokens; the model's max_positions is 24$"):
        learned.translate(["a dog", "the old dog sees " * 20])
    with pytest.raises(UserError, match="^line 2: a sentence of .* tokens; the limit is 4096$"):
        list(translator.stream(["a dog", "the old dog " * 3000], place=lambda index: f"line {index + 1}"))


def test_a_translation_is_one_line_whatever_its_pieces_are(translator, monkeypatch):
    monkeypatch.setattr(type(translator.tokenizer), "decode", lambda self, ids: ["a\n\r\tb\x1b[31m\x7f" for _ in ids])
    assert translator.translate(["a dog"]) == ["a   b [31m "]


def test_memory_that_ends_names_the_longest_sentence(translator, monkeypatch):
    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(module, "search", fails)
    with pytest.raises(UserError, match="^sentence 4: not enough memory to translate 3 sentences of up to 18 tokens"):
        translator.translate(SENTENCES[:4])


def test_long_sentences_go_together_in_small_groups(translator):
    lengths = np.array([1, 500, 600, 600, 1000, 2000, 3000, 4096])
    groups = translator._groups(np.arange(8), lengths)
    assert np.concatenate(groups[::-1]).tolist() == list(range(8))
    assert all(len(group) * int(lengths[group[-1]]) ** 2 <= module.MAX_TOKENS**2 for group in groups)
    assert [len(group) for group in translator._groups(np.arange(130), np.full(130, 100))] == [2, 64, 64]
