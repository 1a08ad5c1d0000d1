"""Tuning of other engines: their own knobs, judged as forerun's drafters are, on answers of servers at several loads."""
