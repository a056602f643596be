from scratchformer.experiments.markdown import table


def test_a_table():
    found = table(["name", "a|b"], [("x|y", 1), ["`c|d`", None]])
    assert found.splitlines() == ["| name | a\\|b |", "| --- | --- |", "| x\\|y | 1 |", "| `c\\|d` | None |"]
