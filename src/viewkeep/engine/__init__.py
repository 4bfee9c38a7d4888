"""Epochs: what is opened, run and published, by whom, and what becomes of failures.

Law: an epoch is a pure function of the plan, its cut and the state before it. It may run any number
of times, in any process, and only its publication is seen.
"""
