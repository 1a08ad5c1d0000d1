from pathlib import Path

import gguf
import numpy
import pytest

from forerun.bench.gguf_format import gguf_format
from forerun.errors import InvalidModelFile


def test_the_type_of_most_bytes_comes_first(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("norm", numpy.ones(8, numpy.float32))
    quantised = gguf.quants.quantize(numpy.ones((64, 64), numpy.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("matrix", quantised, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()

    assert gguf_format(tmp_path / "m.gguf") == "Q4_0, F32"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"something else than a model"])
def test_a_file_that_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(InvalidModelFile, match=r"m\.gguf can't be read as a GGUF file"):
        gguf_format(tmp_path / "m.gguf")
