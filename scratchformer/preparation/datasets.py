"""Download the corpora of the paper, which are not part of this library, from their public sites.

`DATASETS` lists the files of each data set; `fetch` downloads and unpacks them into plain text.

Sources: Multi30k (Elliott et al. 2016), task 1; WMT 2014 English-French; WMT 2014 English-German with the news
commentary of 2016 (v11), because the paper's own data set contains it (google/seq2seq, wmt16_en_de.sh).
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from scratchformer.files import locked, make_directory
from scratchformer.preparation.download import RemoteFile, Tell, download, text_of_sgml, unpack
from scratchformer.text.corpora import CorpusFiles, ParallelFiles


class TextFile(NamedTuple):
    """A text of a data set: a member of the archive `origin`, or without a member the downloaded file itself."""

    origin: RemoteFile
    member: str = ""

    def path(self, directory: Path) -> Path:
        """The place where `fetch` puts the text."""
        if not self.member:
            return directory / "downloads" / self.origin.name
        return directory / "unpacked" / self.member.removesuffix(".sgm")


class ParallelText(NamedTuple):
    """Two texts that `fetch` turns into `ParallelFiles`."""

    source: TextFile
    target: TextFile

    def files(self, directory: Path) -> ParallelFiles:
        """The two files into which `fetch` puts the texts."""
        return ParallelFiles(self.source.path(directory), self.target.path(directory))


@dataclass(frozen=True)
class Dataset:
    """A public parallel corpus; `vocab_size` is the paper's or, for Multi30k, a usual choice."""

    source_language: str
    target_language: str
    vocab_size: int
    licence: str
    home_page: str
    train: tuple[ParallelText, ...]
    val: ParallelText
    test: ParallelText


def fetch(dataset: Dataset, directory: Path, mirror: str = "", tell: Tell = print) -> CorpusFiles:
    """Download a data set into directory/downloads, unpack it into directory/unpacked, and return its text files.

    Existing files are neither downloaded nor unpacked again; an archive may be deleted once it is unpacked. Calling it
    again resumes where it stopped.

    mirror  a base URL that replaces scheme and host of every file; "" for the public sites
    tell    is called with the licence notice first, and with a line before each repeated attempt
    """
    tell(f"{dataset.licence} See {dataset.home_page}")
    downloads, unpacked = directory / "downloads", directory / "unpacked"
    make_directory(downloads)
    with locked(downloads, "another process is downloading into this directory"):
        missing: dict[RemoteFile, list[TextFile]] = defaultdict(list)
        for text in chain(*dataset.train, dataset.val, dataset.test):
            if not text.member or not text.path(directory).exists():
                missing[text.origin].append(text)
        for origin, texts in missing.items():
            archive = download(origin, downloads, mirror, tell)
            if members := [text.member for text in texts if text.member]:
                unpack(archive, members, unpacked)
            for text in texts:
                if text.member.endswith(".sgm"):
                    text_of_sgml(unpacked / text.member, text.path(directory))
    train = [pair.files(directory) for pair in dataset.train]
    return CorpusFiles(train, dataset.val.files(directory), dataset.test.files(directory))


# The data sets --------------------------------------------------------------------------------------------------------


def members(origin: RemoteFile, stem: str, source: str, target: str, suffix: str = "") -> ParallelText:
    """Two members whose names end in their language."""
    return ParallelText(TextFile(origin, f"{stem}.{source}{suffix}"), TextFile(origin, f"{stem}.{target}{suffix}"))


CHECKSUMS = {
    "training-parallel-europarl-v7.tgz": "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    "training-parallel-commoncrawl.tgz": "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    "training-parallel-nc-v9.tgz": "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    "training-parallel-nc-v11.tgz": "sha256:cfe8ab047e05043476e498ee765c98e939c7b7d6d294e856344c84476b619d6a",
    "training-parallel-un.tgz": "sha256:29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    "training-giga-fren.tar": "sha256:3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    "test.tgz": "md5:48eca5d02f637af44e85186847141f67",
    "test-full.tgz": "md5:a8cd784e006feb32ac6f3d9ec7eb389a",
    "train.en.gz": "sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "sha256:611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "sha256:9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}
"""Name of a file -> its checksum; those of Multi30k are named by split and language."""


def remote(url: str) -> RemoteFile:
    return RemoteFile(url, CHECKSUMS[url.rpartition("/")[2]])


EUROPARL = remote("https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz")
COMMON_CRAWL = remote("https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz")
NEWS_COMMENTARY_9 = remote("https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz")
NEWS_COMMENTARY_11 = remote("https://data.statmt.org/wmt16/translation-task/training-parallel-nc-v11.tgz")
UNITED_NATIONS = remote("https://www.statmt.org/wmt13/training-parallel-un.tgz")
GIGA = remote("https://www.statmt.org/wmt10/training-giga-fren.tar")
NEWSTEST_2013 = remote("https://statmt.org/wmt13/test.tgz")
NEWSTEST_2014 = remote("https://statmt.org/wmt14/test-full.tgz")
"""All 3003 lines, as in the paper; "test-filtered" has 2737 of them."""


def newstest_2013(source: str, target: str) -> ParallelText:
    return members(NEWSTEST_2013, "test/newstest2013-src", source, target, ".sgm")


def newstest_2014(other: str) -> ParallelText:
    """English to another language."""
    stem = f"test-full/newstest2014-{other}en"
    return ParallelText(
        TextFile(NEWSTEST_2014, f"{stem}-src.en.sgm"), TextFile(NEWSTEST_2014, f"{stem}-ref.{other}.sgm")
    )


WMT14_LICENCE = (
    "The corpora of WMT 2014 are free to use for research; please cite the findings of the workshop "
    "(Bojar et al. 2014), and what the individual corpora ask for."
)
NEWS_COMMENTARY_11_LICENCE = "Its news commentary (v11) comes from WMT 2016; for that, please cite Bojar et al. 2016."
WMT14_HOME_PAGE = "https://www.statmt.org/wmt14/translation-task.html"

MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"


def multi30k(split: str) -> ParallelText:
    return ParallelText(*(TextFile(remote(f"{MULTI30K}/{split}.{language}.gz")) for language in ("en", "de")))


DATASETS = {
    "multi30k": Dataset(
        "en",
        "de",
        vocab_size=6000,
        licence="Multi30k has no licence file; its README asks for use in research and education, not in "
        "commerce, and for a citation: Elliott et al. (2016), Multi30K: Multilingual English-German Image "
        "Descriptions.",
        home_page="https://github.com/multi30k/dataset",
        train=(multi30k("train"),),
        val=multi30k("val"),
        test=multi30k("test_2016_flickr"),
    ),
    "wmt14-en-de": Dataset(
        "en",
        "de",
        vocab_size=37000,
        licence=f"{WMT14_LICENCE} {NEWS_COMMENTARY_11_LICENCE}",
        home_page=WMT14_HOME_PAGE,
        train=(
            members(EUROPARL, "training/europarl-v7.de-en", "en", "de"),
            members(COMMON_CRAWL, "commoncrawl.de-en", "en", "de"),
            members(NEWS_COMMENTARY_11, "training-parallel-nc-v11/news-commentary-v11.de-en", "en", "de"),
        ),
        val=newstest_2013("en", "de"),
        test=newstest_2014("de"),
    ),
    "wmt14-en-fr": Dataset(
        "en",
        "fr",
        vocab_size=32000,
        licence=WMT14_LICENCE,
        home_page=WMT14_HOME_PAGE,
        train=(
            members(EUROPARL, "training/europarl-v7.fr-en", "en", "fr"),
            members(COMMON_CRAWL, "commoncrawl.fr-en", "en", "fr"),
            members(UNITED_NATIONS, "un/undoc.2000.fr-en", "en", "fr"),
            members(NEWS_COMMENTARY_9, "training/news-commentary-v9.fr-en", "en", "fr"),
            members(GIGA, "giga-fren.release2.fixed", "en", "fr", ".gz"),
        ),
        val=newstest_2013("en", "fr"),
        test=newstest_2014("fr"),
    ),
}
"""The data sets by name."""
