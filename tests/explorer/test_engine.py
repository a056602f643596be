"""The JavaScript engine computes what NumPy computes: tests/explorer/engine.test.mjs compares the two."""

from pathlib import Path

import fixtures
import pytest

from scratchformer.text.corpora import read_lines
from scratchformer.text.tokenizer import BOS, EOS, Tokenizer
from scratchformer.training.run import load_run

ROOT = Path(__file__).parents[2]
CRAFTED = [
    "",
    " ",
    "   ",
    " two  spaces   between and around  ",
    "a\tb\nc\u00a0d\u2003e\u3000f",
    "\t",
    "▁",
    "a▁▁",
    "▁a ▁ b",
    "Äpfel, Öl und süße Grüße; naïve café",
    "e\u0301 o\u0308",
    "😀😀 👩‍👩‍👧 a😀b",
    "日本語 日 本",
    "</s> <s> <pad> <unk> <0x41>",
    "<script>alert(1)</script>",
    "a\x00b\x7fc",
    "\ufeffa\ufffd",
    "Donaudampfschifffahrtsgesellschaftskapitän" * 30,
    "sss sssss eee nnn ttt lll fff",
    "The animal didn't cross the street, because it was too tired!",
]
ANIMAL = "The animal did not cross the street because it was too tired."
GERMAN = "Das Tier überquerte die Straße nicht, weil"
PAIRS = [(ANIMAL, f"{GERMAN} es zu müde war."), ("Hello.", "Hallo.")]
TINY = "tiny"


@pytest.fixture(scope="module")
def translator():
    return load_run(ROOT / "data" / "tiny_model")


def lines_of(*splits):
    return [line for split in splits for line in read_lines(ROOT / "data" / "tiny" / split)]


def byte_tokenizer():
    return Tokenizer.train(lines_of("val.en", "val.de"), 600, byte_fallback=True)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    """Files with the results of NumPy."""
    folder = tmp_path_factory.mktemp("fixtures")
    fixtures.write_small_models(folder, n_sources=3)
    fixtures.write_trained_model(folder, TINY, translator, PAIRS)
    source, other, before = translator.tokenizer.encode([ANIMAL, ANIMAL.replace("tired", "narrow"), GERMAN])
    roads, place = folder / f"{TINY}.roads.json", len(source) - 2
    fixtures.write_roads(roads, TINY, translator.model, [*source, EOS], [*other, EOS], place, [BOS, *before])
    sentences = [ANIMAL, *lines_of("val.en")[:3], " \u3000"]
    fixtures.write_translations(folder, TINY, TINY, translator, sentences, [(1, 0.6), (4, 0.6)])
    fixtures.write_tokenizer(folder, TINY, translator.tokenizer, CRAFTED + lines_of("val.en", "val.de"), 200)
    fixtures.write_tokenizer(folder, "bytes", byte_tokenizer(), CRAFTED, 200)
    return folder


@pytest.mark.parametrize("tests", ["engine", "views", "parts", "widgets", "train"])
def test_the_javascript_computes_what_numpy_computes(run_node, folder, tests):
    """Also the known answers for the parts of the page and the widgets of the lessons."""
    run_node(f"{tests}.test.mjs", SCRATCHFORMER_FIXTURES=str(folder))


@pytest.mark.slow
def test_the_engine_translates_like_numpy(run_node, translator, tmp_path):
    fixtures.write_small_models(tmp_path, n_sources=60)
    fixtures.write_trained_model(tmp_path, TINY, translator, list(zip(lines_of("val.en")[:8], lines_of("val.de")[:8])))
    for n, alpha in enumerate((0, 0.6, 1)):
        settings = [(beam, alpha) for beam in (1, 2, 4)]
        fixtures.write_translations(tmp_path, f"alpha {alpha}", TINY, translator, lines_of("val.en")[n:60:3], settings)
    texts = lines_of("test.en", "test.de", "test_long.en", "test_long.de", "test_compositional.en")
    fixtures.write_tokenizer(tmp_path, TINY, translator.tokenizer, texts, 2000)
    fixtures.write_tokenizer(tmp_path, "bytes", byte_tokenizer(), texts, 2000)
    run_node("engine.test.mjs", SCRATCHFORMER_FIXTURES=str(tmp_path))
