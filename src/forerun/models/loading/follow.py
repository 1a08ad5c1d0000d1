"""Updates a runner if the model object that it was built on changed between two requests."""

from __future__ import annotations

from ...errors import UnsupportedModel
from ..packed.runner import HFRunner, Runner
from .self_check import self_check


def follow(runner: Runner, thoroughly: bool = True) -> None:
    """Bring a runner up to date with its model object, if it has one.

    After a change of a module, hook, attribute, buffer or configuration the runner's copy is made and checked again. After a
    write to weights the runner has a new version. thoroughly: see ChangeDetector.written. Raises UnsupportedModel if the
    changed model can't be run, or no longer has the shape, type or device that the runner's users rely on.
    """
    if not isinstance(runner, HFRunner):
        return
    with runner.lock:
        model = runner.watch.model()
        if model is not None and runner.watch.changed():
            fresh = HFRunner(model, runner.name)
            self_check(fresh, model)
            _check_alike(runner, fresh)
            runner.become(fresh)
        elif runner.watch.written(thoroughly):
            runner.renew()


def check_text_is_not_random(runner: Runner) -> None:
    """Raise UnsupportedModel if the runner's model object is in training mode, with random layers."""
    reason = runner.watch.random() if isinstance(runner, HFRunner) else None
    if reason is not None:
        raise UnsupportedModel(
            f"{runner.name} is in training mode, where {reason} makes its text random; call model.eval() first"
        )


def _check_alike(runner: HFRunner, fresh: HFRunner) -> None:
    for what, before, now in (
        ("layers", runner.num_layers, fresh.num_layers),
        ("tokens in its vocabulary", runner.vocab_size, fresh.vocab_size),
        ("type", runner.dtype, fresh.dtype),
        ("device", runner.device, fresh.device),
    ):
        if before != now:
            raise UnsupportedModel(
                f"{runner.name} has changed since it was loaded ({what}: {now}, before: {before}); load it again"
            )
