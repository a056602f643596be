import pytest
from local_server import LocalServer

from scratchformer.preparation import download


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the files in tmp_path / "server"; downloads try again without a pause, at most three times."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(download, "PAUSES_SECONDS", (0.0,) * 3)
    (tmp_path / "server").mkdir()
    with LocalServer(tmp_path / "server") as server:
        yield server
