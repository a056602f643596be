"""The corpus is what it says it is: reproducible, disjoint, aligned, balanced, and good English and German."""

import gzip
import random
from collections import Counter

import pytest

import grammar
from scratchformer.experiments.demo import coreference_score
from scratchformer.text import bundled
from scratchformer.text.bundled import SPLITS, Example, words

DIAGNOSTIC = SPLITS[1:]
pytestmark = pytest.mark.slow  # it generates the whole corpus


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Example]]:
    return grammar.generate()


@pytest.fixture(scope="module")
def lexicon() -> grammar.Lexicon:
    return grammar.read_lexicon()


# --- the files ---


def test_the_corpus_is_written_as_it_is_shipped(corpus, tmp_path):
    assert bundled.write_corpus(tmp_path / "new", corpus) == bundled.write_corpus(tmp_path / "new", corpus)
    for path in (tmp_path / "new").iterdir():
        shipped = bundled.DIRECTORY / path.name
        packed = shipped.with_name(f"{path.name}.gz")
        assert path.read_bytes() == (gzip.decompress(packed.read_bytes()) if packed.exists() else shipped.read_bytes())
    assert {split: bundled.read(split) for split in SPLITS} == corpus
    assert {split: len(examples) for split, examples in corpus.items()} == grammar.SIZES


# --- the splits ---


def test_no_sentence_occurs_twice(corpus):
    train_sources = {example.source for example in corpus["train"]}
    train_targets = {example.target for example in corpus["train"]}
    assert len(train_sources) == len(corpus["train"])
    for split in DIAGNOSTIC:
        assert not train_sources & {example.source for example in corpus[split]}, split
        assert not train_targets & {example.target for example in corpus[split]}, split


def test_lengths(corpus):
    for split, examples in corpus.items():
        lengths = [len(words(text)) for example in examples for text in (example.source, example.target)]
        if split == "test_long":
            assert 25 < min(lengths) and max(lengths) <= 45
        else:
            assert 3 <= min(lengths) and max(lengths) <= 25, split


def test_every_word_is_frequent_in_training(corpus, lexicon):
    numerals = grammar.numerals(lexicon)
    for side in ("source", "target"):
        counts = Counter(word for example in corpus["train"] for word in words(getattr(example, side)))
        assert min(count for word, count in counts.items() if word not in numerals) >= 20
        for split in DIAGNOSTIC:
            for example in corpus[split]:
                assert all(counts[word] >= 20 or word in numerals for word in words(getattr(example, side)))


def test_compositional_pairs_are_unseen_in_training(corpus, lexicon):
    def forms(lemma: str) -> set[str]:
        for table in lexicon.verbs.values():
            if lemma in table:
                return set(table[lemma].english.values())
        noun = lexicon.nouns.get(lemma)
        return {noun.english, noun.english_plural} if noun else {lemma}

    links = grammar.hold_out(lexicon, random.Random(grammar.SEED)).links
    bags = [{word.lower() for word in words(example.source)} for example in corpus["train"]]
    tested = [{word.lower() for word in words(example.source)} for example in corpus["test_compositional"]]
    covered = 0
    for first, second in links:
        assert not any(bag & forms(first) and bag & forms(second) for bag in bags), (first, second)
        covered += any(bag & forms(first) and bag & forms(second) for bag in tested)
    assert covered >= 40


# --- the answers ---


def test_leaves_of_the_tree_are_the_words(corpus):
    for examples in corpus.values():
        for example in examples:
            assert [part.rstrip(")") for part in example.tree.split() if part[0] != "("] == words(example.source)
            assert example.tree.count("(") == example.tree.count(")")


def test_alignments(corpus):
    """All indices exist; only commas, and "of" in a date, have no counterpart."""
    may_be_unaligned = {",", "of"}
    for examples in corpus.values():
        for example in examples:
            source, target = words(example.source), words(example.target)
            assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in example.alignment)
            assert len({tuple(link) for link in example.alignment}) == len(example.alignment)
            bare = set(range(len(source))) - {i for i, _ in example.alignment}
            assert {source[i] for i in bare} <= may_be_unaligned, example
            bare = set(range(len(target))) - {j for _, j in example.alignment}
            assert {target[j] for j in bare} <= {","}, example


def test_coreference_links(corpus):
    for examples in corpus.values():
        for example in examples:
            if example.coreference is None:
                continue
            link = example.coreference
            source, target = words(example.source), words(example.target)
            assert source[link["pronoun"]] in ("it", "he", "she")
            assert target[link["target_pronoun"]] == link["expected"]
            assert link["antecedent"] < link["pronoun"]
            assert [link["pronoun"], link["target_pronoun"]] in example.alignment


def test_minimal_pairs(corpus):
    examples = corpus["test_coreference"]
    for first, second in zip(examples[::2], examples[1::2], strict=True):
        assert first.coreference["pair"] == second.coreference["pair"]
        differing = [(a, b) for a, b in zip(words(first.source), words(second.source), strict=True) if a != b]
        assert len(differing) == 1
        assert first.coreference["expected"] != second.coreference["expected"]
        assert first.coreference["antecedent"] == second.coreference["rival"]
    right = coreference_score([example.target for example in examples], examples)
    assert right == {"accuracy": 1.0, "pair_accuracy": 1.0}


def test_guessing_scores_at_most_half(corpus, lexicon):
    """Constant pronouns, and the two guesses that do not look at the adjective: the first noun, the second noun."""
    examples = corpus["test_coreference"]
    for pronoun in ("er", "sie", "es"):
        score = coreference_score([f"..., weil {pronoun} zu müde war." for _ in examples], examples)
        assert score["accuracy"] <= 0.5 and score["pair_accuracy"] == 0
    for choose in (min, max):
        guesses = []
        for example in examples:
            link = example.coreference
            noun = words(example.source)[choose(link["antecedent"], link["rival"])]
            guesses.append(f"weil {grammar.PERSONAL[lexicon.nouns[noun].gender]} zu müde war")
        score = coreference_score(guesses, examples)
        assert score == {"accuracy": 0.5, "pair_accuracy": 0.0}


def test_coreference_nouns_are_not_paired_in_training(corpus):
    def nouns(example: Example) -> frozenset[str]:
        source, link = words(example.source), example.coreference
        return frozenset((source[link["antecedent"]], source[link["rival"]]))

    train = {nouns(example) for example in corpus["train"] if example.construction == "pronoun_choice"}
    assert train.isdisjoint(nouns(example) for example in corpus["test_coreference"])


# --- the languages ---

GOLDEN = """
Our mother bought three hundred and sixty chairs. = Unsere Mutter kaufte dreihundertsechzig Stühle.
Every donkey can follow the women. = Jeder Esel kann den Frauen folgen.
The king can put a cushion under the bridge. = Der König kann ein Kissen unter die Brücke legen.
The friendly child will jump onto the meadow today. = Das freundliche Kind wird heute auf die Wiese springen.
The lion did not eat the sausage because it was too hot. = Der Löwe fraß die Wurst nicht, weil sie zu heiß war.
The cat did not eat the potato because it was too salty. = Die Katze fraß die Kartoffel nicht, weil sie zu salzig war.
The woman invited the boys. = Die Frau lud die Jungen ein.
Laura turned off a big lamp. = Laura schaltete eine große Lampe aus.
The wedding will take place on the thirtieth of March. = Die Hochzeit wird am dreißigsten März stattfinden.
This woman found this fox on the seventh of September. = Diese Frau fand am siebten September diesen Fuchs.
In winter the young waitress forgot a green hat. = Im Winter vergaß die junge Kellnerin einen grünen Hut.
Many farmers are helping my grandmother. = Viele Bauern helfen meiner Großmutter.
If the weather is good, my uncle can find a ball. = Wenn das Wetter gut ist, kann mein Onkel einen Ball finden.
If it rains, Clara will play in front of the hotel. = Wenn es regnet, wird Clara vor dem Hotel spielen.
The boy will travel to Paris. = Der Junge wird nach Paris reisen.
The big school was built by the sick child. = Die große Schule wurde vom kranken Kind gebaut.
The girl knew that my grandmother washed every jacket. = Das Mädchen wusste, dass meine Großmutter jede Jacke wusch.
Oskar does not follow the old girl. = Oskar folgt dem alten Mädchen nicht.
Could the teacher go into the museum? = Konnte der Lehrer ins Museum gehen?
Where will a doctor visit a girl? = Wo wird ein Arzt ein Mädchen besuchen?
The child shows the child many young wolves. = Das Kind zeigt dem Kind viele junge Wölfe.
The old dog that the girl has found has woken up. = Der alte Hund, den das Mädchen gefunden hat, ist aufgewacht.
Julia and the student sleep behind the museum. = Julia und der Student schlafen hinter dem Museum.
The queen worked, but Laura turned off our radios. = Die Königin arbeitete, aber Laura schaltete unsere Radios aus.
The man helped my grandmother although the farmer cried. = Der Mann half meiner Großmutter, obwohl der Bauer weinte.
The pig did not eat the rice because it was too tired. = Das Schwein fraß den Reis nicht, weil es zu müde war.
The pig did not eat the rice because it was too cold. = Das Schwein fraß den Reis nicht, weil er zu kalt war.
"""


def test_golden_pairs(corpus):
    """Sentence pairs checked by hand, some of each construction."""
    made = {example.source: example.target for split in DIAGNOSTIC for example in corpus[split]}
    pairs = [line.split(" = ") for line in GOLDEN.strip().splitlines()]
    for source, target in pairs:
        assert made[source] == target
