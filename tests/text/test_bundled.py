"""The bundled corpus; tests/tools/test_grammar.py generates it again."""

import pytest

from scratchformer.text.bundled import spoken_pronoun


@pytest.mark.parametrize(
    "translation, pronoun",
    [
        ("Das Tier überquerte die Straße nicht, weil es zu müde war.", "es"),
        ("Weil sie zu breit war, überquerte er es nicht.", "sie"),
        ("Es ging, da er müde war.", "er"),
        ("Es war weil", "es"),
        ("Nichts.", ""),
        ("", ""),
    ],
)
def test_spoken_pronoun(translation, pronoun):
    assert spoken_pronoun(translation) == pronoun
