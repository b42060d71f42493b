"""How often a served agent's process looks for garbage."""

import gc

import pytest

from agent.steps import leave
from coupler.agent.startup.loading import GC_GROWTH, GC_THRESHOLD, gc_paused
from raw_client import serve, texts

APP = """
    import gc
    import fractions  # a package that a later start imports in a thread

    {setting}
    left_alone = gc.get_freeze_count()

    async def agent(turn):
        is_left_alone = gc.get_freeze_count() > left_alone
        await turn.say(f"{{gc.get_threshold()[0]}} {{is_left_alone}} {{gc.isenabled()}}")
"""


def told_by(path, directory):
    with serve(path, cwd=directory) as client:
        client.initialize()
        told = texts(client.prompt(client.new_session())[0])
        leave(client)
    return told


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("gc.set_threshold(50_000)", "50000 False True"),
        ("gc.set_threshold(0)", "0 False True"),
        ("gc.disable()", f"{gc.get_threshold()[0]} False False"),
    ],
    ids=["even less often", "never", "turned off"],
)
def test_what_the_author_has_set_stays(app, tmp_path, setting, told):
    path = app(APP.format(setting=setting))

    assert [told_by(path, tmp_path), told_by(path, tmp_path)] == [told, told]


@pytest.mark.parametrize("objects", [0, 300_000])
def test_garbage_is_looked_for_less_often_and_the_less_the_heavier_a_target_is(app, tmp_path, objects):
    path = app(APP.format(setting=f"heavy = [[] for _ in range({objects})]"))

    for _ in range(2):
        threshold, *rest = told_by(path, tmp_path).split()
        assert int(threshold) >= max(GC_THRESHOLD, GC_GROWTH * objects)
        assert rest == ["True", "True"]


@pytest.mark.parametrize("turn", [gc.enable, gc.disable])
def test_nothing_is_looked_for_while_importing_and_afterwards_as_before(turn):
    turn()
    try:
        before = gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == before
    finally:
        gc.enable()
