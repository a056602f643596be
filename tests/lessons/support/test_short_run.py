"""The run that lesson 19 trains."""

from support.short_run import ShortRun


def test_a_run_stops_where_it_is_told_to():
    run = ShortRun()
    run.train_until(2)
    run.train_until(3)
    assert [entry["step"] for entry in run.log] == [1, 2, 3] and len(run.validations) == 1
    entry, lengths = run.log[-1], run.trainer.data.train.lengths
    assert entry["pairs"] == len(entry["indices"]) and entry["longest"] == lengths[entry["indices"]].max()
    assert entry["target_tokens"] == run.trainer.data.train.target.lengths[entry["indices"]].sum()
    run.close()
    assert not run.trainer.run.path.exists()
