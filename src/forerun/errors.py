"""What forerun raises.

ForerunError
 +- UnsupportedModel (also ValueError)   the model keeps state or uses attention that forerun can't run exactly
 +- UnsupportedOption (also ValueError)  an option, or a combination, that would have to be ignored or guessed
 +- ModelNotFound (also ValueError)      no such file, directory, hub name or bundled model
 +- InvalidModelFile (also ValueError)   a model's file that is corrupt or truncated
 +- InvalidLogits (also ValueError)      a row of logits that is no law: NaN, or nothing allowed
"""

from __future__ import annotations


class ForerunError(Exception):
    """Anything that forerun refuses, in one clear sentence."""


class UnsupportedModel(ForerunError, ValueError):
    """The model can't be run exactly; the message names what stands in the way."""


class UnsupportedOption(ForerunError, ValueError):
    """An option or a combination of options that has no exact meaning here."""


class ModelNotFound(ForerunError, ValueError):
    """No model under this name."""


class InvalidModelFile(ForerunError, ValueError):
    """A file that says it holds a model and can't be read as one."""


class InvalidLogits(ForerunError, ValueError):
    """A row of logits from which no token can be drawn."""
