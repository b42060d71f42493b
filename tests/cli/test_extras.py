"""Parts that are installed on demand."""

import json

import pytest

from coupler.runtime.extras import MissingExtraError, import_extra


def test_what_is_installed_is_given():
    assert import_extra("json", extra="x", feature="X") is json


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.inner", "json.no_such_module"])
def test_what_is_missing_names_the_feature_and_the_command(module):
    with pytest.raises(MissingExtraError) as caught:
        import_extra(module, extra="langchain", feature="The LangChain bridge")

    assert str(caught.value) == 'The LangChain bridge needs more packages: pip install "coupler[langchain]"'
    assert isinstance(caught.value, ImportError)


def test_a_package_that_is_there_but_broken_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import something_else_entirely")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="something_else_entirely") as caught:
        import_extra("broken_extra", extra="x", feature="X")
    assert not isinstance(caught.value, MissingExtraError)


def test_a_name_that_a_package_lacks_is_no_missing_extra(tmp_path, monkeypatch):
    (tmp_path / "old_extra.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ImportError, match="no_such_name") as caught:
        import_extra("old_extra", extra="x", feature="X")
    assert not isinstance(caught.value, MissingExtraError)
