"""The explorer's page of weights that lessons/transformer.py has saved computes what that file computes."""

import base64
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import transformer

from exercises.own_page import describe, write_page
from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.explorer.page import WEB
from scratchformer.nn.transformer import Transformer

SENTENCES = (transformer.CORPUS / "test.en").read_text("utf-8").splitlines()[:5]
TEXTS = [
    "The dog, the cat: a well-known  pair?!",
    "",
    "\u2581\tüber_all 3½ e\u0301 日本 😀😀 don't",
    ", a -b- </s> <pad>",
    "a ; b . c",
]

# Arguments: the page, and a list of texts -> for each text its ids, their text, and its translation; or why it has none
ENGINE = f"""
import fs from "node:fs";
import {{ translate }} from "{(WEB / 'engine/beam.js').as_uri()}";
import {{ Model }} from "{(WEB / 'engine/model.js').as_uri()}";
import {{ tokenizerOf }} from "{(WEB / 'engine/tokenizer.js').as_uri()}";
import {{ readWeights }} from "{(WEB / 'main.js').as_uri()}";
const html = fs.readFileSync(process.argv[1], "utf-8");
const textOf = (id) => html.match(new RegExp(`id="${{id}}">([^<]*)<`))[1];
const data = JSON.parse(textOf("description"));
const [model, tokenizer] = [new Model(data, readWeights(textOf("weights"))), tokenizerOf(data.tokenizer)];
const answers = [];
for (const text of JSON.parse(process.argv[2])) {{
  try {{
    const ids = tokenizer.encode(text);
    answers.push([ids, tokenizer.decode(ids), (await translate(model, tokenizer, text)).text]);
  }} catch (error) {{
    answers.push(error.message);
  }}
}}
console.log(JSON.stringify(answers));
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return the path at which the file of the course saves its weights."""
    monkeypatch.setattr(transformer, "WEIGHTS", tmp_path / "transformer.npz")
    monkeypatch.setattr(transformer, "rng", np.random.default_rng(0))
    return tmp_path / "transformer.npz"


def save_random(file, words, /, **changes):
    """Save random weights, with some arrays replaced or, by None, left out -> the model before these changes"""
    model, noise = transformer.new_model(len(words), d_model=16, d_ff=24, h=2, N=2), np.random.default_rng(1)
    for w in model.weights.values():
        w.data += noise.normal(0, 0.4, w.data.shape).astype("float32")
    arrays = {"words": words, **{name: w.data for name, w in model.weights.items()}, **changes}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return model


def vocabulary(*texts):
    return ["<pad>", "</s>", "<s>", *sorted({word for text in texts for word in transformer.words_in(text)})]


def engine(page, texts):
    """Return the answers of the page's engine to some texts."""
    node = shutil.which("node") or pytest.skip("node is missing, which runs the page's engine")
    command = [node, "--input-type=module", "--eval", ENGINE, page, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_s_weights_give_the_library_the_file_s_logits(file):
    model, page = save_random(file, vocabulary("a b c d e f g h .")), file.with_name("page.html")
    write_page(file, page)
    html = page.read_text(encoding="utf-8")
    description = json.loads(re.search('id="description">([^<]*)<', html)[1])
    assert description["code"]["linear"].startswith("def linear(")
    numbers = np.frombuffer(base64.b64decode(re.search('id="weights">([^<]*)<', html)[1]), "<f4")
    library = Transformer(ModelConfig(**description["config"]))
    parameters = {each["name"]: each for each in description["parameters"]}
    assert parameters.keys() == library.parameters().keys()
    for name, parameter in library.parameters().items():
        assert parameters[name]["shape"] == list(parameter.shape)
        offset = parameters[name]["offset"]
        parameter.data[...] = numbers[offset : offset + parameter.data.size].reshape(parameter.shape)
    source, target = np.array([[3, 4, 5, 6, 1], [7, 3, 1, 0, 0]]), np.array([[2, 9, 4, 9], [2, 8, 5, 3]])
    memory, _ = transformer.encode(source, model, 0.0)
    x, _ = transformer.decode(target, memory, source, model, 0.0)
    np.testing.assert_allclose(library.forward(source, target)[0], x @ model.E.data.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trained", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_page_translates_as_the_file_does(file, capsys, trained):
    if trained:
        transformer.train(steps=300)
    else:
        save_random(file, vocabulary((transformer.CORPUS / "train.en").read_text("utf-8"), "ein Hund !"))
    write_page(file, file.with_name("page.html"))
    capsys.readouterr()
    for sentence in SENTENCES:
        transformer.translate(sentence)
    expected = [line.split(" -> ")[1] for line in capsys.readouterr().out.splitlines()]
    found = [translation for _, _, translation in engine(file.with_name("page.html"), SENTENCES)]
    assert found == expected and len({*found}) > 1


def test_texts_become_the_file_s_words_and_unknown_ones_are_told(file):
    words = vocabulary(*TEXTS)
    save_random(file, words)
    write_page(file, file.with_name("page.html"))
    *known, unknown, other_case = engine(file.with_name("page.html"), [*TEXTS, "The zebra, a gnu.", "Dog"])
    for text, (ids, back, _) in zip(TEXTS, known, strict=True):
        assert [words[i] for i in ids] == transformer.words_in(text)
        assert back == re.sub(" (?=[.,?!])", "", " ".join(transformer.words_in(text)))
    rest = ", and the model reads only the words of that text, spelled as there."
    assert unknown == f"The training text has no “zebra”, “gnu”{rest}"
    assert other_case == f"The training text has no “Dog”{rest}"


def test_the_examples_are_sentences_whose_words_are_known(file):
    save_random(file, vocabulary((transformer.CORPUS / "train.en").read_text("utf-8")))
    description, _ = describe(file)
    assert len(description["examples"]) == 12 and "The dog ate the apple." in description["examples"]
    assert "tired" in description["words"] and not {"<s>", "."} & {*description["words"]}
    save_random(file, vocabulary("le chat dort"))
    assert describe(file)[0]["examples"] == ["chat", "dort"]


W_Q = "encoder.0.attention.W_Q"


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"words": None}, "has no vocabulary, an array `words` that begins with <pad>, </s>, <s>; "),
        ({"words": ["a", "b", "c", "d", "e", "f"]}, "has no vocabulary, "),
        ({"words": vocabulary("a b")}, r"its arrays do not fit: words is \(5,\), expected \(6,\); "),
        ({"E": None}, "has no weights E with 2 axes: not of transformer.py; "),
        ({W_Q: np.ones((16, 16))}, f"has no weights {W_Q} with 3 axes: not of transformer.py; "),
        (
            {W_Q: np.ones((16, 4, 8))},
            r"its arrays do not fit: encoder.0.attention.W_K is \(16, 2, 8\), expected \(16, 4, 8\); ",
        ),
        ({"decoder.1.ffn.b_2": np.ones(3)}, r"its arrays do not fit: decoder.1.ffn.b_2 is \(3,\), expected \(16,\); "),
        (
            {"decoder.1.cross.W_O": None},
            r"its arrays do not fit: decoder.1.cross.W_O is missing, expected \(2, 8, 16\); ",
        ),
        (
            {"decoder.2.ffn.b_2": np.ones(16)},
            r"its arrays do not fit: decoder.2.ffn.b_2 is \(16,\), expected no such array; ",
        ),
        ({"decoder.0.ffn.gamma": np.full(16, np.nan)}, "decoder.0.ffn.gamma has values that are not finite numbers"),
        ({"decoder.0.ffn.beta": np.full(16, 1e300)}, "decoder.0.ffn.beta has values that are not finite numbers"),
        ({"decoder.0.ffn.beta": ["a"] * 16}, "decoder.0.ffn.beta has values that are not finite numbers"),
    ],
    ids=lambda value: str([*value]) if isinstance(value, dict) else "",
)
def test_weights_that_do_not_fit_are_refused(file, changes, complaint):
    save_random(file, vocabulary("a b c"), **changes)
    require_refused(file, complaint)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x80\x04."])
def test_another_file_is_refused(file, content):
    require_refused(file, "no such file; train your model first, with `scratchformer learn train`")
    file.write_bytes(content)
    require_refused(file, "not a file of weights, or damaged; `scratchformer learn train` writes it anew")


def test_a_damaged_file_a_folder_and_one_array_are_refused(file):
    save_random(file, vocabulary("a b c"))
    file.write_bytes(file.read_bytes()[:-30])
    require_refused(file, "not a file of weights, or damaged")
    np.save(file.with_suffix(".npy"), np.ones(3))
    require_refused(file.with_suffix(".npy"), "not a file of weights, or damaged")
    require_refused(file.parent, "cannot read the weights: Is a directory")


def test_a_model_that_is_too_large_for_a_page_is_refused(file, monkeypatch):
    monkeypatch.setattr("exercises.own_page.MOST_PARAMETERS", 1000)
    save_random(file, vocabulary("a b c"))
    require_refused(file, r"has [\d,]+ weights; the explorer's page takes at most 1,000")


def require_refused(file, complaint):
    with pytest.raises(UserError, match=f"^{re.escape(str(file))}: {complaint}") as refused:
        write_page(file, file.with_name("page.html"))
    assert "\n" not in str(refused.value) and not file.with_name("page.html").exists()
