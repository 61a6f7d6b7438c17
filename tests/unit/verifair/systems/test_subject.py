"""What a question is about, as it is read from files."""

import shlex
import shutil
from pathlib import Path

from verifair import datasets
from verifair.systems import subject
from verifair.systems.settings import Inputs


def test_files_with_spaces_are_quoted_in_the_options_of_a_check(tmp_path: Path) -> None:
    model, schema = tmp_path / "my model.onnx", tmp_path / "my schema.toml"
    shutil.copy(datasets.network_path("german"), model)
    datasets.german().schema.save(schema)
    found = subject.read(Inputs(model=model, schema_file=schema))
    assert shlex.split(found.options) == ["--model", str(model), "--schema", str(schema)]
