"""Download NLTK's sample of the Penn Treebank, and prepare its trees for the parser (paper §6.3).

The paper trains on the 40,000 sentences of the Wall Street Journal in the Penn Treebank, which needs a licence. NLTK
distributes a tenth of it for non-commercial use: 199 articles, about 3,900 sentences. `prepare_treebank` writes

    train.trees, val.trees, test.trees    one tree on each line, cleaned (`text.trees.cleaned`)

The articles 1 to 159 are for training, 160 to 179 for validation, and 180 to 199 are the test set.
"""

import zipfile
from pathlib import Path

from scratchformer.files import locked, make_directory, write_new_texts
from scratchformer.preparation.download import RemoteFile, Tell, download
from scratchformer.text.corpora import decode_lines
from scratchformer.text.trees import cleaned, parsed_trees

ARCHIVE = RemoteFile(
    "https://raw.githubusercontent.com/nltk/nltk_data/005569f5d91002697c5dfd5bced624209af0b3bb/packages/corpora/"
    "treebank.zip",
    "md5:78c24a97940c2504d0ad35dd3f8a560b",
)
"""The checksum is that of index.xml in the same commit."""

NOTICE = (
    "The sample of the Penn Treebank is (C) 1995 University of Pennsylvania. NLTK distributes it for examples, "
    "for non-commercial use only: use it for research, and do not pass it on. See https://www.nltk.org/nltk_data/"
)
ARTICLES = {"train": range(1, 160), "val": range(160, 180), "test": range(180, 200)}


def prepare_treebank(out: Path, mirror: str, tell: Tell) -> list[str]:
    """Download the archive into out/downloads, unless it is there, and write the files -> a line about each split

    mirror  a base URL that replaces scheme and host; "" for the public site
    tell    is called with the notice first, and with a line before each repeated attempt

    Files with other content are not overwritten. The same command may be run again.
    """
    tell(NOTICE)
    downloads = out / "downloads"
    make_directory(downloads)
    with locked(downloads, "another process is downloading into this directory"):
        archive = download(ARCHIVE, downloads, mirror, tell)
    texts, summary = {}, []
    with zipfile.ZipFile(archive) as file:
        for split, numbers in ARTICLES.items():
            names = [f"treebank/combined/wsj_{number:04}.mrg" for number in numbers]
            articles = [(archive / name, decode_lines(file.read(name), archive / name)) for name in names]
            raw = [tree for path, lines in articles for tree in parsed_trees(lines, str(path))]
            trees = [tree for tree in map(cleaned, raw) if tree]
            texts[out / f"{split}.trees"] = "".join(f"{tree}\n" for tree in trees)
            summary.append(f"{split}: {len(trees):,} trees, {sum(len(tree.words) for tree in trees):,} words")
    write_new_texts(texts)
    return summary
