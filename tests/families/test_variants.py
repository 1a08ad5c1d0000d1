"""What a family's configuration can ask for beside its defaults."""

from __future__ import annotations

import pytest

from forerun.families.small import WINDOW, small_config
from forerun.families.variants import ROPES, variants


def test_every_switch_is_turned_once() -> None:
    found = variants("stablelm")
    assert found["qk_layernorm=True"] == {"qk_layernorm": True}
    assert found["use_parallel_residual=True"] == {"use_parallel_residual": True}
    assert not {name for name in found if name.startswith(("use_cache", "is_decoder", "output_"))}


def test_windows_and_soft_caps_are_asked_for_where_a_family_knows_them() -> None:
    assert variants("qwen2")[f"sliding_window={WINDOW}"] == {"sliding_window": WINDOW}
    assert "windows in half of the layers" in variants("qwen2")
    assert "attn_logit_softcapping=0.5" in variants("gemma3_text")
    assert not {name for name in variants("llama") if "window" in name or "softcap" in name}


@pytest.mark.parametrize("kind", ROPES)
def test_every_rotary_scaling_makes_a_configuration(kind: str) -> None:
    for family in ("llama", "gemma3_text"):
        changes = variants(family)[f"rope_type={kind}"]
        ropes = small_config(family, changes).rope_parameters
        kinds = {one["rope_type"] for one in ([ropes] if "rope_type" in ropes else ropes.values())}
        assert kinds == {kind}


def test_longrope_has_a_factor_for_each_rotated_pair() -> None:
    rope = small_config("phi3", variants("phi3")["rope_type=longrope"]).rope_parameters
    assert len(rope["long_factor"]) == len(rope["short_factor"]) == 4


def test_sizes_are_found_under_a_familys_own_names() -> None:
    assert "rope_type=longrope" in variants("dbrx") or "rope_parameters" not in small_config("dbrx").to_dict()


def test_a_family_without_rotary_positions_has_no_scalings() -> None:
    assert not {name for name in variants("gpt2") if name.startswith("rope")}
