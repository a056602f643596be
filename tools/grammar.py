"""A small synchronous grammar: English and German derived together, with the answers.

One derivation makes both sentences. A phrase builder (noun phrase, prepositional phrase, clause) chooses its words
once and returns two things: an English constituent, a `Node` of the tree, and its German words, a list of `Token`.
Each token names the English leaves it renders, so the word alignment is not computed afterwards: it is how the pair
was made.

    noun phrase   the red car    (NP (DT the) (JJ red) (NN car))    das rote Auto, one token for each leaf
    clause        English: subject, auxiliaries, "not", verb, complements, nested as the Penn Treebank brackets them
                  German: the topological fields, which word order only permutes:

                  in front       | finite verb | middle field            | right bracket | behind
      statement   heute          | hat         | die Frau das rote Auto  | gekauft       | weil es neu ist
      question                   | hat         | die Frau das rote Auto  | gekauft       |
      subordinate weil           |             | die Frau das rote Auto  | gekauft hat   |

German is thus a function of the English sentence: simple past is rendered by the Präteritum, present perfect by the
Perfekt, the progressive by the simple present, "not a" by "kein", and adverbials have one place. What English leaves
open, other words decide: gender and case by the noun and the verb, `er`, `sie` or `es` by what the pronoun refers to.

A construction composes phrases into one sentence pair; `CONSTRUCTIONS` names them all with their share of the corpus.
`generate` draws from them, and keeps some word pairs out of the training text, for the diagnostic sets:

    test_coreference    minimal pairs: one adjective differs, and with it the noun meant, and with it er / sie / es
    test_compositional  an adjective and noun, or verb and object, that never share a training sentence
    test_long           more words than any training sentence, by coordination and subordination

The words themselves are data: `lexicon.toml`. The package ships what comes of it, in data/tiny:

    python tools/grammar.py --out DIR
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, cycle, islice, product
from pathlib import Path
from typing import Any, NamedTuple

from scratchformer.text.bundled import PERSONAL, Example, as_text, words, write_corpus

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEXICON = Path(__file__).with_name("lexicon.toml")
SIZES = {"train": 20_000, "val": 500, "test": 500, "test_coreference": 240, "test_compositional": 300, "test_long": 200}
SEED = 2017
MIN_WORDS, MAX_WORDS, MAX_WORDS_LONG = 3, 25, 45
MIN_COUNT = 34  # a word form rarer than this among all sentences drawn is dropped, with its sentences
NOUN_PAIRS = 150  # held out for test_coreference; pairs with a noun that turns out rare are not used
SURPLUS = 1.5  # how many more ordinary sentences are drawn than needed, because of that


# --- the two sides of a phrase ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """A constituent of the English tree. A leaf has a word, and is itself that word's identity in the alignment."""

    label: str
    children: list[Node]
    word: str = ""

    def leaves(self) -> list[Node]:
        return [self] if self.word else [leaf for child in self.children for leaf in child.leaves()]

    def bracketing(self) -> str:
        inside = self.word or " ".join([child.bracketing() for child in self.children])
        return f"({self.label} {inside})"


class Token(NamedTuple):
    """A German word, and the English leaves that it renders."""

    text: str
    of: tuple[Node, ...] = ()


class Agreement(NamedTuple):
    """Person and number of a subject, which its verb takes."""

    person: int = 3
    plural: bool = False


class Phrase(NamedTuple):
    """A part of a clause: in English after the verb, in German in its slot of a field. Subjects are noun phrases."""

    english: Node
    german: list[Token]
    slot: str = "object"
    agreement: Agreement = Agreement()
    gender: str = ""  # m, f or n; of the head noun
    head: Node | None = None  # of a noun phrase


# The order of the German middle field, its subject apart; then the field behind the right bracket.
MIDDLE_FIELD = ("pronoun", "dative", "time", "object", "negation", "place", "indefinite", "direction", "predicate")
FIELD_BEHIND = "behind"


def leaf(label: str, word: str) -> Node:
    return Node(label, [], word)


def phrase(label: str, *children: Node | None) -> Node:
    return Node(label, [child for child in children if child is not None])


def one_word(tag: str, english: str, german: str, label: str = "NP", **features: Any) -> Phrase:
    """A noun phrase of one word: a name or a pronoun."""
    node = leaf(tag, english)
    return Phrase(phrase(label, node), [Token(german, (node,))], head=node, **features)


# --- the lexicon -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noun:
    english: str
    english_plural: str
    german: str
    german_plural: str  # "" for mass nouns
    gender: str  # m, f, n
    oblique: str  # accusative and dative singular


@dataclass(frozen=True)
class Verb:
    name: str
    frame: str  # what it demands beside a subject: a key of the lexicon's verbs
    english: dict[str, str]  # VB, VBZ, VBD, VBN, VBG
    particle: str  # "on" of "turn on"
    infinitive: str  # without the prefix
    prefix: str
    present: str  # third person singular
    past: str
    participle: str
    auxiliary: str  # haben or sein, under its English name
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    places: tuple[str, ...]  # the prepositions that make sense after it
    stative: bool = False
    passive: bool = False
    habitual: bool = False  # not an event: no modals, no perfect, no date
    preposition: str = ""
    complementizer: str = ""


@dataclass(frozen=True, eq=False)
class Lexicon:
    nouns: dict[str, Noun]
    noun_of: dict[str, str]  # either English form: the noun's name, which is its singular
    classes: dict[str, tuple[str, ...]]
    persons: frozenset[str]  # relatives, too
    verbs: dict[str, dict[str, Verb]]  # by frame, then by name
    adjectives: dict[str, dict[str, str]]  # English: {de, stem}
    modifiers: dict[str, tuple[str, ...]]  # noun: the adjectives that can modify it
    data: dict[str, Any]  # the small tables, as they stand in the file

    @cache
    def expand(self, names: str) -> tuple[str, ...]:
        """The nouns behind a comma-separated list of classes and single nouns."""
        return tuple(dict.fromkeys(noun for name in split(names) for noun in self.classes.get(name, (name,))))


@cache
def split(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def add_s(word: str) -> str:
    """The English plural of a noun and third person of a verb: horses, boxes, parties, boys."""
    if re.search(r"(s|x|z|ch|sh|[^aeiou]o|potato)$", word) and not word.endswith(("piano", "radio")):
        return word + "es"
    return word[:-1] + "ies" if re.search(r"[^aeiou]y$", word) else word + "s"


def add_ed(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if re.search(r"[^aeiou]y$", verb) else verb + "ed"


def add_ing(verb: str) -> str:
    return (verb[:-1] if re.search(r"[^e]e$", verb) else verb) + "ing"


def read_noun(english: str, entry: dict[str, str]) -> Noun:
    singular, plural = (*split(entry["de"]), "")[:2]
    article, german = singular.split()
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    english_plural = entry.get("plural", add_s(english)) if plural else ""
    return Noun(english, english_plural, german, plural.removeprefix("die "), gender, entry.get("oblique", german))


def read_verb(name: str, frame: str, entry: dict[str, Any], lexicon: Lexicon) -> Verb:
    english = split(entry["en"])
    base, _, particle = english[0].partition(" ")
    past, participle = english[1:] if len(english) == 3 else (add_ed(base), add_ed(base))
    forms = {"VB": base, "VBP": base, "VBZ": "has" if base == "have" else add_s(base), "VBD": past, "VBN": participle}
    forms["VBG"] = entry.get("gerund", add_ing(base))
    infinitive, present, german_past, perfect = split(entry["de"])
    prefix, bar, stem = infinitive.rpartition("|")
    auxiliary, german_participle = perfect.split()
    subjects, objects = (lexicon.expand(entry.get(role, "")) for role in ("subject", "object"))
    optional = ("stative", "passive", "habitual", "preposition", "complementizer")
    return Verb(
        name,
        frame,
        forms,
        particle,
        stem,
        prefix if bar else "",
        present.split()[0],
        german_past.split()[0],
        german_participle,
        {"hat": "have", "ist": "be"}[auxiliary],
        subjects,
        objects,
        split(entry.get("places", "")),
        **{key: entry[key] for key in optional if key in entry},
    )


def read_lexicon() -> Lexicon:
    """Read `lexicon.toml`, which lies beside this module, also in an installed wheel."""
    data = tomllib.loads(LEXICON.read_text(encoding="utf-8"))
    data["numerals"] = {name: text.split() for name, text in data["numerals"].items()}
    groups = data.pop("nouns")
    nouns = {english: read_noun(english, entry) for group in groups.values() for english, entry in group.items()}
    noun_of = {form: name for name, noun in nouns.items() for form in (noun.english, noun.english_plural)}
    classes = {name: tuple(group) for name, group in groups.items()}
    persons = frozenset(classes["person"] + classes["relative"])
    lexicon = Lexicon(nouns, noun_of, classes, persons, {}, {}, {}, data)
    for frame, entries in data.pop("verbs").items():
        lexicon.verbs[frame] = {name: read_verb(name, frame, entry, lexicon) for name, entry in entries.items()}
    for english, entry in data.pop("adjectives").items():
        lexicon.adjectives[english] = {"de": entry["de"], "stem": entry.get("stem", entry["de"])}
        for noun in lexicon.expand(entry.get("of", "")):
            lexicon.modifiers[noun] = lexicon.modifiers.get(noun, ()) + (english,)
    for pattern in data["coreference"]:
        pattern |= {role: lexicon.expand(pattern[role]) for role in ("subject", "object")}
        pattern |= {role: split(pattern[role]) for role in ("of_subject", "of_object")}
    return lexicon


# --- German morphology -----------------------------------------------------------------------------------------------

# Endings by case and by column: masculine, feminine, neuter, plural.
COLUMNS = ("m", "f", "n", "p")
STRONG = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
DEFINITE = {"nom": ("er", "ie", "as", "ie"), "acc": ("en", "ie", "as", "ie"), "dat": ("em", "er", "em", "en")}
INDEFINITE = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
WEAK = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}
MIXED = {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en"), "dat": ("en", "en", "en", "en")}
# declension of the determiner: its own endings, and those of an adjective after it
DECLENSIONS = {
    "definite": (DEFINITE, WEAK),
    "demonstrative": (STRONG, WEAK),
    "indefinite": (INDEFINITE, MIXED),
    "quantity": (STRONG, STRONG),
}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "von dem": "vom", "zu dem": "zum", "zu der": "zur"}


def ending(table: dict[str, tuple[str, str, str, str]], case: str, column: str) -> str:
    return table[case][COLUMNS.index(column)]


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    if not plural:
        return noun.german if case == "nom" else noun.oblique
    adds_n = case == "dat" and not noun.german_plural.endswith(("n", "s"))
    return noun.german_plural + ("n" if adds_n else "")


def conjugate(verb: Verb, tense: str, agreement: Agreement) -> str:
    """The finite form of a full verb, present or past, in the first or third person."""
    if tense == "past":
        plural_ending = "n" if verb.past.endswith("e") else "en"
        return verb.past + (plural_ending if agreement.plural else "")
    if agreement.plural:
        return verb.infinitive
    if verb.name.startswith("know that"):
        return verb.present  # ich weiß, er weiß
    return verb.present if agreement.person == 3 else re.sub("e?n$", "", verb.infinitive) + "e"


def relative_pronoun(gender: str, plural: bool, case: str) -> str:
    return "denen" if plural and case == "dat" else "d" + ending(DEFINITE, case, "p" if plural else gender)


# --- numerals --------------------------------------------------------------------------------------------------------


def english_number(lexicon: Lexicon, n: int) -> list[str]:
    """342 -> three hundred and forty-two; n from 1 to 999."""
    small, tens = lexicon.data["numerals"]["en_small"], lexicon.data["numerals"]["en_tens"]
    if n >= 100:
        rest = ["and", *english_number(lexicon, n % 100)] if n % 100 else []
        return [small[n // 100], "hundred", *rest]
    return [small[n] if n < 20 else tens[n // 10 - 2] + (f"-{small[n % 10]}" if n % 10 else "")]


def german_number(lexicon: Lexicon, n: int) -> str:
    """342 -> dreihundertzweiundvierzig: one word, units before tens; n from 2 to 999, and not ending in 01."""
    small, tens = lexicon.data["numerals"]["de_small"], lexicon.data["numerals"]["de_tens"]
    if n >= 100:
        return (small[n // 100] if n >= 200 else "") + "hundert" + (german_number(lexicon, n % 100) if n % 100 else "")
    return small[n] if n < 20 else (f"{small[n % 10]}und" if n % 10 else "") + tens[n // 10 - 2]


def ordinal(lexicon: Lexicon, n: int) -> tuple[str, str]:
    """The n-th day of a month, n from 1 to 31: 21 -> (twenty-first, einundzwanzigsten)."""
    table = lexicon.data["numerals"]
    if n <= 20:
        return table["en_ordinals"][n - 1], table["de_ordinals"][n - 1]
    if n == 30:
        return "thirtieth", "dreißigsten"
    return f"{table['en_tens'][n // 10 - 2]}-{table['en_ordinals'][n % 10 - 1]}", german_number(lexicon, n) + "sten"


def numerals(lexicon: Lexicon) -> frozenset[str]:
    """All number words of both languages, as they stand in a sentence."""
    numbers = [n for n in range(2, 1000) if n % 100 != 1]
    english = {word for n in numbers for word in english_number(lexicon, n)} - {"and"}
    return frozenset(english | {german_number(lexicon, n) for n in numbers})


# --- clauses ---------------------------------------------------------------------------------------------------------


@dataclass
class Clause:
    """Subject, verb and complements: the English parts in order, the German topological fields.

    The methods arrange the same material as the sentence kind demands; none of them chooses a word.
    """

    subject: Phrase
    auxiliaries: list[Node]  # English, the finite one first
    negation: Node | None
    adverb: Node | None  # often, always, ...: before the English main verb
    predicate: Node  # the innermost English verb phrase
    tense: str
    finite: Token
    prefix: Token | None  # of a separable verb in a simple tense
    bracket: list[Token]  # participles and infinitives
    complements: list[Phrase]

    def english_predicate(self) -> Node:
        """The verb phrase: each auxiliary takes the rest as its complement, "not" follows the first one."""
        if not self.auxiliaries:
            return Node(self.predicate.label, [*filter(None, [self.adverb]), *self.predicate.children])
        tail = [node for node in (self.adverb, self.predicate) if node is not None]
        for auxiliary in reversed(self.auxiliaries[1:]):
            tail = [phrase("VP", auxiliary, *tail)]
        return phrase("VP", self.auxiliaries[0], self.negation, *tail)

    def english_statement(self, *front: Node) -> Node:
        return phrase("S", *front, self.subject.english, self.english_predicate())

    def english_question(self) -> Node:
        """The first auxiliary before the subject."""
        verb_phrase = self.english_predicate()
        return phrase("SQ", verb_phrase.children[0], self.subject.english, *verb_phrase.children[1:])

    def field(self, *slots: str) -> list[Token]:
        """The German words of the complements in these slots, in this order."""
        return [token for slot in slots for part in self.complements if part.slot == slot for token in part.german]

    def after_finite(self, subject: list[Token]) -> list[Token]:
        prefix = [self.prefix] if self.prefix else []
        return [*subject, *self.field(*MIDDLE_FIELD), *prefix, *self.bracket, *self.field(FIELD_BEHIND)]

    def german_statement(self) -> list[Token]:
        """Subject, finite verb, the rest."""
        return [*self.subject.german, self.finite, *self.after_finite([])]

    def german_inverted(self) -> list[Token]:
        """Finite verb first: a question, or a statement whose front field is taken."""
        return [self.finite, *self.after_finite(self.subject.german)]

    def german_final(self) -> list[Token]:
        """Finite verb last, its prefix joined to it again: a subordinate clause."""
        finite = self.finite
        if self.prefix:
            finite = Token(self.prefix.text + finite.text, finite.of)
        return [*self.subject.german, *self.field(*MIDDLE_FIELD), *self.bracket, finite, *self.field(FIELD_BEHIND)]


COMMA = Token(",")
CONJUNCTIONS = dict(
    zip("and but because although if that whether".split(), "und aber weil obwohl wenn dass ob".split())
)


class Sentence(NamedTuple):
    """A whole derived sentence, before its words are counted."""

    english: Node
    german: list[Token]
    pronoun: Node | None = None
    antecedent: Node | None = None
    rival: Node | None = None


TENSE_WEIGHTS = {"present": 4, "past": 6, "progressive": 3, "perfect": 3, "future": 2, "can": 1, "must": 1, "could": 1}
TENSES = tuple(TENSE_WEIGHTS)
COMPOUND_TENSES = {  # the English auxiliary, its tense, and the form of the main verb
    "progressive": ("be", "present", "VBG"),
    "perfect": ("have", "present", "VBN"),
    "future": ("will", "present", "VB"),
    "can": ("can", "present", "VB"),
    "must": ("must", "present", "VB"),
    "could": ("can", "past", "VB"),
}
NEGATIVE_TENSES = ("present", "past", "past", "perfect", "future", "could")


POSSESSIVES = ("my", "our", "his", "her")


class Derivation:
    """The choices made while one sentence pair is derived, and the phrase builders that make them.

    lemmas  the nouns, verbs and adjectives chosen so far
    links   which of them were put together: (adjective, noun), (verb, object), (subject, object) of a pronoun sentence
    wanted  words chosen whenever they can be (to derive a sentence that contains them)
    """

    def __init__(self, lexicon: Lexicon, rng: random.Random, wanted: Iterable[str] = ()):
        self.lexicon = lexicon
        self.rng = rng
        self.wanted = frozenset(wanted)
        self.lemmas: set[str] = set()
        self.links: set[tuple[str, str]] = set()

    def one_of(self, options: Sequence[str]) -> str:
        favourites = [option for option in options if option in self.wanted] if self.wanted else []
        return self.rng.choice(favourites or options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # noun phrases

    def noun_phrase(
        self,
        name: str,
        case: str = "nom",
        determiner: str = "the",
        plural: bool = False,
        adjectives: Sequence[str] = (),
        not_leaf: Node | None = None,
        number: int = 0,
        relative: Callable[[Noun, bool], Phrase] | None = None,
    ) -> Phrase:
        """Determiner or number, adjectives, noun, relative clause.

        determiner  a key of the lexicon's table, or "" for none
        not_leaf    the English "not" of the clause if German says it here: kein (with "a", or no determiner)
        relative    makes the relative clause, given the noun and its number
        """
        noun = self.lexicon.nouns[name]
        self.lemmas.update([name, *adjectives])
        self.links.update((adjective, name) for adjective in adjectives)
        column = "p" if plural else noun.gender
        english: list[Node] = []
        german: list[Token] = []
        endings = STRONG
        if determiner:
            before_vowel = determiner == "a" and [*adjectives, name][0][0] in "aeiou"
            english.append(leaf("PRP$" if determiner in POSSESSIVES else "DT", "an" if before_vowel else determiner))
        if determiner or not_leaf:
            entry = self.lexicon.data["determiners"][determiner or "a"]
            own, endings = DECLENSIONS[entry["declension"]]
            stem = "kein" if not_leaf else entry["de"]
            german.append(Token(stem + ending(own, case, column), (*filter(None, [not_leaf]), *english)))
        if number:
            numerals = [leaf("CC" if word == "and" else "CD", word) for word in english_number(self.lexicon, number)]
            english.append(numerals[0] if len(numerals) == 1 else phrase("QP", *numerals))
            german.append(Token(german_number(self.lexicon, number), tuple(numerals)))
        for adjective in adjectives:
            node = leaf("JJ", adjective)
            stem = self.lexicon.adjectives[adjective]["stem"]
            english.append(node)
            german.append(Token(stem + ending(endings, case, column), (node,)))
        head = leaf("NNS" if plural else "NN", noun.english_plural if plural else noun.english)
        english.append(head)
        german.append(Token(noun_form(noun, case, plural), (head,)))
        tree = phrase("NP", *english)
        if relative:
            clause = relative(noun, plural)
            tree = phrase("NP", tree, clause.english)
            german += clause.german
        indefinite = bool(not_leaf) or determiner in ("a", "", "some", "many")
        slot = "dative" if case == "dat" else "indefinite" if indefinite else "object"
        return Phrase(tree, german, slot, Agreement(3, plural), noun.gender, head)

    def free_noun_phrase(
        self,
        names: Sequence[str],
        case: str = "nom",
        owner: str = "",
        definite: bool = False,
        not_leaf: Node | None = None,
        adjectives: float = 0.35,
        plural: float = 0.25,
        relative: Callable[[Noun, bool], Phrase] | None = None,
    ) -> Phrase:
        """A noun phrase with everything but its head noun's class left to chance.

        owner     "his" or "her" if such a possessive can refer to the subject
        definite  only definite determiners
        """
        name = self.one_of(names)
        noun = self.lexicon.nouns[name]
        modifiers = self.lexicon.modifiers.get(name, ())
        is_plural = bool(noun.german_plural) and self.chance(plural)
        chosen: list[str] = []
        wanted = [modifier for modifier in modifiers if modifier in self.wanted] if name in self.wanted else []
        if wanted or (modifiers and self.chance(adjectives)):
            chosen = [self.rng.choice(wanted or modifiers)]
        if name in self.lexicon.classes["relative"]:
            determiner = self.rng.choice(["my", "my", "our", *([owner] * 3 if owner else [])])
        elif not_leaf:
            determiner = "a" if noun.german_plural and not is_plural else ""
        elif relative:
            determiner = self.rng.choice(["the", "the", "the", "these" if is_plural else "this"])
        elif is_plural:
            determiner = self.rng.choice(["the"] * 5 + ["these", "my", "our"] + [owner or "the"])
            if not definite:
                bare = "many" if self.is_person(name) else ""
                determiner = self.rng.choice([determiner, determiner, determiner, "many", "some", bare])
        elif not noun.german_plural:
            determiner = self.rng.choice(["the", "the", "this"] + ([] if definite else [""]))
        else:
            determiner = self.rng.choice(["the"] * 8 + ["this", "this", "my", "our"] + [owner or "the"])
            if not definite:
                determiner = self.rng.choice([determiner] * 5 + ["a"] * 4 + ["every"])
        elsewhere = self.lexicon.expand("person, way, outdoors, passage")  # nobody's own
        if determiner in POSSESSIVES and name in elsewhere:
            determiner = "the"
        return self.noun_phrase(name, case, determiner, is_plural, chosen, not_leaf, relative=relative)

    def proper_name(self, name: str) -> Phrase:
        return one_word("NNP", name, name)

    def person_name(self, other_than: Phrase | None = None, case: str = "nom") -> Phrase:
        taken = other_than.head.word if other_than and other_than.head else ""
        gender, group = self.rng.choice([("m", "male"), ("f", "female")])
        name = self.rng.choice([name for name in self.lexicon.data["proper"][group] if name != taken])
        return one_word("NNP", name, name, gender=gender, slot="dative" if case == "dat" else "object")

    def personal_pronoun(self, name: str, case: str = "nom") -> Phrase:
        entry = self.lexicon.data["pronouns"][name]
        features: dict[str, Any] = {"agreement": Agreement(entry["person"], entry["plural"]), "slot": "pronoun"}
        features["gender"] = {"he": "m", "she": "f"}.get(name, "")
        return one_word("PRP", name if case == "nom" else entry["object"], entry[case], **features)

    def is_person(self, name: str) -> bool:
        return name in self.lexicon.persons

    def subject(self, names: Sequence[str], plain: bool = False, definite: bool = False) -> Phrase:
        """The subject of a verb that takes these nouns. Persons may also be a name, a relative or a pronoun."""
        if not self.lexicon.persons.isdisjoint(names) and not self.wanted.intersection(names):
            kind = self.rng.random()
            if kind < 0.2:
                return self.person_name()
            if kind < 0.35 and not plain:
                return self.personal_pronoun(self.rng.choice(list(self.lexicon.data["pronouns"])))
            if kind < 0.45 and "king" in names:
                names = self.lexicon.classes["relative"]
        return self.free_noun_phrase(names, definite=definite or self.chance(0.7), adjectives=0.3, plural=0.2)

    def owner(self, subject: Phrase) -> str:
        """The possessive that refers to this subject: his, her, or none if the noun's gender is not its sex."""
        if subject.agreement.plural or subject.agreement.person == 1 or subject.head is None:
            return ""
        word = subject.head.word
        if word in self.lexicon.nouns and not self.is_person(word):
            return ""
        return {"m": "his", "f": "her"}.get(subject.gender, "")

    def verb_object(
        self, verb: Verb, subject: Phrase, case: str = "acc", not_leaf: Node | None = None, definite: bool = False
    ) -> Phrase:
        """The object of a verb: a noun of the right class, or a name or a pronoun if that is a person.

        A name is not an object beside a noun as subject: "dass meine Tante Anna sah" would be about Aunt Anna.
        """
        self.lemmas.add(verb.name)
        takes_person = "king" in verb.objects
        if takes_person and not not_leaf and not self.wanted.intersection(verb.objects):
            no_noun = subject.head is not None and subject.head.label in ("NNP", "PRP")
            if no_noun and self.chance(0.3):
                return self.person_name(subject, case)
            if self.chance(0.15):
                return self.personal_pronoun(self.object_pronoun(subject), case)
        taken = {leaf.word for leaf in subject.english.leaves()}
        names = [name for name in verb.objects if name not in taken]
        if not_leaf:
            names = [name for name in names if name not in self.lexicon.classes["relative"]]
        definite = definite or case == "dat"
        found = self.free_noun_phrase(names, case, self.owner(subject), definite, not_leaf)
        assert found.head is not None
        self.links.add((verb.name, self.lexicon.noun_of[found.head.word]))
        return found

    def object_pronoun(self, subject: Phrase) -> str:
        """A pronoun that cannot be mistaken for the subject itself."""
        if subject.agreement.person == 1:
            return self.rng.choice(["he", "she", "they"])
        options = {"m": ["she", "they"], "f": ["he"]}.get(subject.gender, [])
        return self.rng.choice([*(["he"] if subject.agreement.plural else options), "I", "we"])

    # adverbials and prepositional phrases

    def prepositional_phrase(self, english: str, german: str, noun_phrase: Phrase, slot: str) -> Phrase:
        """A preposition and its noun phrase; in German they may contract, im for in dem."""
        nodes = [leaf("IN", word) for word in english.split()]
        tree = phrase("PP", *nodes, noun_phrase.english)
        if len(nodes) == 3:  # in front of the house, on the model of: in (the) front of the house
            inner = phrase("PP", nodes[2], noun_phrase.english)
            nodes[1].label = "NN"
            tree = phrase("PP", nodes[0], phrase("NP", phrase("NP", nodes[1]), inner))
        elif len(nodes) == 2:
            tree = phrase("ADVP", leaf("JJ", "next"), phrase("PP", nodes[1], noun_phrase.english))
            nodes[0] = tree.children[0]
        first, *rest = noun_phrase.german
        if contraction := CONTRACTIONS.get(f"{german} {first.text}"):
            return Phrase(tree, [Token(contraction, (*nodes, *first.of)), *rest], slot)
        return Phrase(tree, [Token(german, tuple(nodes)), first, *rest], slot)

    def place(self, case: str, prepositions: Sequence[str], moving: bool = False) -> Phrase:
        """A place (dative) or a direction (accusative). After a verb of moving oneself, English has into and onto."""
        table = self.lexicon.data["places"]
        english = self.rng.choice(prepositions)
        name = self.one_of(self.lexicon.expand(table[english]["of"]))
        modifiers = self.lexicon.modifiers.get(name) if self.chance(0.25) else None
        adjectives = [self.one_of(modifiers)] if modifiers else []
        noun_phrase = self.noun_phrase(name, case, "the", self.chance(0.08), adjectives)
        spoken = {"in": "into", "on": "onto"}.get(english, english) if moving else english
        slot = "direction" if case == "acc" else "place"
        return self.prepositional_phrase(spoken, table[english]["de"], noun_phrase, slot)

    def fixed_adverbial(self, english: str, german: str, label: str, links: str = "") -> Phrase:
        """An adverbial of the lexicon; `label` is its category and the tags of its words: "PP: IN NN"."""
        category, _, tags = label.partition(": ")
        nodes = [leaf(tag, word) for tag, word in zip(tags.split(), english.split(), strict=True)]
        german_words = german.split()
        targets = [int(link) for link in links.split()] if links else list(range(len(nodes)))
        targets = [min(target, len(german_words) - 1) for target in targets]
        tokens = [
            Token(word, tuple(node for node, target in zip(nodes, targets, strict=True) if target == index))
            for index, word in enumerate(german_words)
        ]
        inner = nodes if category != "PP" else [nodes[0], phrase("NP", *nodes[1:])]
        return Phrase(phrase(category, *inner), tokens, "time")

    def time(self, tense: str) -> Phrase | None:
        """An adverbial of time that goes with the tense, if there is one."""
        if tense in ("past", "future") and self.chance(0.2):
            english, german = self.rng.choice(list(self.lexicon.data["calendar"]["weekdays"].items()))
            return self.fixed_adverbial(f"on {english}", f"am {german}", "PP: IN NNP")
        table = self.lexicon.data["times"]
        fitting = [name for name, entry in table.items() if tense in split(entry["tenses"])]
        if not fitting:
            return None
        name = self.rng.choice(fitting)
        return self.fixed_adverbial(name, table[name]["de"], table[name]["label"], table[name].get("links", ""))

    def date(self) -> Phrase:
        """on the third of May -> am dritten Mai; "of" has no counterpart."""
        lexicon, month = self.lexicon, self.rng.randrange(12)
        days = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month]
        english_month, german_month = list(lexicon.data["calendar"]["months"].items())[month]
        english_day, german_day = ordinal(lexicon, self.rng.randint(1, days))
        on, the, day, of, may = map(
            leaf, ("IN", "DT", "NN", "IN", "NNP"), ("on", "the", english_day, "of", english_month)
        )
        inner = phrase("NP", phrase("NP", the, day), phrase("PP", of, phrase("NP", may)))
        tokens = [Token("am", (on, the)), Token(german_day, (day,)), Token(german_month, (may,))]
        return Phrase(phrase("PP", on, inner), tokens, "time")

    # clauses

    def auxiliary(self, name: str, tense: str, agreement: Agreement, label: str = "") -> tuple[Node, str]:
        """The English leaf and the German word of an auxiliary; "" where the language has no such verb."""
        forms = self.lexicon.data["auxiliaries"][name]
        index = (2 if agreement.plural else 0 if agreement.person == 1 else 1) if tense == "present" else 3
        index += tense == "past" and agreement.plural
        english, german = (split(forms[language])[index] if forms[language] else "" for language in ("en", "de"))
        return leaf(label or ("VBD" if tense == "past" else "VBZ" if index == 1 else "VBP"), english), german

    def clause(
        self,
        subject: Phrase,
        verb: Verb,
        tense: str,
        complements: Sequence[Phrase | None] = (),
        negation: Node | None = None,
        question: bool = False,
        frequency: str = "",
    ) -> Clause:
        """A clause with a full verb.

        tense     one of TENSES
        negation  the English "not"; its German word is among the complements
        question  English needs an auxiliary (do) even if the tense has none
        """
        self.lemmas.add(verb.name)
        parts = [part for part in complements if part is not None]
        agreement = subject.agreement
        adverb = None
        if frequency:
            node = leaf("RB", frequency)
            adverb = phrase("ADVP", node)
            german_word = self.lexicon.data["frequency"][frequency]
            parts.append(Phrase(adverb, [Token(german_word, (node,))], "time"))
        auxiliaries, main, finite, bracket = self.verb_group(verb, tense, agreement, bool(negation) or question)
        particle = leaf("RP", verb.particle) if verb.particle else None
        # the particle belongs to whatever renders the verb
        prefix = None
        if particle:
            bracket = [Token(token.text, (*token.of, particle)) if main in token.of else token for token in bracket]
            finite = Token(finite.text, (*finite.of, particle)) if main in finite.of else finite
        if verb.prefix and main in finite.of:
            prefix = Token(verb.prefix, tuple(node for node in (main, particle) if node is not None))
        in_order = [part.english for part in parts if part.english not in (adverb, negation)]
        after_verb = [phrase("PRT", particle)] if particle else []
        pronoun_first = bool(parts) and parts[0].slot == "pronoun"  # pick me up, but: pick up the child
        predicate = phrase("VP", main, *in_order[:pronoun_first], *after_verb, *in_order[pronoun_first:])
        return Clause(subject, auxiliaries, negation, adverb, predicate, tense, finite, prefix, bracket, parts)

    def any_clause(
        self, subject: Phrase, verb: Verb, tenses: Sequence[str] = TENSES, parts: Sequence[Phrase] | None = None
    ) -> Clause:
        """A clause with one of these tenses and, if no `parts` are given, the complements that the verb demands."""
        tense = self.tense(verb, tenses, subject.agreement)
        return self.clause(subject, verb, tense, self.arguments(verb, subject, None) if parts is None else parts)

    def polar_clause(self, subject: Phrase, verb: Verb, tense: str, part: Phrase, polarity: str) -> Clause:
        """A clause with one complement, negated if the polarity is "-"."""
        not_leaf = leaf("RB", "not") if polarity == "-" else None
        return self.clause(subject, verb, tense, [part, german_not(not_leaf) if not_leaf else None], not_leaf)

    def verb_group(
        self, verb: Verb, tense: str, agreement: Agreement, support: bool
    ) -> tuple[list[Node], Node, Token, list[Token]]:
        """English auxiliaries and main verb, German finite verb and right bracket, in one tense."""
        if tense in ("present", "past"):
            tag = "VBD" if tense == "past" else "VBZ" if agreement == Agreement() else "VBP"
            main = leaf("VB" if support else tag, verb.english["VB" if support else tag])
            auxiliaries = [self.auxiliary("do", tense, agreement)[0]] if support else []
            return auxiliaries, main, Token(conjugate(verb, tense, agreement), (*auxiliaries, main)), []
        name, time, tag = COMPOUND_TENSES[tense]
        auxiliary, finite = self.auxiliary(name, time, agreement, "MD" if tag == "VB" else "")
        main = leaf(tag, verb.english[tag])
        if tag == "VBG":
            return [auxiliary], main, Token(conjugate(verb, "present", agreement), (auxiliary, main)), []
        if tag == "VBN":
            _, finite = self.auxiliary(verb.auxiliary, "present", agreement)
        infinite = verb.participle if tag == "VBN" else verb.prefix + verb.infinitive
        return [auxiliary], main, Token(finite, (auxiliary,)), [Token(infinite, (main,))]

    def copula(
        self, subject: Phrase, tense: str, adjective: str, degree: str = "", negation: Node | None = None
    ) -> Clause:
        """subject is (not) (too, very) adjective; predicate adjectives do not inflect in German."""
        self.lemmas.add(adjective)
        be, finite = self.auxiliary("be", tense, subject.agreement)
        node, adverb = leaf("JJ", adjective), leaf("RB", degree) if degree else None
        tokens = [Token({"too": "zu", "very": "sehr"}[degree], (adverb,))] if adverb else []
        tokens.append(Token(self.lexicon.adjectives[adjective]["de"], (node,)))
        predicate = phrase("ADJP", adverb, node)
        parts = [Phrase(predicate, tokens, "predicate")]
        if negation:
            parts.append(german_not(negation))
        return Clause(subject, [be], negation, None, predicate, tense, Token(finite, (be,)), None, [], parts)

    def tenses(self, verb: Verb, allowed: Sequence[str], agreement: Agreement) -> list[str]:
        """The tenses that the verb can have, and (read, put) that English can show with this subject."""
        options = [tense for tense in allowed if not (verb.stative and tense == "progressive")]
        if verb.habitual:
            options = [tense for tense in options if tense in ("present", "past")]
        if verb.english["VB"] == verb.english["VBD"] and agreement != Agreement():
            options = [tense for tense in options if tense not in ("present", "past")]
        return options

    def tense(self, verb: Verb, allowed: Sequence[str], agreement: Agreement) -> str:
        """One of those tenses; the perfect if all are ruled out."""
        options = self.tenses(verb, allowed, agreement) or ["perfect"]
        return self.rng.choices(options, [TENSE_WEIGHTS[option] for option in options])[0]

    def simple_clause(
        self,
        frames: Sequence[str] = ("transitive", "transitive", "transitive", "intransitive", "prepositional", "dative"),
        tenses: Sequence[str] = TENSES,
        subject: Phrase | None = None,
        negated: bool = False,
        question: bool = False,
        timed: float = 0.2,
        subject_names: Sequence[str] = (),
        separable: bool = False,
        event: bool = False,
    ) -> Clause:
        """A clause of one of the frames, all else left to chance.

        timed  the probability of an adverbial of time or frequency
        event  only verbs that can be dated, placed and asked about
        """
        allowed = NEGATIVE_TENSES if negated and tenses == TENSES else tenses
        while True:
            verb = self.choose_verb(self.rng.choice(list(frames)), subject, separable)
            chosen = subject or self.subject(subject_names or verb.subjects, definite=negated)
            if not (event and verb.habitual) and self.tenses(verb, allowed, chosen.agreement):
                break
        tense = self.tense(verb, allowed, chosen.agreement)
        not_leaf = leaf("RB", "not") if negated else None
        parts: list[Phrase | None] = list(self.arguments(verb, chosen, not_leaf))
        said = any(not_leaf in token.of for part in parts if part for token in part.german)  # as "kein"
        if not_leaf and not said:
            parts.append(german_not(not_leaf))
        frequency = ""
        if not negated and not verb.habitual and self.chance(timed):
            if tense in ("present", "past") and self.chance(0.4):
                frequency = self.rng.choice(list(self.lexicon.data["frequency"]))
            else:
                parts.append(self.time(tense))
        return self.clause(chosen, verb, tense, parts, not_leaf, question, frequency)

    def choose_verb(self, frame: str, subject: Phrase | None = None, separable: bool = False) -> Verb:
        """A verb of the frame for this subject, or for any noun; if `separable`, one with a prefix."""
        table = self.lexicon.verbs[frame]
        verbs = [verb for verb in table.values() if verb.subjects and (verb.prefix or not separable)]
        return table[self.one_of([verb.name for verb in verbs if not subject or self.fits(subject, verb)])]

    def fits(self, subject: Phrase, verb: Verb) -> bool:
        """Can this be a subject of the verb? Names and pronouns are people."""
        assert subject.head is not None
        if subject.head.label in ("NNP", "PRP"):
            return "king" in verb.subjects
        head = self.lexicon.noun_of[subject.head.word]
        return head in verb.subjects or ("king" in verb.subjects and self.is_person(head))

    def arguments(self, verb: Verb, subject: Phrase, not_leaf: Node | None) -> list[Phrase]:
        """The complements that the verb's frame demands, in English order."""
        frame = verb.frame
        as_kein = not_leaf if not_leaf and self.chance(0.5) else None
        definite = not_leaf is not None
        if frame == "transitive":
            return [self.verb_object(verb, subject, "acc", as_kein, definite)]
        if frame == "dative":
            return [self.verb_object(verb, subject, "dat")]
        if frame == "prepositional":
            english, german, case = read_preposition(verb.preposition)
            target = self.verb_object(verb, subject, case, None, definite)
            return [self.prepositional_phrase(english, german, target, "direction")]
        if frame == "ditransitive":
            receiver = self.free_noun_phrase(
                self.lexicon.expand("person, relative"), "dat", self.owner(subject), True, adjectives=0.15
            )
            if self.chance(0.3):
                receiver = self.person_name(subject, "dat")
            return [receiver, self.verb_object(verb, subject, "acc", as_kein, definite)]
        if frame == "position":
            return [self.place("dat", verb.places)]
        if frame == "motion":
            return [self.place("acc", verb.places, moving=True)]
        if frame == "placement":
            thing = self.verb_object(verb, subject)
            return [thing, self.place("acc", verb.places)]
        return []

    # subordinate clauses

    def relative_clause(self, noun: Noun, plural: bool) -> Phrase:
        """who bought the car / whom the woman saw / that the woman bought, after this noun."""
        name = noun.english
        is_person = self.is_person(name)
        tag = "WP" if is_person else "WDT"
        transitive = self.lexicon.verbs["transitive"]
        as_object = [verb for verb in transitive.values() if name in verb.objects and verb.passive]
        if as_object and (not is_person or self.chance(0.4)):
            verb = self.rng.choice(as_object)
            node = leaf(tag, "whom" if is_person else "that")
            subject = self.subject([other for other in verb.subjects if other != name])
            self.links.add((verb.name, name))
            clause = self.any_clause(subject, verb, ("past", "past", "perfect"), [])
            tree = phrase("SBAR", phrase("WHNP", node), clause.english_statement())
            german = Token(relative_pronoun(noun.gender, plural, "acc"), (node,))
            return Phrase(tree, [COMMA, german, *clause.german_final(), COMMA], FIELD_BEHIND)
        nominative = relative_pronoun(noun.gender, plural, "nom")
        subject = one_word(tag, "who" if is_person else "that", nominative, "WHNP", agreement=Agreement(3, plural))
        tables = [self.lexicon.verbs[frame] for frame in ("transitive", "intransitive", "position")]
        tables = [table for table in tables if any(name in verb.subjects for verb in table.values())]
        if tables:
            table = self.rng.choice(tables)
            verb = self.rng.choice([verb for verb in table.values() if name in verb.subjects and not verb.habitual])
            parts = self.arguments(verb, subject, None)
            tense = self.tense(verb, ("past", "perfect", "progressive"), subject.agreement)
            clause = self.clause(subject, verb, tense, parts)
        else:
            tense = self.rng.choice(["present", "past"])
            clause = self.copula(subject, tense, self.one_of(self.lexicon.modifiers[name]))
        tree = phrase("SBAR", subject.english, phrase("S", clause.english_predicate()))
        return Phrase(tree, [COMMA, *clause.german_final(), COMMA], FIELD_BEHIND)

    def person_is(self, tense: str, adjectives: str) -> Clause:
        """the man is tired"""
        return self.copula(
            self.noun_phrase(self.one_of(self.lexicon.classes["person"])), tense, self.one_of(adjectives.split())
        )

    def weather_is(self, tense: str) -> Clause:
        """the weather is good"""
        return self.copula(self.noun_phrase("weather"), tense, self.rng.choice(["good", "bad", "cold"]))

    def weather(self, tense: str) -> Clause:
        """it is raining, it was snowing: the German verb has the same empty subject."""
        subject = one_word("PRP", "it", "es")
        verb = self.lexicon.verbs["intransitive"][self.rng.choice(["rain", "snow"])]
        return self.clause(subject, verb, tense)


def subordinate(conjunction: str, clause: Clause) -> Phrase:
    """Conjunction and verb-final clause, behind the main clause."""
    node = leaf("IN", conjunction)
    tree = phrase("SBAR", node, clause.english_statement())
    german = [COMMA, Token(CONJUNCTIONS[conjunction], (node,)), *clause.german_final(), COMMA]
    return Phrase(tree, german, FIELD_BEHIND)


def german_not(negation: Node) -> Phrase:
    return Phrase(negation, [Token("nicht", (negation,))], "negation")


def read_preposition(entry: str) -> tuple[str, str, str]:
    """ "into: in + acc" -> into, in, acc."""
    english, german, case = re.split(r": | \+ ", entry)
    return english, german, case


def statement(clause: Clause, front: Phrase | None = None) -> Sentence:
    """A main clause with its full stop; German has what stands in front before the finite verb."""
    if front is None:
        return end(clause.english_statement(), clause.german_statement())
    return end(clause.english_statement(front.english), [*front.german, *clause.german_inverted()])


def end(tree: Node, german: list[Token], mark: str = ".") -> Sentence:
    stop = leaf(".", mark)
    return Sentence(Node(tree.label, [*tree.children, stop]), [*german, Token(mark, (stop,))])


# --- constructions ---------------------------------------------------------------------------------------------------


def agreement(d: Derivation) -> Sentence:
    """Articles and adjectives in gender, number and case."""
    if d.chance(0.25):
        return predicate(d)
    return statement(d.simple_clause(("transitive", "transitive", "transitive", "dative", "prepositional")))


def predicate(d: Derivation) -> Sentence:
    name = d.one_of([name for name in d.lexicon.modifiers if name not in d.lexicon.classes["drink"]])
    adjective = d.one_of(d.lexicon.modifiers[name])
    determiner = "my" if d.lexicon.nouns[name].german_plural and not d.is_person(name) and d.chance(0.15) else "the"
    plural = bool(d.lexicon.nouns[name].german_plural) and d.chance(0.25)
    if name in d.lexicon.expand("way, passage, outdoors, animal"):
        determiner = "the"
    subject = d.noun_phrase(name, "nom", determiner, plural)
    d.links.add((adjective, name))
    negation = leaf("RB", "not") if d.chance(0.2) else None
    degree = "" if negation else d.rng.choice(["", "very"])
    return statement(d.copula(subject, d.rng.choice(["present", "past"]), adjective, degree, negation))


def plural(d: Derivation) -> Sentence:
    """Plural subjects."""
    verb = d.choose_verb(d.rng.choice(["transitive", "intransitive", "dative"]))
    names = [name for name in verb.subjects if d.lexicon.nouns[name].german_plural]
    subject = d.free_noun_phrase(names, plural=1.0, adjectives=0.4)
    return statement(d.any_clause(subject, verb))


def verb_second(d: Derivation) -> Sentence:
    """An adverbial in front: in German the verb comes next, then the subject."""
    tense = d.rng.choice(["past", "past", "past", "future", "present"])
    clause = d.simple_clause(tenses=(tense,), timed=0, event=True)
    return statement(clause, d.time(tense))


def because(d: Derivation) -> Sentence:
    """A reason: verb last."""
    reason = d.rng.random()
    main = d.simple_clause(tenses=("past", "progressive"), timed=0)
    tense = "past" if main.tense == "past" else "present"
    if reason < 0.3:
        clause = d.person_is(tense, "tired sick hungry sad happy")
    elif reason < 0.45:
        clause = d.weather_is(tense)
    elif reason < 0.55 and tense == "present":
        clause = d.weather("progressive")
    else:
        clause = d.simple_clause(tenses=("past",) if tense == "past" else ("perfect", "must"), timed=0)
    return subordinated(main, "because", clause)


def subordinated(main: Clause, conjunction: str, clause: Clause) -> Sentence:
    """Main clause, then subordinate clause, attached to the English verb phrase."""
    return statement(extended(main, subordinate(conjunction, clause)))


def extended(main: Clause, part: Phrase) -> Clause:
    main.complements.append(part)
    main.predicate.children.append(part.english)
    return main


def although(d: Derivation) -> Sentence:
    """obwohl: verb last."""
    main = d.simple_clause(tenses=("past",), timed=0)
    clause = d.simple_clause(tenses=("past",), timed=0, negated=d.chance(0.5))
    return subordinated(main, "although", clause)


def attitude(d: Derivation) -> Sentence:
    """knows that, asks whether: a clause as object, verb last."""
    verb = d.lexicon.verbs["attitude"][d.one_of(list(d.lexicon.verbs["attitude"]))]
    subject = d.subject(d.lexicon.classes["person"])
    tense = d.rng.choice(["present", "present", "past"])
    later = {"hope": ("future",), "ask": ("perfect", "future", "present")}.get(verb.english["VB"])
    inner_tenses = ("past",) if tense == "past" else later or ("present", "progressive", "perfect", "future", "can")
    inner = d.simple_clause(tenses=inner_tenses, timed=0, negated=False)
    main = d.clause(subject, verb, tense)
    return subordinated(main, split(verb.complementizer, ":")[0], inner)


def condition(d: Derivation) -> Sentence:
    """If it is raining, ...: the subordinate clause is the German front field, the main verb follows at once."""
    kind = d.rng.random()
    if kind < 0.35:
        inner = d.weather_is("present")
    elif kind < 0.5:
        inner = d.weather("present")
    elif kind < 0.75:
        inner = d.person_is("present", "tired sick hungry happy sad")
    else:
        inner = d.simple_clause(("transitive", "intransitive", "motion"), ("present",), timed=0)
    frames = ("transitive", "intransitive", "motion", "position", "prepositional")
    main = d.simple_clause(frames, ("future", "must", "can", "present"), timed=0)
    part = subordinate("if", inner)
    comma = leaf(",", ",")
    german = [*part.german[1:-1], Token(",", (comma,)), *main.german_inverted()]
    return end(main.english_statement(part.english, comma), german)


def relative(d: Derivation) -> Sentence:
    """A relative clause in subject or object."""
    verb = d.choose_verb(d.rng.choice(["transitive", "transitive", "intransitive"]))
    if d.chance(0.5) or not verb.objects or verb.prefix or verb.english["VB"] == verb.english["VBD"]:
        names = [name for name in verb.subjects if name not in d.lexicon.classes["event"]]
        names = names or list(d.lexicon.classes["person"])
        if verb.name == "take place":
            verb = d.lexicon.verbs["intransitive"]["arrive"]
        subject = d.free_noun_phrase(names, definite=True, adjectives=0.15, relative=d.relative_clause)
        return statement(d.any_clause(subject, verb, ("past", "progressive", "perfect", "future")))
    subject = d.subject(verb.subjects)
    names = [name for name in verb.objects if name in d.lexicon.modifiers and subject.english.leaves()[-1].word != name]
    name = d.one_of([name for name in names if name not in d.lexicon.classes["relative"]])
    d.links.add((verb.name, name))
    target = d.free_noun_phrase([name], "acc", definite=True, adjectives=0.15, relative=d.relative_clause)
    return statement(d.any_clause(subject, verb, ("present", "past"), [target]))


def separable(d: Derivation) -> Sentence:
    """anrufen: the prefix stands at the end of the main clause."""
    frame = "transitive" if d.chance(0.75) else "intransitive"
    return statement(d.simple_clause((frame,), separable=True, tenses=("present", "past", "past", "perfect", "future")))


def city(d: Derivation) -> Sentence:
    """Names of places: nach Berlin, in Berlin."""
    name = d.proper_name(d.rng.choice(d.lexicon.data["proper"]["city"]))
    verb_name, english, german = ("travel", "to", "nach") if d.chance(0.5) else ("live", "in", "in")
    verb = d.lexicon.verbs["cities"][verb_name]
    part = d.prepositional_phrase(english, german, name, "direction")
    subject = d.subject(d.lexicon.expand("person"))
    tense = d.tense(verb, TENSES, subject.agreement)
    when = d.time(tense) if d.chance(0.4) and not verb.habitual else None
    return statement(d.clause(subject, verb, tense, [part, when]))


def number(d: Derivation) -> Sentence:
    """Cardinal numbers up to 999, as words: in German the units come before the tens, in one word."""
    n = random_number(d)
    name, subjects, objects = d.rng.choice(d.lexicon.data["counting"])
    verb = d.lexicon.verbs["transitive"][name]
    who = d.lexicon.expand(subjects)
    subject = d.subject(who) if subjects == "person" else d.noun_phrase(d.one_of(who))
    counted = d.one_of(d.lexicon.expand(objects))
    d.links.add((name, counted))
    target = d.noun_phrase(counted, "acc", "", True, (), None, n)
    tenses = ("present", "past") if name in ("have", "need") else ("past", "past", "perfect", "future")
    return statement(d.any_clause(subject, verb, tenses, [target]))


def random_number(d: Derivation) -> int:
    low, high = d.rng.choices([(2, 19), (20, 99), (100, 999)], [4, 4, 7])[0]
    n = d.rng.randint(low, high)
    return n if n % 100 != 1 else n + 1


def date(d: Derivation) -> Sentence:
    """Dates: on the third of May, am dritten Mai."""
    when = d.date()
    tenses = ("past", "past", "future")
    if d.chance(0.4):
        subject = d.noun_phrase(d.one_of(d.lexicon.classes["event"]))
        verb = d.lexicon.verbs["intransitive"]["take place"]
        clause = d.clause(subject, verb, d.rng.choice(tenses), [when])
        return statement(clause)
    clause = d.simple_clause(("transitive", "intransitive", "prepositional"), tenses, timed=0, event=True)
    if d.chance(0.5):
        return statement(clause, when)
    return statement(extended(clause, when))


def question(d: Derivation) -> Sentence:
    """Yes-no questions: the verb comes first."""
    frames = ("transitive", "transitive", "intransitive", "dative", "motion", "position")
    clause = d.simple_clause(frames, ("perfect", "future", "can", "must", "could"), question=True, timed=0.15)
    return end(clause.english_question(), clause.german_inverted(), "?")


WHERE_WHEN_WHY = {  # the German word, the frames of the verb, the tenses
    "where": ("wo", "transitive intransitive", "past future perfect"),
    "when": ("wann", "transitive motion prepositional", "past future"),
    "why": ("warum", "transitive intransitive motion position dative", "past progressive perfect"),
}


def who_question(d: Derivation) -> Sentence:
    """Wer, was, wo, wann, warum."""
    kind = d.rng.choice(["who", "what", "where", "when", "why", "why"])
    if kind == "who":
        subject = one_word("WP", "Who", "wer", "WHNP")
        verb = d.choose_verb(d.rng.choice(["transitive", "dative", "prepositional"]), d.proper_name("Anna"))
        clause = d.any_clause(subject, verb)
        return end(phrase("SBARQ", subject.english, clause.english_predicate()), clause.german_statement(), "?")
    if kind == "what":
        verb = d.lexicon.verbs["transitive"][d.one_of(d.lexicon.data["what"]["verbs"].split())]
        subject = d.subject(d.lexicon.classes["person"])
        tense = d.tense(verb, ("present", "past", "past", "progressive", "perfect", "future"), subject.agreement)
        clause = d.clause(subject, verb, tense, question=True)
        node, german, label = leaf("WP", "What"), "was", "WHNP"
    else:
        german, frames, tenses = WHERE_WHEN_WHY[kind]
        clause = d.simple_clause(frames.split(), tenses.split(), question=True, timed=0, event=True)
        node, label = leaf("WRB", kind.capitalize()), "WHADVP"
    tree = phrase("SBARQ", phrase(label, node), clause.english_question())
    return end(tree, [Token(german, (node,)), *clause.german_inverted()], "?")


def passive(d: Derivation) -> Sentence:
    """werden and participle; the agent with von and dative."""
    table = d.lexicon.verbs["transitive"]
    verb = table[d.one_of([name for name, verb in table.items() if verb.passive])]
    tense = "present" if d.chance(0.15) else "past"
    subject = d.free_noun_phrase(verb.objects, definite=not d.chance(0.3), adjectives=0.3)
    d.lemmas.add(verb.name)
    be, _ = d.auxiliary("be", tense, subject.agreement)
    _, finite = d.auxiliary("become", tense, subject.agreement)
    main = leaf("VBN", verb.english["VBN"])
    particle = leaf("RP", verb.particle) if verb.particle else None
    parts: list[Phrase] = []
    by_animal = "king" not in verb.subjects  # then German needs to hear it: gefressen, not gegessen
    if by_animal or d.chance(0.6):
        taken = {node.word for node in subject.english.leaves()}
        agent = d.free_noun_phrase([name for name in verb.subjects if name not in taken], "dat", definite=True)
        parts.append(d.prepositional_phrase("by", "von", agent, "place"))
    when = d.time(tense) if d.chance(0.35) and tense == "past" else None
    if when:
        parts.append(when)
    tree = phrase("VP", main, phrase("PRT", particle) if particle else None, *(part.english for part in parts))
    participle = Token(verb.participle, tuple(node for node in (main, particle) if node is not None))
    return statement(Clause(subject, [be], None, None, tree, tense, Token(finite, (be,)), None, [participle], parts))


def coordination(d: Derivation) -> Sentence:
    """Two clauses, or two subjects."""
    if d.chance(0.3):
        return joined_subjects(d)
    if d.chance(0.5):
        return join([past_clause(d) for _ in range(2)], [d.rng.choice(["and", "but"])])
    tense = d.rng.choice(["past", "progressive", "future"])
    return join([d.simple_clause(tenses=(tense,), timed=0) for _ in range(2)], [d.rng.choice(["and", "but"])])


def past_clause(d: Derivation) -> Clause:
    """A main clause, perhaps with a subordinate clause: the links of a long sentence."""
    clause = d.simple_clause(tenses=("past",), timed=0, negated=d.chance(0.15))
    if d.chance(0.6):
        conjunction = d.rng.choice(["because", "although"])
        clause = extended(clause, subordinate(conjunction, d.simple_clause(tenses=("past",), timed=0)))
    return clause


def long_sentence(d: Derivation) -> Sentence:
    """Three or four main clauses, some with a subordinate clause."""
    clauses = [past_clause(d) for _ in range(d.rng.choice([3, 3, 4]))]
    return join(clauses, [d.rng.choice(["and", "and", "but"]) for _ in clauses[1:]])


def joined_subjects(d: Derivation) -> Sentence:
    """The man and the woman: a plural subject."""
    frame = d.rng.choice(["transitive", "intransitive", "position", "motion"])
    verb = d.choose_verb(frame, d.proper_name("Anna"))
    first = d.subject(d.lexicon.classes["person"], plain=True)
    second = d.subject(d.lexicon.classes["person"], plain=True)
    assert first.head is not None and second.head is not None
    if first.head.word == second.head.word:
        return joined_subjects(d)
    node = leaf("CC", "and")
    both = phrase("NP", first.english, node, second.english)
    german = [*first.german, Token("und", (node,)), *second.german]
    subject = Phrase(both, german, agreement=Agreement(3, True), head=second.head)
    return statement(d.any_clause(subject, verb))


def join(clauses: Sequence[Clause], conjunctions: Sequence[str]) -> Sentence:
    """Main clauses in a row. English has a comma before "and"; German only before "aber"."""
    children: list[Node] = [clauses[0].english_statement()]
    german = clauses[0].german_statement()
    for conjunction, clause in zip(conjunctions, clauses[1:], strict=True):
        comma, node = leaf(",", ","), leaf("CC", conjunction)
        children += [comma, node, clause.english_statement()]
        if conjunction == "but":
            german.append(Token(",", (comma,)))
        german += [Token(CONJUNCTIONS[conjunction], (node,)), *clause.german_statement()]
    return end(phrase("S", *children), german)


# --- pronouns --------------------------------------------------------------------------------------------------------


class PronounPlan(NamedTuple):
    """Everything that a pronoun sentence says; two plans that differ in the adjective make a minimal pair."""

    subject: str
    object: str
    verb: str  # an entry of the pattern: "- fit into: in + acc"
    tense: str
    adjective: str
    of_subject: bool  # does "it" mean the subject?


def pronoun_sentence(d: Derivation, plan: PronounPlan) -> Sentence:
    """The animal did not cross the street because it was too tired / too wide."""
    polarity, rest = plan.verb.split(" ", 1)
    name = re.split(" (?:into|through): ", rest)[0]
    verb = next(table[name] for table in d.lexicon.verbs.values() if name in table)
    subject = d.noun_phrase(plan.subject)
    d.links.add((plan.subject, plan.object))
    if rest != name:
        english, german, case = read_preposition(rest.removeprefix(name + " "))
        target = d.noun_phrase(plan.object, case)
        part = d.prepositional_phrase(english, german, target, "direction")
    else:
        part = target = d.noun_phrase(plan.object, "acc")
    main = d.polar_clause(subject, verb, plan.tense, part, polarity)
    antecedent, rival = (subject, target) if plan.of_subject else (target, subject)
    return pronoun_reason(d, main, antecedent, plan.adjective, rival)


def pronoun_reason(
    d: Derivation, main: Clause, antecedent: Phrase, adjective: str, rival: Phrase | None, word: str = "it"
) -> Sentence:
    """main because it was too adjective, where "it" means the antecedent."""
    it = one_word("PRP", word, PERSONAL[antecedent.gender])
    tense = "present" if main.tense == "present" else "past"
    sentence = subordinated(main, "because", d.copula(it, tense, adjective, "too" if word == "it" else ""))
    return sentence._replace(pronoun=it.head, antecedent=antecedent.head, rival=rival.head if rival else None)


def random_plan(d: Derivation, pattern: dict[str, Any]) -> PronounPlan:
    subject = d.one_of(pattern["subject"])
    target = d.one_of([name for name in pattern["object"] if name != subject])
    verb = d.one_of(pattern["verbs"])
    can_fail = verb.startswith("-") and " fit " not in verb
    tenses = ("past", "past", "present", "could") if can_fail else ("past", "past", "present")
    of_subject = d.chance(0.5)
    adjective = d.one_of(pattern["of_subject" if of_subject else "of_object"])
    return PronounPlan(subject, target, verb, d.rng.choice(tenses), adjective, of_subject)


def pronoun_choice(d: Derivation) -> Sentence:
    """Two nouns could be meant; the adjective decides."""
    return pronoun_sentence(d, random_plan(d, d.rng.choice(d.lexicon.data["coreference"])))


def pronoun_plain(d: Derivation) -> Sentence:
    """Only one noun can be meant: it for the thing, he or she for the person."""
    if d.chance(0.35):
        grown_up = [name for name in d.lexicon.classes["person"] if d.lexicon.nouns[name].gender != "n"]
        subject = d.person_name() if d.chance(0.4) else d.noun_phrase(d.one_of(grown_up))
        clause = d.simple_clause(("transitive", "intransitive", "position"), ("past",), subject, d.chance(0.4), timed=0)
        rivals = {leaf.word for part in clause.complements for leaf in part.english.leaves()}
        if any(d.is_person(word) or word in ("him", "her", "them", "me", "us") for word in rivals):
            return pronoun_plain(d)
        adjective = d.one_of(["tired", "sick", "hungry", "happy", "sad", "thirsty"])
        return pronoun_reason(d, clause, subject, adjective, None, {"m": "he", "f": "she"}[subject.gender])
    entry = d.lexicon.data["agreement"]
    subject = d.subject(d.lexicon.classes["person"])
    target_name = d.one_of(d.lexicon.expand(entry["object"]))
    polarity, name = d.rng.choice(entry["verbs"]).split()
    target = d.noun_phrase(target_name, "acc")
    d.links.add((name, target_name))
    main = d.polar_clause(subject, d.lexicon.verbs["transitive"][name], "past", target, polarity)
    return pronoun_reason(d, main, target, d.one_of(split(entry["adjectives"])), None)


def simple(*frames: str, **options: Any) -> Callable[[Derivation], Sentence]:
    """A construction that is one simple clause."""
    return lambda d: statement(d.simple_clause(frames, **options))


CONSTRUCTIONS: dict[str, tuple[Callable[[Derivation], Sentence], float]] = {
    "agreement": (agreement, 13),
    "plural": (plural, 5),
    "verb_second": (verb_second, 7),
    "because": (because, 4),
    "although": (although, 2),
    "attitude": (attitude, 5),
    "condition": (condition, 4),
    "relative": (relative, 6),
    "separable": (separable, 4),
    # two-way prepositions: im Park (dative), in den Park (accusative)
    "location": (simple("position", tenses=("present", "past", "progressive", "perfect")), 4),
    "motion": (simple("motion", "placement"), 4),
    "city": (city, 2),
    "number": (number, 9),
    "date": (date, 6),
    "giving": (simple("ditransitive", timed=0.1), 4),  # two objects: dative before accusative
    # nicht and kein
    "negation": (simple(*3 * ["transitive"], "intransitive", "dative", "prepositional", "position", negated=True), 4),
    "question": (question, 4),
    "who_question": (who_question, 4),
    "passive": (passive, 4),
    "coordination": (coordination, 4),
    "pronoun_choice": (pronoun_choice, 21),
    "pronoun_plain": (pronoun_plain, 5),
    "long": (long_sentence, 0),  # of test_long alone
}


# --- from a derivation to an example ---------------------------------------------------------------------------------


def realise(construction: str, sentence: Sentence, pair: int | None = None) -> Example:
    """Number the words of both sides, write them as text, and turn identities into indices."""
    leaves = sentence.english.leaves()
    leaves[0].word = leaves[0].word[0].upper() + leaves[0].word[1:]
    german = without_double_punctuation(sentence.german)
    position = {node: index for index, node in enumerate(leaves)}
    alignment = sorted([position[node], index] for index, token in enumerate(german) for node in token.of)
    coreference: dict[str, Any] | None = None
    if sentence.pronoun is not None and sentence.antecedent is not None:
        target = next(index for index, token in enumerate(german) if sentence.pronoun in token.of)
        coreference = {
            "pronoun": position[sentence.pronoun],
            "antecedent": position[sentence.antecedent],
            "rival": None if sentence.rival is None else position[sentence.rival],
            "target_pronoun": target,
            "expected": german[target].text,
        } | ({} if pair is None else {"pair": pair})
    source = as_text(node.word for node in leaves)
    target_text = as_text(token.text for token in german)
    return Example(source, target_text, construction, sentence.english.bracketing(), alignment, coreference)


def without_double_punctuation(tokens: list[Token]) -> list[Token]:
    """A clause closes with a comma of its own, unless another mark, or the conjunction "und", does it."""
    kept: list[Token] = []
    for token in tokens:
        if kept and kept[-1].text == "," and re.fullmatch(r"\W", token.text):
            kept.pop()
        kept.append(token)
    return kept


# --- the corpus ------------------------------------------------------------------------------------------------------


class HeldOut(NamedTuple):
    """Word pairs that training, validation and test sentences do not contain.

    nouns  (subject, object) of a pronoun sentence -> the number of the pattern
    links  (adjective, noun) and (verb, object): never both in one sentence
    """

    nouns: dict[tuple[str, str], int]
    links: list[tuple[str, str]]

    def excludes(self, d: Derivation) -> bool:
        return not self.nouns.keys().isdisjoint(d.links) or any(d.lemmas.issuperset(pair) for pair in self.links)


def hold_out(lexicon: Lexicon, rng: random.Random) -> HeldOut:
    """Choose the noun pairs of test_coreference and the word pairs of test_compositional.

    The nouns of a pair differ in German gender. A word is in one compositional pair at most, so it stays frequent.
    """
    noun_pairs = [
        ((subject, target), number)
        for number, pattern in enumerate(lexicon.data["coreference"])
        for subject, target in product(pattern["subject"], pattern["object"])
        if lexicon.nouns[subject].gender != lexicon.nouns[target].gender
    ]
    rng.shuffle(noun_pairs)
    nouns = dict(islice(dict(noun_pairs).items(), NOUN_PAIRS))
    in_use = Counter(noun for names in lexicon.modifiers.values() for noun in names)
    links = [(adjective, noun) for noun, adjectives in lexicon.modifiers.items() for adjective in adjectives]
    links = [(adjective, noun) for adjective, noun in links if in_use[adjective] >= 12]
    rng.shuffle(links)
    homonyms = Counter(verb.english["VB"] for table in lexicon.verbs.values() for verb in table.values())
    homonyms.update(list(lexicon.data["auxiliaries"]))
    transitive = lexicon.verbs["transitive"].values()
    verbs = [verb for verb in transitive if len(verb.objects) >= 8 and homonyms[verb.english["VB"]] == 1]
    verb_links = [(verb.name, noun) for verb in verbs for noun in verb.objects if noun not in verb.subjects]
    rng.shuffle(verb_links)
    kept: list[tuple[str, str]] = []
    for candidates, count in ((links, 28), (verb_links, 22)):
        enough = len(kept) + count
        for pair in candidates:
            if len(kept) < enough and not set(pair) & set(chain.from_iterable(kept)):
                kept.append(pair)
    return HeldOut(nouns, kept)


class Corpus:
    """Collects examples; refuses what occurred before, on either side, and words that training hardly knows."""

    def __init__(self, lexicon: Lexicon, rng: random.Random, held_out: HeldOut):
        self.lexicon, self.rng, self.held_out = lexicon, rng, held_out
        self.numerals = numerals(lexicon)
        self.sources: set[str] = set()
        self.targets: set[str] = set()
        self.known: set[str] = set()  # the word forms of the ordinary sentences, once these are chosen

    def add(self, examples: list[Example], example: Example, longest: int, shortest: int = MIN_WORDS) -> None:
        sides = words(example.source), words(example.target)
        fits = all(shortest <= len(side) <= longest for side in sides)
        new = example.source not in self.sources and example.target not in self.targets
        if fits and new and (not self.known or self.forms(*sides) <= self.known):
            self.sources.add(example.source)
            self.targets.add(example.target)
            examples.append(example)

    def forms(self, english: Iterable[str], german: Iterable[str]) -> set[str]:
        """The words of both sides, the German ones marked; number words apart, which are made of parts."""
        return (set(english) - self.numerals) | {"de " + word for word in set(german) - self.numerals}

    def ordinary(self, count: int) -> list[Example]:
        """Sentences of all constructions without the held-out pairs, and without rare word forms."""
        names = list(CONSTRUCTIONS)
        weights = list(accumulate(weight for _, weight in CONSTRUCTIONS.values()))
        examples = self.drawn(count * SURPLUS, lambda: self.rng.choices(names, cum_weights=weights)[0], MAX_WORDS)
        forms = {example.source: self.forms(words(example.source), words(example.target)) for example in examples}
        examples = without_rare_forms(examples, forms)[:count]
        if len(examples) < count:
            raise ValueError(f"only {len(examples)} of {count} sentences are left without rare words; raise SURPLUS")
        self.known = set().union(*(forms[example.source] for example in examples))
        return examples

    def coreference(self, count: int) -> list[Example]:
        """Minimal pairs: for a held-out noun pair, two sentences that differ in the adjective."""
        examples: list[Example] = []
        for (subject, target), number in self.held_out.nouns.items():
            pattern = self.lexicon.data["coreference"][number]
            plan = random_plan(Derivation(self.lexicon, self.rng), pattern)._replace(subject=subject, object=target)
            members: list[Example] = []
            for of_subject in (True, False):
                adjective = self.rng.choice(pattern["of_subject" if of_subject else "of_object"])
                member = plan._replace(adjective=adjective, of_subject=of_subject)
                sentence = pronoun_sentence(Derivation(self.lexicon, self.rng), member)
                self.add(members, realise("pronoun_choice", sentence, len(examples) // 2), MAX_WORDS)
            if len(members) == 2 and len(examples) < count:
                examples += members
        return examples

    def compositional(self, count: int) -> list[Example]:
        """About the same number of sentences with each of the held-out pairs, which take turns."""
        examples: list[Example] = []
        found: Counter[tuple[str, str]] = Counter()
        for link in cycle(self.held_out.links):
            if len(examples) == count:
                break
            derivation = Derivation(self.lexicon, self.rng, link)
            name = self.rng.choice(["agreement", "verb_second", "question", "negation", "passive"])
            sentence = CONSTRUCTIONS[name][0](derivation)
            before = len(examples)
            if link in derivation.links and found[link] < 1.3 * count / len(self.held_out.links):
                self.add(examples, realise(name, sentence), MAX_WORDS)
            found[link] += len(examples) - before
        return examples

    def drawn(self, count: float, draw: Callable[[], str], longest: int, shortest: int = MIN_WORDS) -> list[Example]:
        """So many sentences, each of the construction that `draw` names, without the held-out pairs."""
        examples: list[Example] = []
        while len(examples) < count:
            name, derivation = draw(), Derivation(self.lexicon, self.rng)
            sentence = CONSTRUCTIONS[name][0](derivation)
            if not self.held_out.excludes(derivation):
                self.add(examples, realise(name, sentence), longest, shortest)
        return examples


def without_rare_forms(examples: list[Example], forms: dict[str, set[str]]) -> list[Example]:
    """Drop sentences with a word form seen fewer than MIN_COUNT times, until no such form is left.

    forms  the word forms of an example, by its source
    """
    counts = Counter(chain.from_iterable(forms.values()))
    while True:
        rare = {form for form, count in counts.items() if count < MIN_COUNT}
        kept: list[Example] = []
        dropped: list[Example] = []
        for example in examples:
            (kept if rare.isdisjoint(forms[example.source]) else dropped).append(example)
        if not dropped:
            return kept
        counts.subtract(chain.from_iterable(forms[example.source] for example in dropped))
        examples = kept


@cache
def generate(seed: int = SEED) -> dict[str, list[Example]]:
    """All splits, from one seed: the same seed gives the same corpus on every machine."""
    lexicon = read_lexicon()
    rng = random.Random(seed)
    held_out = hold_out(lexicon, rng)
    corpus = Corpus(lexicon, rng, held_out)
    ordinary = iter(corpus.ordinary(SIZES["train"] + SIZES["val"] + SIZES["test"]))
    return {split: list(islice(ordinary, SIZES[split])) for split in ("train", "val", "test")} | {
        "test_coreference": corpus.coreference(SIZES["test_coreference"]),
        "test_compositional": corpus.compositional(SIZES["test_compositional"]),
        "test_long": corpus.drawn(SIZES["test_long"], lambda: "long", MAX_WORDS_LONG, MAX_WORDS + 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Derive the bundled corpus and write it as text.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    print("\n".join(write_corpus(parser.parse_args().out, generate())))


if __name__ == "__main__":
    main()
