"""The tables of README.md and docs/**/*.md that come from results and code: `make docs` writes them."""
