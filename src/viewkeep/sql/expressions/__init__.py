"""Scalar expressions: syntax trees to typed expressions in canonical form.

Law: an expression has the type that Spark gives it, and is right or refused; equal computations
become equal expressions."""
