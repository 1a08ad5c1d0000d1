"""Choosing drafters, policies and their options: traces, replays, reports."""
