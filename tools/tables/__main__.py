"""`python -m tools.tables`: updates the generated tables of README.md and docs."""

from tools.tables.pages import PAGES, refresh

if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := refresh(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.name}: written")
