"""`python -m tools.tables`: updates the generated tables of README.md and docs, and the options of `trueodds serve`."""

from service.cli.serve import OPTIONS
from tools.tables.pages import PAGES, refresh
from tools.tables.settings import serve_options

if __name__ == "__main__":
    OPTIONS.write_text(serve_options(), encoding="utf-8")  # first, because a page shows them
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := refresh(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.name}: written")
