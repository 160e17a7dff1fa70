"""Rivals of the law, a file each; `theory.nulls.fit_all` fits them all."""
